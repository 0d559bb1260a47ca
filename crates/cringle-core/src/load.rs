//! What a worker publishes of its load, with [`Balance::Moving`](crate::choices::Balance).

use cringle_sys as sys;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What was seen of a worker of late.
#[derive(Clone, Copy)]
pub(super) enum Sign {
    /// It has too much to do, and offers fibers.
    Pressed,
    /// It has heavy turns.
    Heavy,
    /// A fiber of it computes for long, again and again.
    Computes,
    /// Its fibers exchange messages with peers.
    Exchanges,
}

/// How long a sign lasts.
const LASTS: Duration = Duration::from_secs(1);

pub(super) struct Load {
    calls_for_help: AtomicBool,
    /// The origin of the times below, which are in nanoseconds.
    epoch: Instant,
    /// Until when each sign lasts.
    signs: [AtomicU64; 4],
    busy: AtomicU32,
    exchanging: AtomicU32,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            calls_for_help: AtomicBool::new(false),
            epoch: sys::now(),
            signs: Default::default(),
            busy: AtomicU32::new(0),
            exchanging: AtomicU32::new(0),
        }
    }
}

// For the others.
impl Load {
    /// Whether it has more ready fibers than it should run alone.
    #[inline]
    pub(super) fn calls_for_help(&self) -> bool {
        self.calls_for_help.load(Ordering::Relaxed)
    }

    pub(super) fn shows(&self, sign: Sign, now: Instant) -> bool {
        self.ns(now) < self.signs[sign as usize].load(Ordering::Relaxed)
    }

    /// The part of a core that it has used of late, in thousandths.
    pub(super) fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// How many of its families exchanged messages when it [did](Sign::Exchanges) last.
    pub(super) fn exchanging(&self) -> u32 {
        self.exchanging.load(Ordering::Relaxed)
    }

    /// Whether this worker takes fibers of another one. Light fibers stay away from fibers
    /// that compute for long.
    pub(super) fn may_take_from(&self, other: &Load, now: Instant) -> bool {
        other.shows(Sign::Computes, now) || !self.shows(Sign::Computes, now)
    }
}

// For the worker itself.
impl Load {
    pub(super) fn call_for_help(&self, calls: bool) {
        self.calls_for_help.store(calls, Ordering::Relaxed);
    }

    pub(super) fn note(&self, sign: Sign, now: Instant) {
        self.signs[sign as usize].store(self.ns(now + LASTS), Ordering::Relaxed);
    }

    pub(super) fn set_busy(&self, busy: u32) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    pub(super) fn set_exchanging(&self, families: u32) {
        self.exchanging.store(families, Ordering::Relaxed);
    }

    fn ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn light_fibers_stay_away_from_those_that_compute() {
        let (computes, light) = (Load::default(), Load::default());
        let now = Instant::now();
        assert!(computes.may_take_from(&light, now), "nothing has computed yet");
        computes.note(Sign::Computes, now);
        assert!(!computes.may_take_from(&light, now));
        assert!(light.may_take_from(&computes, now));
        assert!(computes.may_take_from(&light, now + LASTS * 2), "that was long ago");
        light.note(Sign::Computes, now);
        assert!(computes.may_take_from(&light, now), "both have such fibers");
    }
}
