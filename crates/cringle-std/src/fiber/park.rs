//! Waits without an object: yielding, sleeping, parking.

use cringle_core::fiber::Wait;
use cringle_core::worker::Current;
use cringle_core::{cancelled, now};
use std::io;
use std::time::{Duration, Instant};

/// Lets every other ready fiber of this worker run once, and completions be processed. Outside of a
/// fiber: `std::thread::yield_now`.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::fiber;
/// use std::cell::Cell;
///
/// cringle::run(|| {
///     let ready = Cell::new(false);
///     fiber::scope(|s| {
///         s.spawn_local(|| ready.set(true));
///         while !ready.get() {
///             fiber::yield_now();
///         }
///     });
/// });
/// ```
///
/// # Cancellation
///
/// A cancelled fiber unwinds here.
#[inline(always)]
pub fn yield_now() {
    let Some(current) = Current::get() else { return std::thread::yield_now() };
    current.interrupt_if_cancelled();
    current.yield_now();
}

/// Like [`yield_now`], but returns an error if the calling fiber is cancelled.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         assert!(fiber::yield_now_cancellable().is_ok());
///         s.cancel();
///         assert!(fiber::yield_now_cancellable().is_err());
///     });
/// });
/// ```
///
/// # Errors
///
/// If the fiber is cancelled: see [`cancel::reason`](crate::cancel::reason).
pub fn yield_now_cancellable() -> io::Result<()> {
    match Current::get() {
        Some(current) => {
            check(current)?;
            current.yield_now();
        }
        None => std::thread::yield_now(),
    }
    Ok(())
}

/// Returns an error if the fiber is cancelled.
fn check(current: Current) -> io::Result<()> {
    current.admit()
}

/// Sleeps for at least `duration`. Only the calling fiber waits. Outside of a fiber:
/// `std::thread::sleep`.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::fiber;
/// use std::time::{Duration, Instant};
///
/// cringle::run(|| {
///     let start = Instant::now();
///     fiber::sleep(Duration::from_millis(5));
///     assert!(start.elapsed() >= Duration::from_millis(5));
/// });
/// ```
///
/// # Cancellation
///
/// A cancelled fiber unwinds here.
pub fn sleep(duration: Duration) {
    // A deadline that no `Instant` can represent is never reached.
    sleep_till(now().checked_add(duration));
}

/// Like [`sleep`], but returns an error if the calling fiber is cancelled.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::fiber;
/// use std::time::Duration;
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         s.cancel();
///         assert!(fiber::sleep_cancellable(Duration::from_secs(3600)).is_err());
///     });
/// });
/// ```
///
/// # Errors
///
/// If the fiber was cancelled before the time had passed: see
/// [`cancel::reason`](crate::cancel::reason).
pub fn sleep_cancellable(duration: Duration) -> io::Result<()> {
    sleep_till_cancellable(now().checked_add(duration))
}

/// Sleeps until `deadline`. Unwinds if the fiber is cancelled; where panics abort, it sleeps on.
pub(crate) fn sleep_till(deadline: Option<Instant>) {
    let interrupted = |current: Current| cfg!(panic = "unwind") && current.is_interrupted();
    if sleep_till_unless(deadline, interrupted) {
        cancelled::unwind();
    }
}

/// Sleeps until a time, for ever without one. Fails if the fiber is cancelled, before or meanwhile.
pub fn sleep_till_cancellable(deadline: Option<Instant>) -> io::Result<()> {
    if sleep_till_unless(deadline, Current::refuses) {
        return Err(super::refusal());
    }
    Ok(())
}

/// Sleeps until `deadline`, or until `interrupted` returns true. Returns whether it did.
fn sleep_till_unless(deadline: Option<Instant>, interrupted: impl Fn(Current) -> bool) -> bool {
    let Some(current) = Current::get() else {
        sleep_thread(deadline);
        return false;
    };
    current.spend();
    loop {
        if interrupted(current) {
            return true;
        }
        if deadline.is_some_and(|at| now() >= at) {
            return false;
        }
        current.suspend_until(Wait::Sleep, deadline);
    }
}

fn sleep_thread(deadline: Option<Instant>) {
    match deadline {
        Some(at) => std::thread::sleep(at.saturating_duration_since(now())),
        None => std::thread::sleep(Duration::MAX),
    }
}

/// Waits until [`Thread::unpark`](super::Thread::unpark) makes the fiber's token available, and
/// consumes the token. As std's, it may also wake spuriously. Outside of a fiber:
/// `std::thread::park`.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let main = fiber::current();
///     fiber::spawn(move || main.unpark());
///     fiber::park();
/// });
/// ```
///
/// # Cancellation
///
/// A cancelled fiber unwinds here.
pub fn park() {
    match Current::get() {
        Some(current) => park_until(current, None),
        None => std::thread::park(),
    }
}

/// Like [`park`], but returns an error if the calling fiber is cancelled.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         s.cancel();
///         assert!(fiber::park_cancellable().is_err());
///     });
/// });
/// ```
///
/// # Errors
///
/// If the fiber was cancelled before its token was available: see
/// [`cancel::reason`](crate::cancel::reason).
pub fn park_cancellable() -> io::Result<()> {
    match Current::get() {
        Some(current) => park_until_cancellable(current, None),
        None => {
            std::thread::park();
            Ok(())
        }
    }
}

/// Like [`park`], but waits at most `duration`.
/// May suspend the calling fiber.
///
/// # Cancellation
///
/// A cancelled fiber unwinds here.
pub fn park_timeout(duration: Duration) {
    match Current::get() {
        Some(current) => {
            park_until(current, now().checked_add(duration));
        }
        None => std::thread::park_timeout(duration),
    }
}

/// Like [`park_timeout`], but returns an error if the calling fiber is cancelled.
/// May suspend the calling fiber.
///
/// ```
/// use std::time::Duration;
///
/// cringle::run(|| cringle::fiber::park_timeout_cancellable(Duration::from_millis(1)))?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// If the fiber was cancelled before its token was available and before the time had passed: see
/// [`cancel::reason`](crate::cancel::reason).
pub fn park_timeout_cancellable(duration: Duration) -> io::Result<()> {
    match Current::get() {
        Some(current) => park_until_cancellable(current, now().checked_add(duration)),
        None => {
            std::thread::park_timeout(duration);
            Ok(())
        }
    }
}

fn park_until(current: Current, deadline: Option<Instant>) {
    current.interrupt_if_cancelled();
    // An available token wins over a later cancel.
    if !park_once(current, deadline) {
        current.interrupt_if_cancelled();
    }
}

fn park_until_cancellable(current: Current, deadline: Option<Instant>) -> io::Result<()> {
    check(current)?;
    if park_once(current, deadline) { Ok(()) } else { check(current) }
}

/// Waits once for the token. Returns whether it consumed it.
fn park_once(current: Current, deadline: Option<Instant>) -> bool {
    current.spend();
    let identity = current.fiber.meta().expect("a running fiber").identity();
    let waker = || current.waker();
    if current.worker.moves.may_happen() {
        identity.set_host(current.worker.index(), waker);
    } else {
        identity.set_home(waker);
    }
    if identity.take_token_or_park() {
        return true;
    }
    current.suspend_until(Wait::Park, deadline);
    identity.unparked()
}
