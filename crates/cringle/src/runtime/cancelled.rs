//! What a cancelled fiber is told.

use super::worker::Worker;
use std::io;

/// Why an operation was refused or given up: its fiber was cancelled.
///
/// It is what [`io::Error::get_ref`] of such an error holds; the error's kind is `Other`, never
/// `Interrupted`, which std's loops would retry. A wait whose signature has no room for an error
/// (`sleep`, `park`, `join`, …) unwinds with it as the payload instead: no panic hook runs, and it
/// is caught at the fiber's edge.
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

/// The error of an operation that was refused or given up.
pub(crate) fn error() -> io::Error {
    io::Error::other(Cancelled)
}

/// Leaves the fiber. Returns only where panics abort: there the wait goes on.
pub(crate) fn unwind() {
    if cfg!(panic = "unwind") {
        if let Some((_, fiber)) = Worker::current() {
            // std's count could not tell this from another fiber's unwinding.
            fiber.set_unwinding(true);
            fiber.set_unwound_by_cancel(true);
        }
        std::panic::resume_unwind(Box::new(Cancelled));
    }
}
