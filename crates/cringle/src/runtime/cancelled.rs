//! Why a fiber is cancelled, and what it is told.

use super::unwinding;
use super::worker::{Worker, fairness};
use std::io;
use std::time::{Duration, Instant};

/// Why an operation was refused or given up: its fiber was cancelled.
///
/// It is what [`io::Error::get_ref`] of such an error holds; the error's kind is `Other`, never
/// `Interrupted`, which std's loops would retry. (Where it was a deadline, the error is a `TimedOut`
/// that holds [`Elapsed`](crate::time::Elapsed); [`cancel::reason`](crate::cancel::reason) knows
/// both.) A wait whose signature has no room for an error (`sleep`, `park`, `join`, …) unwinds with
/// it as the payload instead, for a deadline too: no panic hook runs, and it is caught where what was
/// cancelled ends, at the fiber's edge at the latest.
///
/// ```
/// use cringle::{Cancelled, fiber};
/// use std::time::Duration;
///
/// let sleeper = cringle::run(|| fiber::spawn(|| fiber::sleep(Duration::from_secs(3600))));
/// // `run` has returned: what was left of it was cancelled, and waited for.
/// assert!(sleeper.join().unwrap_err().is::<Cancelled>());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the fiber was cancelled")
    }
}

impl std::error::Error for Cancelled {}

/// A deadline has passed: what an [`io::Error`] of kind `TimedOut` holds that comes from
/// [`time::timeout`](crate::time::timeout), and not from the kernel (`ETIMEDOUT`). It names the
/// deadline, so that of nested ones it can be told which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    deadline: Instant,
    limit: Option<Duration>,
}

impl Elapsed {
    pub(crate) fn new(deadline: Instant, limit: Option<Duration>) -> Elapsed {
        Elapsed { deadline, limit }
    }

    /// When the time was up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How much time there was; `None` for one that was given as an instant.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }
}

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.limit {
            Some(limit) => write!(f, "it was not done within {limit:?}"),
            None => f.write_str("it was not done before its deadline"),
        }
    }
}

impl std::error::Error for Elapsed {}

/// Why a part of a program was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Somebody cancelled it: [`Scope::cancel`](crate::fiber::Scope::cancel), the failure of a
    /// sibling, a signal, the end of [`run`](crate::run).
    Cancelled,
    /// Its time was up.
    Elapsed(Elapsed),
}

impl Reason {
    /// By their [codes](Self::code).
    pub(crate) const WORDS: [&str; 2] = ["cancelled", "deadline"];

    pub(crate) fn code(self) -> u8 {
        match self {
            Reason::Cancelled => 0,
            Reason::Elapsed(_) => 1,
        }
    }

    /// What an operation is answered that is refused or given up for it.
    pub(crate) fn error(self) -> io::Error {
        match self {
            Reason::Cancelled => io::Error::other(Cancelled),
            Reason::Elapsed(elapsed) => io::Error::new(io::ErrorKind::TimedOut, elapsed),
        }
    }

    /// For the report of who waits for what.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Reason::Cancelled => "cancelled",
            Reason::Elapsed(_) => "out of time",
        }
    }

    /// What such an error was made of.
    pub(crate) fn of(error: &io::Error) -> Option<Reason> {
        let inner = error.get_ref()?;
        match inner.downcast_ref::<Elapsed>() {
            Some(&elapsed) => Some(Reason::Elapsed(elapsed)),
            None => inner.is::<Cancelled>().then_some(Reason::Cancelled),
        }
    }
}

/// Leaves what was cancelled of the calling fiber. Returns only where panics abort: there the wait
/// goes on. The call counts as one shaped to block: see [`fairness`].
pub(crate) fn unwind() {
    fairness::spend();
    unwind_at_once();
}

/// The same, and never suspends.
pub(crate) fn unwind_at_once() {
    if cfg!(panic = "unwind") {
        unwinding::resume(Box::new(Cancelled));
    }
    debug_assert!(Worker::current().is_some(), "only fibers are cancelled");
}
