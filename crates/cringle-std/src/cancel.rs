//! Cancellation: whether a fiber is cancelled, and why.
//!
//! A scope, a deadline, a signal or the end of [`run`] cancels fibers. The operations of a
//! cancelled fiber fail, both those in flight and all later ones, so that the fiber ends by `?`; a
//! wait that cannot return an error unwinds. A result wins over a later cancel: a call whose result
//! is in returns it.
//!
//! | call | on a cancelled fiber |
//! |---|---|
//! | files, batches, `io::ready`, `time::*`, `…_cancellable` | returns an error: see [`reason`] |
//! | `sleep`, `park`, `yield_now`, `join`, locks, channels | unwinds; no hook, message, poison |
//! | the end of a scope, [`unblock`](crate::fiber::unblock) | continues to wait |
//! | inside [`protect`](crate::fiber::protect), or while it unwinds | is not affected |
//!
//! A loop that computes calls [`check`]. A fiber that continues after a thousand refused calls is
//! unwound.
//!
//! ```
//! use cringle::{cancel, fiber, time};
//! use std::time::Duration;
//!
//! cringle::run(|| {
//!     fiber::scope(|s| {
//!         let sleeper = s.spawn(|| time::sleep(Duration::from_secs(3600)));
//!         s.cancel();
//!         let error = sleeper.join().unwrap().unwrap_err();
//!         assert!(cancel::reason(&error).is_some());
//!     });
//! });
//! ```
//!
//! [`run`]: https://docs.rs/cringle/latest/cringle/fn.run.html

use cringle_core::cancelled;
use cringle_core::worker::Current;
use std::error::Error;
use std::io;

pub use cringle_core::cancelled::{Cancelled, Reason};

/// Returns an error if the calling fiber is cancelled or its deadline has passed. Outside of a
/// fiber it always succeeds. It does not let other fibers run.
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
/// The error that an operation would return: see [`reason`].
pub fn check() -> io::Result<()> {
    let Some(current) = Current::get() else { return Ok(()) };
    current.count();
    if !current.fiber.is_cancelled() {
        current.worker.look_for_cancel();
    }
    if current.refuses_at_once() { Err(current.fiber.cancel_error()) } else { Ok(()) }
}

/// Returns the reason if an error comes from a cancel or a deadline, and `None` if it comes from
/// the kernel, the peer or the program.
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
    cancelled::reason_of(error)
}

/// Returns the reason behind an error of any type: from the chain of its
/// [sources](Error::source), and else from the calling fiber, if that is cancelled now.
///
/// Crates wrap errors, and a crate whose calls of libc are hooked (`cringle-interpose`) makes its
/// own from `ETIMEDOUT`, or from a wait that has timed out. Only the fiber knows the reason then,
/// and only while it is in the cancelled part of the program: call this within the closure of
/// [`try_timeout`](crate::time::try_timeout). On a cancelled fiber every error has a reason, even
/// one that would have occurred without the cancel.
///
/// ```
/// use cringle::{cancel, fs, time};
/// use std::error::Error;
/// use std::{io, time::Duration};
///
/// fn status(error: &(dyn Error + 'static)) -> u16 {
///     match cancel::reason_of(error) {
///         Some(cancel::Reason::Elapsed(_)) => 504,
///         _ => 502,
///     }
/// }
///
/// cringle::run(|| {
///     let answer = time::try_timeout(Duration::from_millis(1), || {
///         time::sleep(Duration::from_secs(60)).map_err(|error| {
///             // As a crate that reports no source.
///             let error: Box<dyn Error> = error.to_string().into();
///             io::Error::other(status(&*error).to_string())
///         })
///     });
///     assert_eq!(answer.unwrap_err().to_string(), "504");
///     assert_eq!(status(&fs::read("/missing").unwrap_err()), 502);
/// });
/// ```
pub fn reason_of(error: &(dyn Error + 'static)) -> Option<Reason> {
    let of_fiber = || {
        let Current { fiber, .. } = Current::get()?;
        if fiber.is_cancelled() { fiber.cause() } else { None }
    };
    cancelled::reason_in_chain(error).or_else(of_fiber)
}
