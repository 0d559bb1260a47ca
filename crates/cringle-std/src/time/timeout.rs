//! Deadlines.

use cringle_core::cancelled;
use cringle_core::cancelled::{Cancelled, Elapsed, Reason};
use cringle_core::now;
use cringle_core::region::Region;
use cringle_core::unwinding;
use cringle_core::worker::{Current, Within};
use std::io;
use std::time::{Duration, Instant};

/// Runs `f` with a deadline for its operations, and for the operations of the fibers of scopes that
/// it opens. When `limit` has passed, these operations fail, and `f` ends because of their errors.
/// The call returns `f`'s own result.
///
/// Deadlines nest. Each operation fails at the first deadline that passes, and its error says which
/// one that was; if several have passed already, it is the outermost. A wait that cannot return an
/// error unwinds to here, and the call returns the error.
///
/// ```
/// use cringle::{fiber, time};
/// use std::io::{self, ErrorKind};
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let answer = time::timeout(Duration::from_secs(60), || Ok(42)).unwrap();
///     assert_eq!(answer, 42);
///
///     let late = time::timeout(Duration::from_millis(1), || {
///         fiber::sleep(Duration::from_secs(60));
///         Ok(())
///     });
///     assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
/// });
/// ```
///
/// A closure with an error type of its own needs [`try_timeout`]; with `timeout` the compiler
/// reports that it "expected `Result<_, io::Error>`" (E0308). A closure that cannot fail returns
/// `Ok(value)`.
///
/// # Errors
///
/// `f`'s own. The error of an operation that the deadline refused or interrupted has the kind
/// `TimedOut` and contains [`Elapsed`]; see [`cancel::reason`](crate::cancel::reason).
///
/// # Cancellation
///
/// A deadline is a cancel. It cancels an operation in the kernel and waits for its completion; it
/// does not interrupt a closure on another thread ([`unblock`](crate::fiber::unblock)), nor code
/// that computes. An operation that the kernel does not give up (a write to a frozen file system)
/// outlasts the deadline, and after 5 seconds a line on standard error says so. In a destructor of
/// a fiber that unwinds nothing is cancelled, not even by a deadline within the destructor. Outside
/// of a fiber, `f` is called without a deadline: its calls are the plain blocking ones.
pub fn timeout<T>(limit: Duration, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    try_timeout(limit, f)
}

/// Like [`timeout`], but with an instant instead of a duration.
///
/// ```
/// use cringle::{fs, time};
/// use std::time::{Duration, Instant};
///
/// cringle::run(|| {
///     let deadline = Instant::now() + Duration::from_secs(5);
///     // Both calls share the deadline.
///     let file = time::timeout_at(deadline, || fs::File::open("/proc/self/exe"))?;
///     time::timeout_at(deadline, || file.metadata())
/// })
/// .unwrap();
/// ```
///
/// # Errors
///
/// As for [`timeout`].
pub fn timeout_at<T>(deadline: Instant, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    try_timeout_at(deadline, f)
}

/// Like [`timeout`], for closures with an error type of their own. The error of a deadline that
/// unwinds `f` is made from an [`io::Error`].
///
/// ```
/// use cringle::{fiber, fs, time};
/// use std::{io, time::Duration};
///
/// #[derive(Debug)]
/// enum Error {
///     Empty,
///     Io(io::Error),
/// }
///
/// impl From<io::Error> for Error {
///     fn from(error: io::Error) -> Error {
///         Error::Io(error)
///     }
/// }
///
/// fn load() -> Result<Vec<u8>, Error> {
///     time::try_timeout(Duration::from_secs(5), || {
///         let bytes = fs::read("/dev/null")?;
///         if bytes.is_empty() { Err(Error::Empty) } else { Ok(bytes) }
///     })
/// }
///
/// cringle::run(|| {
///     assert!(matches!(load(), Err(Error::Empty)));
///
///     let late = time::try_timeout(Duration::from_millis(1), || {
///         fiber::sleep(Duration::from_secs(60));
///         Ok::<(), Error>(())
///     });
///     assert!(matches!(late, Err(Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut));
/// });
/// ```
///
/// The error type is inferred from the closure or from what the call's result is used for. Where
/// `?` follows the call directly, write `try_timeout::<_, Error>(…)?`, since `?` converts errors.
///
/// # Errors
///
/// As for [`timeout`]. An operation that the deadline refused or interrupted returns an
/// [`io::Error`], which `f` converts like any other.
///
/// # Cancellation
///
/// As for [`timeout`].
pub fn try_timeout<T, E>(limit: Duration, f: impl FnOnce() -> Result<T, E>) -> Result<T, E>
where
    E: From<io::Error>,
{
    let now = now();
    match now.checked_add(limit) {
        Some(deadline) => within(cancelled::elapsed(deadline, Some(limit)), now, f),
        // A deadline that no `Instant` can represent is never reached.
        None => f(),
    }
}

/// Like [`try_timeout`], but with an instant instead of a duration.
///
/// ```
/// use cringle::{fs, time};
/// use std::error::Error;
/// use std::time::{Duration, Instant};
///
/// fn number(path: &str, deadline: Instant) -> Result<u32, Box<dyn Error>> {
///     time::try_timeout_at(deadline, || Ok(fs::read_to_string(path)?.trim().parse()?))
/// }
///
/// cringle::run(|| {
///     let deadline = Instant::now() + Duration::from_secs(5);
///     assert!(number("/proc/sys/fs/pipe-max-size", deadline).is_ok());
///     assert!(number("/proc/version", deadline).is_err());
/// });
/// ```
///
/// # Errors
///
/// As for [`try_timeout`].
pub fn try_timeout_at<T, E>(deadline: Instant, f: impl FnOnce() -> Result<T, E>) -> Result<T, E>
where
    E: From<io::Error>,
{
    within(cancelled::elapsed(deadline, None), now(), f)
}

#[inline]
fn within<T, E>(elapsed: Elapsed, now: Instant, f: impl FnOnce() -> Result<T, E>) -> Result<T, E>
where
    E: From<io::Error>,
{
    let Some(current) = Current::get() else { return f() };
    let region = Region::with_deadline(elapsed);
    let result = {
        // SAFETY: I12. `within` is dropped at the end of this block. Nothing unwinds the block
        // before: `f`'s panic is caught.
        let within = unsafe { Within::enter(current, &region) };
        let _alarm = within.expire_in_time(now);
        unwinding::catch_on(Some(current), f)
    };
    match result {
        Ok(result) => result,
        // This deadline has unwound `f`, and no outer region is cancelled.
        Err(payload)
            if payload.is::<Cancelled>()
                && region.cause().is_some()
                && !current.is_interrupted() =>
        {
            Err(E::from(cancelled::error_of(Reason::Elapsed(elapsed))))
        }
        Err(payload) => unwinding::resume(payload),
    }
}
