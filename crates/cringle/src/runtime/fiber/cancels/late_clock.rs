//! The clock of a cancelled fiber, as an interposed `clock_gettime` shows it.
//!
//! A cancel ends a timed wait of libc at once, as timed out. A caller that goes by this result
//! sees the right time. A caller that reads its clock instead (`parking_lot`, std's channels) finds
//! that it is too early, and waits for the rest. When a fiber waits *again* until about the same
//! time, its next read of the clock shows the end of that wait; after the second repetition, and
//! later ones, the next two reads do: std's channels read the clock twice. Then the time is right
//! again. An `Instant` that reached another fiber or a thread, as the due time of a job, would
//! delay it there by the length of the wait.
//!
//! A loop of short waits until a far time does not end so. After [`PATIENCE`] refused calls the
//! clock stays ahead, by the sum of the waits that were ended since, until the fiber leaves the
//! cancelled region.

use crate::runtime::fiber::Fiber;
use std::time::{Duration, Instant};

/// The refused calls after which the clock stays ahead.
const PATIENCE: u32 = 64;
/// The reads that show the end of a wait.
const READS: u32 = 2;
/// Two waits end at about the same time if they differ by less: `poll` counts milliseconds.
const SAME: Duration = Duration::from_millis(2);
/// The farthest that a clock is ahead: a century, beyond which callers' sums may overflow.
const FARTHEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// See the module.
#[derive(Clone, Copy, Default)]
pub(super) struct LateClock {
    lead: Duration,
    stays: bool,
    /// The next reads that are ahead, if the clock does not stay so.
    reads: u32,
    repetitions: u32,
    /// When the last ended wait would have ended.
    end: Option<Instant>,
}

impl LateClock {
    fn end_wait(&mut self, now: Instant, end: Instant, refusals: u32) {
        let left = end.saturating_duration_since(now);
        if self.stays || refusals > PATIENCE {
            let before = if self.stays { self.lead } else { Duration::ZERO };
            self.lead = before.saturating_add(left).min(FARTHEST);
            self.stays = true;
            return;
        }
        let is_same = |before: Instant| {
            end.saturating_duration_since(before).max(before.saturating_duration_since(end)) < SAME
        };
        let repeats = self.end.replace(end).is_some_and(is_same);
        self.repetitions = if repeats { self.repetitions + 1 } else { 0 };
        self.reads = self.repetitions.min(READS);
        self.lead = left.min(FARTHEST);
    }

    fn read(&mut self) -> Duration {
        if self.stays {
            return self.lead;
        }
        match self.reads.checked_sub(1) {
            Some(left) => {
                self.reads = left;
                self.lead
            }
            None => Duration::ZERO,
        }
    }
}

impl Fiber {
    /// Notes that a cancel has ended a timed wait, which would have lasted until `end`.
    pub(crate) fn end_timed_wait(&self, now: Instant, end: Instant) {
        let mut clock = self.refusals.clock.get();
        clock.end_wait(now, end, self.refusals());
        self.refusals.clock.set(clock);
    }

    /// Returns by how much a read of the clock is ahead, for the one read that follows. A signal
    /// handler may call it in the middle of a change of the regions.
    #[inline]
    pub(crate) fn take_lead(&self) -> Duration {
        if self.cancelled.get() { self.take_late_lead() } else { Duration::ZERO }
    }

    #[cold]
    fn take_late_lead(&self) -> Duration {
        let mut clock = self.refusals.clock.get();
        let lead = clock.read();
        self.refusals.clock.set(clock);
        lead
    }

    /// Returns by how much the clock stays ahead.
    pub(crate) fn lead(&self) -> Duration {
        let clock = self.refusals.clock.get();
        if clock.stays && self.cancelled.get() { clock.lead } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(20);

    #[test]
    fn clock_is_ahead_only_for_reads_after_a_repetition() {
        let (mut clock, begun) = (LateClock::default(), Instant::now());
        let mut reads_after = |end| {
            clock.end_wait(begun, end, 1);
            [clock.read(), clock.read(), clock.read()]
        };
        let (ahead, right) = (WAIT, Duration::ZERO);
        assert_eq!(reads_after(begun + WAIT), [right; 3]);
        assert_eq!(reads_after(begun + WAIT), [ahead, right, right]);
        assert_eq!(reads_after(begun + WAIT), [ahead, ahead, right]);
        assert_eq!(reads_after(begun + WAIT), [ahead, ahead, right]);
        assert_eq!(reads_after(begun + WAIT / 2), [right; 3]);
    }

    #[test]
    fn clock_stays_ahead_after_many_refusals() {
        let (mut clock, begun) = (LateClock::default(), Instant::now());
        for waits in 1..10 {
            clock.end_wait(begun, begun + WAIT, PATIENCE + 1);
            assert_eq!([clock.read(), clock.read(), clock.read()], [WAIT * waits; 3]);
        }
    }

    #[test]
    fn lead_has_a_limit() {
        let (mut clock, begun) = (LateClock::default(), Instant::now());
        let far = begun + Duration::from_secs(1 << 55);
        for refusals in 0..PATIENCE + 500 {
            clock.end_wait(begun, far, refusals);
        }
        assert_eq!(clock.read(), FARTHEST);
    }
}
