//! What a worker publishes of its load, with [`Balance::Moving`](super::balance::Balance).

use crate::sys;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

pub(super) struct Load {
    calls_for_help: AtomicBool,
    /// The origin of the times below, which are in nanoseconds.
    epoch: Instant,
    pressed_until: AtomicU64,
    heavy_until: AtomicU64,
    computes_until: AtomicU64,
    busy: AtomicU32,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            calls_for_help: AtomicBool::new(false),
            epoch: sys::now(),
            pressed_until: AtomicU64::new(0),
            heavy_until: AtomicU64::new(0),
            computes_until: AtomicU64::new(0),
            busy: AtomicU32::new(0),
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

    /// Whether it has had too much to do of late, and offers fibers.
    pub(super) fn is_pressed(&self, now: Instant) -> bool {
        self.ns(now) < self.pressed_until.load(Ordering::Relaxed)
    }

    /// Whether it has had heavy turns of late.
    pub(super) fn has_heavy(&self, now: Instant) -> bool {
        self.ns(now) < self.heavy_until.load(Ordering::Relaxed)
    }

    /// The part of a core that it has used of late, in thousandths.
    pub(super) fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether a fiber of it has computed for long, again and again, of late.
    fn computes(&self, now: Instant) -> bool {
        self.ns(now) < self.computes_until.load(Ordering::Relaxed)
    }

    /// Whether this worker takes fibers of another one. Light fibers stay away from fibers that
    /// compute for long.
    pub(super) fn may_take_from(&self, other: &Load, now: Instant) -> bool {
        other.computes(now) || !self.computes(now)
    }
}

// For the worker itself.
impl Load {
    pub(super) fn call_for_help(&self, calls: bool) {
        self.calls_for_help.store(calls, Ordering::Relaxed);
    }

    pub(super) fn set_pressed_until(&self, until: Instant) {
        self.pressed_until.store(self.ns(until), Ordering::Relaxed);
    }

    pub(super) fn set_heavy_until(&self, until: Instant) {
        self.heavy_until.store(self.ns(until), Ordering::Relaxed);
    }

    pub(super) fn set_computes_until(&self, until: Instant) {
        self.computes_until.store(self.ns(until), Ordering::Relaxed);
    }

    pub(super) fn set_busy(&self, busy: u32) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    fn ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn light_fibers_stay_away_from_those_that_compute() {
        let (computes, light) = (Load::default(), Load::default());
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert!(computes.may_take_from(&light, now), "nothing has computed yet");
        computes.set_computes_until(now + second);
        assert!(!computes.may_take_from(&light, now));
        assert!(light.may_take_from(&computes, now));
        assert!(computes.may_take_from(&light, now + second * 2), "that was long ago");
        light.set_computes_until(now + second);
        assert!(computes.may_take_from(&light, now), "both have such fibers");
    }
}
