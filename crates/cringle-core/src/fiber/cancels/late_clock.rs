//! The clock of a cancelled fiber, as an interposed `clock_gettime` shows it.
//!
//! A cancel ends a timed wait of libc at once, and the wait reports a time-out. For a caller that
//! relies on this result, the clock shows the right time. Other callers read their clock instead
//! (`parking_lot`, std's channels), find that the time is not over, and wait for the rest, again
//! and again. So the clock shows them a later time. When a fiber has read its clock and waits
//! *again* until about the same time, its next read shows the end of that wait; after the second
//! repetition, and later ones, the next two reads do: std's channels read the clock twice. Then the
//! time is right again. An `Instant` that reached another fiber or a thread, as the due time of a
//! job, would delay it there by the length of the wait. (r2d2 hands one to the threads that make
//! connections. With a clock that stays ahead, its pool stayed empty.) `epoll_wait` never moves the
//! clock (`ready.rs` of `cringle-interpose`), and the library's own `cringle_sys::now` is the right
//! time.
//!
//! A loop of short waits until a far time does not end so. After [`PATIENCE`] refused calls the
//! clock stays ahead, by the sum of the waits that were ended since, until the fiber leaves the
//! cancelled region. A wait after a read counts as at least the sum before, until that is
//! [`DOUBLED`]: a loop that reads its clock ends after few waits, at the cost of a lead of less
//! than twice its time. Waits whose caller goes by the result count for their length only.

use crate::fiber::Fiber;
use std::time::{Duration, Instant};

/// The refused calls after which the clock stays ahead.
const PATIENCE: u32 = 64;
/// The reads that show the end of a wait.
const READS: u32 = 2;
/// Two waits end at about the same time if they differ by less: `poll` counts milliseconds.
const SAME: Duration = Duration::from_millis(2);
/// The lead until which waits double it.
const DOUBLED: Duration = Duration::from_secs(3600);
/// The farthest that the clock stays ahead: a century, beyond which callers' sums of nanoseconds
/// may overflow.
const FARTHEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// The farthest that the end of a wait is ahead: half of what the kernel's seconds can say. Only a
/// caller that waits for so long sees it.
const FARTHEST_END: Duration = Duration::from_secs(1 << 62);

/// See the module.
#[derive(Clone, Copy, Default)]
pub(super) struct LateClock {
    /// By how much it stays ahead.
    stays: Duration,
    /// By how much the next reads are ahead.
    lead: Duration,
    /// The number of these reads.
    reads: u32,
    repetitions: u32,
    /// Whether the clock was read since the last ended wait.
    was_read: bool,
    /// When the last ended wait would have ended.
    end: Option<Instant>,
}

impl LateClock {
    fn end_wait(&mut self, now: Instant, end: Instant, refusals: u32) {
        let left = end.saturating_duration_since(now);
        let is_same = |before: Instant| {
            end.saturating_duration_since(before).max(before.saturating_duration_since(end)) < SAME
        };
        let was_read = std::mem::take(&mut self.was_read);
        let repeats = self.end.replace(end).is_some_and(is_same) && was_read;
        self.repetitions = if repeats { self.repetitions + 1 } else { 0 };
        self.reads = self.repetitions.min(READS);
        self.lead = self.stays.saturating_add(left).min(FARTHEST_END);
        if !self.stays.is_zero() || refusals > PATIENCE {
            let least = self.stays.min(DOUBLED.saturating_sub(self.stays));
            let step = if was_read { left.max(least) } else { left };
            self.stays = self.stays.saturating_add(step).min(FARTHEST);
        }
    }

    fn read(&mut self) -> Duration {
        self.was_read = true;
        match self.reads.checked_sub(1) {
            Some(left) => {
                self.reads = left;
                self.lead.max(self.stays)
            }
            None => self.stays,
        }
    }
}

impl Fiber {
    /// Notes that a cancel has ended a timed wait, which would have lasted until `end`.
    pub fn end_timed_wait(&self, now: Instant, end: Instant) {
        let mut clock = self.refusals.clock.get();
        clock.end_wait(now, end, self.refusals());
        self.refusals.clock.set(clock);
    }

    /// Returns by how much a read of the clock is ahead, for the one read that follows, unless the
    /// fiber unwinds. A signal handler may call it in the middle of a change of the regions.
    #[inline]
    pub fn take_lead(&self) -> Duration {
        if self.cancelled.get() { self.take_late_lead() } else { Duration::ZERO }
    }

    #[cold]
    fn take_late_lead(&self) -> Duration {
        let mut clock = self.refusals.clock.get();
        let lead = clock.read();
        self.refusals.clock.set(clock);
        lead
    }

    /// Returns by how much the clock stays ahead, unless the fiber unwinds.
    pub fn lead(&self) -> Duration {
        if self.cancelled.get() { self.refusals.clock.get().stays } else { Duration::ZERO }
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
    fn waits_without_a_read_repeat_nothing() {
        let (mut clock, begun) = (LateClock::default(), Instant::now());
        for _ in 0..5 {
            clock.end_wait(begun, begun + WAIT, 1);
        }
        assert_eq!([clock.read(), clock.read()], [Duration::ZERO; 2]);
    }

    #[test]
    fn clock_stays_ahead_after_many_refusals() {
        let (mut clock, begun) = (LateClock::default(), Instant::now());
        for waits in 1..10 {
            clock.end_wait(begun, begun + WAIT, PATIENCE + 1);
            assert_eq!(clock.stays, WAIT * waits);
        }
        assert_eq!([clock.read(), clock.read(), clock.read()], [WAIT * 9; 3]);
    }

    #[test]
    fn waits_after_reads_double_the_lead_to_an_hour() {
        let (mut clock, begun) = (LateClock::default(), Instant::now());
        let mut lead_after = |wait| {
            clock.end_wait(begun, begun + wait, PATIENCE + 1);
            clock.read()
        };
        let short = Duration::from_millis(1);
        for doubled in 0..21 {
            assert_eq!(lead_after(short), short * (1 << doubled));
        }
        let leads = [(); 4].map(|()| lead_after(short));
        assert_eq!(leads, [short * (1 << 21), DOUBLED, DOUBLED + short, DOUBLED + 2 * short]);
    }

    #[test]
    fn lead_has_a_limit() {
        let (mut clock, begun) = (LateClock::default(), Instant::now());
        let wait = Duration::from_millis(u64::MAX);
        for refusals in 0..PATIENCE + 500 {
            clock.end_wait(begun, begun + wait, refusals);
        }
        assert_eq!([clock.read(), clock.read()], [FARTHEST; 2]);
        // A caller that waits beyond it sees the end.
        clock.end_wait(begun, begun + wait, PATIENCE + 1);
        assert_eq!([clock.read(), clock.read()], [FARTHEST + wait, FARTHEST]);
        clock.end_wait(begun, begun + Duration::from_secs(1 << 62), PATIENCE + 1);
        clock.read();
        clock.end_wait(begun, begun + Duration::from_secs(1 << 62), PATIENCE + 1);
        assert_eq!([clock.read(), clock.read()], [FARTHEST_END, FARTHEST]);
    }
}
