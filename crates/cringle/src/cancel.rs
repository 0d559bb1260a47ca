//! Being told to end: whether and why.
//!
//! A scope, a deadline, a signal or the end of [`run`](crate::run) cancels fibers. A cancelled fiber's
//! operations fail, those under way and all that follow, so that it ends by `?`; a wait that has no
//! room for an error unwinds. What was done wins: a result that is in already is returned.
//!
//! | | a cancelled fiber |
//! |---|---|
//! | files, batches, readiness, `time::*`, every `…_cancellable` | an [`io::Error`]: see [`reason`] |
//! | `sleep`, `park`, `yield_now`, `join`, locks, channels | is unwound: no hook, no message, no poisoning |
//! | the end of a scope, [`unblock`](crate::fiber::unblock) | waits on: others borrow from its frame |
//! | in [`protect`](crate::fiber::protect), or while it unwinds | is left alone |
//!
//! A loop that computes asks by [`check`]. A fiber that asks on after a thousand refusals is unwound.

use crate::runtime::worker::Worker;
use std::io;

pub use crate::runtime::cancelled::{Cancelled, Reason};

/// Fails if the calling fiber is cancelled, or its deadline has passed. Outside of a fiber it never
/// does. The other fibers have no turn.
/// Never suspends the calling fiber.
///
/// ```
/// use cringle::{cancel, fiber};
///
/// fn search(haystack: &[u64]) -> std::io::Result<Option<usize>> {
///     for (index, chunk) in haystack.chunks(1 << 16).enumerate() {
///         cancel::check()?;
///         if let Some(at) = chunk.iter().position(|&straw| straw == 7) {
///             return Ok(Some((index << 16) + at));
///         }
///     }
///     Ok(None)
/// }
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         s.cancel();
///         assert!(search(&[1, 7]).is_err());
///     });
/// });
/// ```
///
/// # Errors
///
/// What an operation would be answered: see [`reason`].
pub fn check() -> io::Result<()> {
    let Some((worker, fiber)) = Worker::current() else { return Ok(()) };
    worker.count(fiber);
    if !fiber.is_cancelled() {
        worker.look_for_cancel();
    }
    match worker.refuses_at_once(fiber) {
        true => Err(fiber.cancel_error()),
        false => Ok(()),
    }
}

/// Whether an error is a cancel's or a deadline's, and not the kernel's, the peer's or the program's.
///
/// ```
/// use cringle::{cancel, fiber, time};
/// use std::io::ErrorKind;
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let limit = Duration::from_millis(1);
///     let error = time::timeout(limit, || time::sleep(Duration::from_secs(60))).unwrap_err();
///     assert_eq!(error.kind(), ErrorKind::TimedOut);
///     match cancel::reason(&error) {
///         Some(cancel::Reason::Elapsed(elapsed)) => assert_eq!(elapsed.limit(), Some(limit)),
///         other => panic!("{other:?}"),
///     }
/// });
/// ```
pub fn reason(error: &io::Error) -> Option<Reason> {
    Reason::of(error)
}
