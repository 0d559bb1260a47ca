//! Deadlines.

use crate::runtime::cancelled::{Cancelled, Elapsed, Reason};
use crate::runtime::now;
use crate::runtime::region::Region;
use crate::runtime::unwinding;
use crate::runtime::worker::{Within, Worker};
use std::io;
use std::time::{Duration, Instant};

/// Runs `f`, whose operations, and those of the fibers of scopes that it opens, have this much time.
/// When it is over they fail, and `f` ends by them: what is returned is `f`'s own result.
///
/// Deadlines nest: each operation fails by the first to pass, and its error says which that was; by the
/// outermost, where several have passed already. An error that has no room in a wait's signature
/// unwinds to here, and is returned.
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
/// # Errors
///
/// `f`'s own. Operations that the deadline refused have an error of kind `TimedOut` that holds
/// [`Elapsed`]; see [`cancel::reason`](crate::cancel::reason).
///
/// # Cancellation
///
/// A deadline is one: an operation in the kernel is given up there, and waited for; a closure on
/// another thread ([`unblock`](crate::fiber::unblock)) and code that computes are not interrupted. An
/// operation that the kernel does not give up (a write to a frozen file system) outlasts it, and after
/// 5 seconds a line on standard error says so. In a destructor of a fiber that unwinds nothing is
/// cancelled, by a deadline within it neither. Outside of a fiber `f` is just called: the calls in it
/// are the plain blocking ones.
pub fn timeout<T>(limit: Duration, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let now = now();
    match now.checked_add(limit) {
        Some(deadline) => within(Elapsed::new(deadline, Some(limit)), now, f),
        // A time that no clock can show is for ever.
        None => f(),
    }
}

/// Like [`timeout`], with an instant.
///
/// ```
/// use cringle::{fs, time};
/// use std::time::{Duration, Instant};
///
/// cringle::run(|| {
///     let deadline = Instant::now() + Duration::from_secs(5);
///     // Both together have until then.
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
    within(Elapsed::new(deadline, None), now(), f)
}

#[inline]
fn within<T>(elapsed: Elapsed, now: Instant, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some((worker, fiber)) = Worker::current() else { return f() };
    let region = Region::with_deadline(elapsed);
    let result = {
        // SAFETY: it is dropped at the end of this block, which nothing unwinds before: `f`'s panic is
        // caught.
        let within = unsafe { Within::enter(worker, fiber, &region) };
        let _alarm = within.expire_in_time(now);
        unwinding::catch_on(Some((worker, fiber)), f)
    };
    match result {
        Ok(result) => result,
        // Unwound by a wait that this deadline has ended, and by nothing further out.
        Err(payload)
            if payload.is::<Cancelled>()
                && region.cause().is_some()
                && !worker.is_interrupted(fiber) =>
        {
            Err(Reason::Elapsed(elapsed).error())
        }
        Err(payload) => unwinding::resume(payload),
    }
}
