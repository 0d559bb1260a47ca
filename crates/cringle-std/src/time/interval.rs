//! Periodic ticks.

use crate::fiber::park::sleep_till_cancellable;
use cringle_core::now;
use std::io;
use std::time::{Duration, Instant};

/// Creates an interval whose ticks are `period` apart. The first tick is due at once.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::time;
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let mut interval = time::interval(Duration::from_millis(2));
///     let first = interval.tick()?;
///     let third = interval.tick().and_then(|_| interval.tick())?;
///     assert_eq!(third - first, Duration::from_millis(4));
///     Ok(())
/// })
/// # }
/// ```
///
/// # Panics
///
/// If `period` is zero.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(now(), period)
}

/// Like [`interval`], but the first tick is due at `start`.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::time;
/// use std::time::{Duration, Instant};
///
/// cringle::run(|| {
///     let start = Instant::now() + Duration::from_millis(2);
///     let mut interval = time::interval_at(start, Duration::from_secs(3600));
///     assert_eq!(interval.tick()?, start);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Panics
///
/// If `period` is zero.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "the period of an interval must not be zero");
    Interval { period, next: Some(start), missed_ticks: MissedTicks::default() }
}

/// What an [`Interval`] does about a *missed* tick: one after which the next tick is already due
/// when it is returned. A tick that is late by less than a period shifts no later tick.
///
/// ```
/// use cringle::time::{self, MissedTicks};
/// use std::time::Duration;
///
/// let mut interval = time::interval(Duration::from_secs(1));
/// assert_eq!(interval.missed_ticks(), MissedTicks::Burst);
/// interval.set_missed_ticks(MissedTicks::Skip);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissedTicks {
    /// Returns every tick: missed ticks at once, until the interval has caught up. The default, by
    /// which the number of ticks measures time.
    #[default]
    Burst,
    /// Restarts the interval: the next tick is due one period from now. Ticks are then never less
    /// than a period apart.
    Delay,
    /// Drops missed ticks: the next tick is the first planned one in the future.
    Skip,
}

/// Periodic ticks, created by [`interval`] or [`interval_at`].
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::time;
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let mut interval = time::interval(Duration::from_millis(1));
///     for _ in 0..3 {
///         interval.tick()?;
///     }
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    /// When the next tick is due. `None` (never) if no `Instant` can represent that time.
    next: Option<Instant>,
    missed_ticks: MissedTicks,
}

impl Interval {
    /// Waits for the next tick; only the calling fiber waits. Returns the time when the tick was
    /// due, which is in the past if the fiber is late.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::time;
    /// use std::time::Duration;
    ///
    /// cringle::run(|| {
    ///     let mut interval = time::interval(Duration::from_millis(1));
    ///     let first = interval.tick()?;
    ///     assert_eq!(interval.tick()? - first, Duration::from_millis(1));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the fiber was cancelled first: see [`cancel::reason`](crate::cancel::reason).
    ///
    /// # Cancellation
    ///
    /// A cancelled call consumes no tick.
    pub fn tick(&mut self) -> io::Result<Instant> {
        sleep_till_cancellable(self.next)?;
        let due = self.next.expect("a wait without an end does not end");
        self.next = self.after(due, now());
        Ok(due)
    }

    /// Returns when the tick is due that follows the one that was due at `due` and is returned at
    /// `now`.
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

    /// Restarts the interval: the next tick is due one period from now.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::time;
    /// use std::time::{Duration, Instant};
    ///
    /// cringle::run(|| {
    ///     let mut idle = time::interval(Duration::from_millis(5));
    ///     idle.tick()?;
    ///     let work = Instant::now();
    ///     idle.reset();
    ///     assert!(idle.tick()? >= work + Duration::from_millis(5));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn reset(&mut self) {
        self.next = now().checked_add(self.period);
    }

    /// Returns the time between ticks.
    ///
    /// ```
    /// use cringle::time;
    /// use std::time::Duration;
    ///
    /// assert_eq!(time::interval(Duration::from_secs(1)).period(), Duration::from_secs(1));
    /// ```
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns what the interval does about missed ticks.
    ///
    /// ```
    /// use cringle::time::{self, MissedTicks};
    /// use std::time::Duration;
    ///
    /// let interval = time::interval(Duration::from_secs(1));
    /// assert_eq!(interval.missed_ticks(), MissedTicks::Burst);
    /// ```
    pub fn missed_ticks(&self) -> MissedTicks {
        self.missed_ticks
    }

    /// Sets what the interval does about missed ticks, from the next one on.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::time::{self, MissedTicks};
    /// use std::time::{Duration, Instant};
    ///
    /// cringle::run(|| {
    ///     let mut interval = time::interval(Duration::from_millis(1));
    ///     interval.set_missed_ticks(MissedTicks::Skip);
    ///     let first = interval.tick()?;
    ///     time::sleep(Duration::from_millis(20))?; // the work for a tick takes long
    ///     interval.tick()?; // late
    ///     assert!(interval.tick()? - first >= Duration::from_millis(20));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn set_missed_ticks(&mut self, missed_ticks: MissedTicks) {
        self.missed_ticks = missed_ticks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    /// Returns when each next tick is due, in seconds, if ticks are returned at these seconds.
    fn ticks(missed_ticks: MissedTicks, returned: &[u64]) -> Vec<u64> {
        let start = Instant::now();
        let mut interval = interval_at(start, PERIOD);
        interval.set_missed_ticks(missed_ticks);
        let next = |&at: &u64| {
            let now = start + Duration::from_secs(at);
            let due = interval.next.unwrap();
            assert!(now >= due, "a tick must not be returned before it is due");
            interval.next = interval.after(due, now);
            (interval.next.unwrap() - start).as_secs()
        };
        returned.iter().map(next).collect()
    }

    #[test]
    fn slightly_late_tick_shifts_no_later_tick() {
        for missed_ticks in [MissedTicks::Burst, MissedTicks::Delay, MissedTicks::Skip] {
            assert_eq!(ticks(missed_ticks, &[0, 19, 25, 30]), [10, 20, 30, 40]);
        }
    }

    #[test]
    fn missed_ticks_burst_delay_or_skip() {
        assert_eq!(ticks(MissedTicks::Burst, &[0, 35, 35, 35, 40]), [10, 20, 30, 40, 50]);
        assert_eq!(ticks(MissedTicks::Delay, &[0, 35, 45]), [10, 45, 55]);
        assert_eq!(ticks(MissedTicks::Skip, &[0, 35, 40]), [10, 40, 50]);
        // A tick that is due at this very moment is missed, too.
        assert_eq!(ticks(MissedTicks::Skip, &[0, 30]), [10, 40]);
    }

    #[test]
    fn unrepresentable_period_ticks_once() {
        let mut interval = interval(Duration::MAX);
        interval.tick().unwrap();
        assert_eq!(interval.next, None);
        interval.reset();
        assert_eq!(interval.next, None);
    }
}
