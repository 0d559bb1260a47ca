//! The reasons for which a fiber is cancelled, and the errors that its calls return.

use super::unwinding;
use super::worker::{Current, fairness};
use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

/// The errors of a chain that are looked at: a chain may be a circle.
const LONGEST_CHAIN: usize = 100;

/// The error of an operation that was refused or given up because its fiber was cancelled.
///
/// [`io::Error::get_ref`] of such an error returns it. The error's kind is `Other`, not
/// `Interrupted`, which std's loops would retry. After a deadline the error is a `TimedOut` that
/// holds an [`Elapsed`] instead; `cancel::reason` recognises both.
///
/// A wait whose signature has no error (`sleep`, `park`, `join`, …) unwinds with this as its
/// payload, after a deadline too. No panic hook runs. The payload is caught where the cancelled
/// part of the program ends, at the latest at the end of the fiber.
///
/// ```
/// use cringle::{Cancelled, fiber};
/// use std::time::Duration;
///
/// let sleeper = cringle::run(|| fiber::spawn(|| fiber::sleep(Duration::from_secs(3600))));
/// // `run` has cancelled the fiber and waited for its end.
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

impl Error for Cancelled {}

/// The error of an operation that a deadline has ended.
///
/// An [`io::Error`] of kind `TimedOut` holds it if the error comes from `time::timeout`, and not
/// from the kernel (`ETIMEDOUT`). It names the deadline, which tells nested timeouts apart.
///
/// ```
/// use cringle::{cancel::{self, Reason}, time};
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let limit = Duration::from_millis(1);
///     let error = time::timeout(limit, || time::sleep(Duration::MAX)).unwrap_err();
///     let Some(Reason::Elapsed(elapsed)) = cancel::reason(&error) else { panic!("{error}") };
///     println!("{elapsed}");
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    deadline: Instant,
    limit: Option<Duration>,
}

/// The end of a deadline.
pub fn elapsed(deadline: Instant, limit: Option<Duration>) -> Elapsed {
    Elapsed { deadline, limit }
}

impl Elapsed {
    /// Returns the time of the deadline.
    ///
    /// ```
    /// use cringle::{cancel::{self, Reason}, time};
    /// use std::time::Duration;
    ///
    /// cringle::run(|| {
    ///     let limit = Duration::from_millis(1);
    ///     let error = time::timeout(limit, || time::sleep(Duration::MAX)).unwrap_err();
    ///     let Some(Reason::Elapsed(elapsed)) = cancel::reason(&error) else { panic!("{error}") };
    ///     assert!(elapsed.deadline() <= time::now());
    /// });
    /// ```
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the time that the operation had; `None` if the deadline was given as an instant.
    ///
    /// ```
    /// use cringle::{cancel::{self, Reason}, time};
    /// use std::time::Duration;
    ///
    /// cringle::run(|| {
    ///     let limit = Duration::from_millis(1);
    ///     let error = time::timeout(limit, || time::sleep(Duration::MAX)).unwrap_err();
    ///     let Some(Reason::Elapsed(elapsed)) = cancel::reason(&error) else { panic!("{error}") };
    ///     assert_eq!(elapsed.limit(), Some(limit));
    /// });
    /// ```
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

impl Error for Elapsed {}

/// The reason for which a part of a program was cancelled.
///
/// ```
/// use cringle::{cancel::{self, Reason}, fiber};
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         s.cancel();
///         let error = cancel::check().unwrap_err();
///         assert_eq!(cancel::reason(&error), Some(Reason::Cancelled));
///     });
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A cancel by `Scope::cancel`, by the failure of a sibling, by a signal, or by the end of
    /// `run`.
    Cancelled,
    /// A deadline has passed.
    Elapsed(Elapsed),
}

impl Reason {
    /// The reasons in one word, by their [codes](Self::code).
    pub(crate) const WORDS: [&str; 2] = ["cancelled", "deadline"];

    pub(crate) fn code(self) -> u8 {
        match self {
            Reason::Cancelled => 0,
            Reason::Elapsed(_) => 1,
        }
    }

    /// The error of an operation that is refused or given up for this reason.
    pub(crate) fn error(self) -> io::Error {
        match self {
            Reason::Cancelled => io::Error::other(Cancelled),
            Reason::Elapsed(elapsed) => io::Error::new(io::ErrorKind::TimedOut, elapsed),
        }
    }

    /// The reason as an adjective, for reports.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Reason::Cancelled => "cancelled",
            Reason::Elapsed(_) => "out of time",
        }
    }

    fn of_inner(inner: &(dyn Error + 'static)) -> Option<Reason> {
        match inner.downcast_ref::<Elapsed>() {
            Some(&elapsed) => Some(Reason::Elapsed(elapsed)),
            None => inner.is::<Cancelled>().then_some(Reason::Cancelled),
        }
    }
}

/// The error of an operation that is refused or given up for this reason.
pub fn error_of(reason: Reason) -> io::Error {
    reason.error()
}

/// The reason behind such an error.
pub fn reason_of(error: &io::Error) -> Option<Reason> {
    Reason::of_inner(error.get_ref()?)
}

/// The reason in the chain of an error's sources.
pub fn reason_in_chain(error: &(dyn Error + 'static)) -> Option<Reason> {
    let mut next = Some(error);
    for _ in 0..LONGEST_CHAIN {
        let error = next?;
        if let Some(reason) = Reason::of_inner(error) {
            return Some(reason);
        }
        next = match error.downcast_ref::<io::Error>() {
            // The source of an `io::Error` is the source of the error within.
            Some(error) => error.get_ref().map(|inner| inner as _),
            None => error.source(),
        };
    }
    None
}

/// Unwinds the cancelled part of the calling fiber. Counts as a call shaped to block: see
/// [`fairness`]. Returns only where panics abort; the wait continues there.
pub fn unwind() {
    fairness::spend();
    unwind_at_once();
}

/// [`unwind`] for callers that must not suspend.
pub(crate) fn unwind_at_once() {
    if cfg!(panic = "unwind") {
        unwinding::resume_cancelled();
    }
    debug_assert!(Current::get().is_some(), "only fibers are cancelled");
}
