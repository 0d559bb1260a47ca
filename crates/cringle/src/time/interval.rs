//! Ticks.

use crate::fiber::sleep_till_cancellable;
use std::io;
use std::time::{Duration, Instant};

/// The one place of this file that asks for the time.
fn now() -> Instant {
    crate::runtime::now()
}

/// Ticks, `period` apart. The first comes at once.
///
/// ```
/// use cringle::time;
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let mut interval = time::interval(Duration::from_millis(2));
///     let first = interval.tick()?;
///     let third = interval.tick().and_then(|_| interval.tick())?;
///     assert_eq!(third - first, Duration::from_millis(4));
///     Ok::<(), std::io::Error>(())
/// })
/// .unwrap();
/// ```
///
/// # Panics
///
/// For a period of zero.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(now(), period)
}

/// Like [`interval`], with the first tick at `start`.
///
/// ```
/// use cringle::time;
/// use std::time::{Duration, Instant};
///
/// cringle::run(|| {
///     let start = Instant::now() + Duration::from_millis(2);
///     let mut interval = time::interval_at(start, Duration::from_secs(3600));
///     assert_eq!(interval.tick()?, start);
///     Ok::<(), std::io::Error>(())
/// })
/// .unwrap();
/// ```
///
/// # Panics
///
/// For a period of zero.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "the period of an interval must not be zero");
    Interval { period, next: Some(start), missed_ticks: MissedTicks::default() }
}

/// What an [`Interval`] does when a tick is *missed*: when the tick after it is due, too, at the time it
/// is returned. (A tick that is late by less than a period shifts nothing.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissedTicks {
    /// Makes up for them: those that are due come at once, until it has caught up. The default: each
    /// tick comes, and the count of ticks tells the time.
    #[default]
    Burst,
    /// Begins anew: the next tick comes one period from now. Ticks are never closer than a period then.
    Delay,
    /// Leaves them out: the next tick is the first one to come of those that were planned.
    Skip,
}

/// Ticks: made by [`interval`] and [`interval_at`].
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    /// When the next tick is due; `None` is a time that no clock can show.
    next: Option<Instant>,
    missed_ticks: MissedTicks,
}

impl Interval {
    /// Waits for the next tick; only the calling fiber does. Returns when it was due, which is before
    /// now, if the fiber comes late.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The fiber was cancelled first: see [`cancel::reason`](crate::cancel::reason).
    ///
    /// # Cancellation
    ///
    /// A tick that was not returned is still to come.
    pub fn tick(&mut self) -> io::Result<Instant> {
        sleep_till_cancellable(self.next)?;
        let due = self.next.expect("what is for ever does not end");
        self.next = self.after(due, now());
        Ok(due)
    }

    /// When the tick is due that comes after this one, which is returned now.
    fn after(&self, due: Instant, now: Instant) -> Option<Instant> {
        let planned = due.checked_add(self.period)?;
        if now < planned {
            return Some(planned);
        }
        match self.missed_ticks {
            MissedTicks::Burst => Some(planned),
            MissedTicks::Delay => now.checked_add(self.period),
            MissedTicks::Skip => {
                const NANOS: u128 = 1_000_000_000;
                let past = (now - due).as_nanos() % self.period.as_nanos();
                let past = Duration::new((past / NANOS) as u64, (past % NANOS) as u32);
                now.checked_add(self.period - past)
            }
        }
    }

    /// Has the next tick come one period from now.
    ///
    /// ```
    /// use cringle::time;
    /// use std::time::{Duration, Instant};
    ///
    /// cringle::run(|| {
    ///     let mut idle = time::interval(Duration::from_millis(5));
    ///     idle.tick()?;
    ///     let work = Instant::now();
    ///     idle.reset();
    ///     assert!(idle.tick()? >= work + Duration::from_millis(5));
    ///     Ok::<(), std::io::Error>(())
    /// })
    /// .unwrap();
    /// ```
    pub fn reset(&mut self) {
        self.next = now().checked_add(self.period);
    }

    /// The time between ticks.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// What is done about missed ticks.
    pub fn missed_ticks(&self) -> MissedTicks {
        self.missed_ticks
    }

    /// Says what to do about missed ticks, from the next on.
    ///
    /// ```
    /// use cringle::time::{self, MissedTicks};
    /// use std::time::{Duration, Instant};
    ///
    /// cringle::run(|| {
    ///     let mut interval = time::interval(Duration::from_millis(1));
    ///     interval.set_missed_ticks(MissedTicks::Skip);
    ///     let first = interval.tick()?;
    ///     time::sleep(Duration::from_millis(20))?; // what is done for a tick takes long
    ///     interval.tick()?; // late
    ///     assert!(interval.tick()? - first >= Duration::from_millis(20));
    ///     Ok::<(), std::io::Error>(())
    /// })
    /// .unwrap();
    /// ```
    pub fn set_missed_ticks(&mut self, missed_ticks: MissedTicks) {
        self.missed_ticks = missed_ticks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    /// The ticks after those that were returned at these seconds.
    fn ticks(missed_ticks: MissedTicks, returned: &[u64]) -> Vec<u64> {
        let start = Instant::now();
        let mut interval = interval_at(start, PERIOD);
        interval.set_missed_ticks(missed_ticks);
        let next = |&at: &u64| {
            let now = start + Duration::from_secs(at);
            let due = interval.next.unwrap();
            assert!(now >= due, "a tick is not returned before it is due");
            interval.next = interval.after(due, now);
            (interval.next.unwrap() - start).as_secs()
        };
        returned.iter().map(next).collect()
    }

    #[test]
    fn a_tick_that_is_late_by_less_than_a_period_shifts_nothing() {
        for missed_ticks in [MissedTicks::Burst, MissedTicks::Delay, MissedTicks::Skip] {
            assert_eq!(ticks(missed_ticks, &[0, 19, 25, 30]), [10, 20, 30, 40]);
        }
    }

    #[test]
    fn missed_ticks_come_at_once_are_delayed_or_are_left_out() {
        assert_eq!(ticks(MissedTicks::Burst, &[0, 35, 35, 35, 40]), [10, 20, 30, 40, 50]);
        assert_eq!(ticks(MissedTicks::Delay, &[0, 35, 45]), [10, 45, 55]);
        assert_eq!(ticks(MissedTicks::Skip, &[0, 35, 40]), [10, 40, 50]);
        // Due at this very moment: it is missed, too, and the one after it is to come.
        assert_eq!(ticks(MissedTicks::Skip, &[0, 30]), [10, 40]);
    }

    #[test]
    fn a_period_that_no_clock_can_show_ticks_once() {
        let mut interval = interval(Duration::MAX);
        interval.tick().unwrap();
        assert_eq!(interval.next, None);
        interval.reset();
        assert_eq!(interval.next, None);
    }
}
