//! Waiting for nothing in particular: yielding, sleeping, parking.

use crate::runtime::fiber::{FiberRef, Wait};
use crate::runtime::worker::{Here, Worker};
use crate::runtime::{cancelled, now};
use std::io;
use std::time::{Duration, Instant};

/// Lets every other ready fiber of this worker run once, and the kernel be looked at. Outside of a
/// fiber: `std::thread::yield_now`.
/// May suspend the calling fiber.
///
/// # Cancellation
///
/// A cancelled fiber unwinds here.
#[inline(always)]
pub fn yield_now() {
    let Some((worker, fiber)) = Worker::current() else { return std::thread::yield_now() };
    worker.interrupt_if_cancelled(fiber);
    worker.yield_now(fiber);
}

/// Like [`yield_now`], and returns an error where that unwinds.
/// May suspend the calling fiber.
///
/// # Errors
///
/// The fiber is cancelled: see [`cancel::reason`](crate::cancel::reason).
pub fn yield_now_cancellable() -> io::Result<()> {
    match Worker::current() {
        Some((worker, fiber)) => {
            check(worker, fiber)?;
            worker.yield_now(fiber);
        }
        None => std::thread::yield_now(),
    }
    Ok(())
}

/// Refuses a wait of a cancelled fiber.
fn check(worker: Here, fiber: FiberRef) -> io::Result<()> {
    match worker.refuses(fiber) {
        true => Err(fiber.cancel_error()),
        false => Ok(()),
    }
}

/// Waits for at least this long; only the calling fiber does. Outside of a fiber:
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
    // A time that no clock can show is for ever.
    sleep_till(now().checked_add(duration));
}

/// Like [`sleep`], and returns an error where that unwinds.
/// May suspend the calling fiber.
///
/// # Errors
///
/// The fiber was cancelled before the time was up: see [`cancel::reason`](crate::cancel::reason).
pub fn sleep_cancellable(duration: Duration) -> io::Result<()> {
    sleep_till_cancellable(now().checked_add(duration))
}

/// Waits until then; unwinds if the fiber is cancelled. Where panics abort, a cancelled fiber sleeps on.
pub(crate) fn sleep_till(deadline: Option<Instant>) {
    let interrupted = |worker: Here, fiber| cfg!(panic = "unwind") && worker.is_interrupted(fiber);
    if sleep_till_unless(deadline, interrupted) {
        cancelled::unwind();
    }
}

pub(crate) fn sleep_till_cancellable(deadline: Option<Instant>) -> io::Result<()> {
    match sleep_till_unless(deadline, |worker, fiber| worker.refuses(fiber)) {
        true => Err(super::refusal()),
        false => Ok(()),
    }
}

/// Waits until then, unless it is interrupted: whether it was.
fn sleep_till_unless(
    deadline: Option<Instant>,
    interrupted: impl Fn(Here, FiberRef) -> bool,
) -> bool {
    let Some((worker, fiber)) = Worker::current() else {
        sleep_thread(deadline);
        return false;
    };
    worker.spend(fiber);
    loop {
        if interrupted(worker, fiber) {
            return true;
        }
        if deadline.is_some_and(|at| now() >= at) {
            return false;
        }
        let timer = deadline.map(|at| worker.set_timer(at, fiber));
        worker.suspend(fiber, Wait::Sleep);
        timer.inspect(|&timer| worker.take_back_timer(timer));
    }
}

fn sleep_thread(deadline: Option<Instant>) {
    match deadline {
        Some(at) => std::thread::sleep(at.saturating_duration_since(now())),
        None => std::thread::sleep(Duration::MAX),
    }
}

/// Waits until the fiber's token is made available by [`Thread::unpark`](super::Thread::unpark),
/// and takes it. As with std's, it may also return for no reason. Outside of a fiber:
/// `std::thread::park`.
/// May suspend the calling fiber.
///
/// # Cancellation
///
/// A cancelled fiber unwinds here.
pub fn park() {
    match Worker::current() {
        Some((worker, fiber)) => park_until(worker, fiber, None),
        None => std::thread::park(),
    }
}

/// Like [`park`], and returns an error where that unwinds.
/// May suspend the calling fiber.
///
/// # Errors
///
/// The fiber was cancelled before its token came: see [`cancel::reason`](crate::cancel::reason).
pub fn park_cancellable() -> io::Result<()> {
    match Worker::current() {
        Some((worker, fiber)) => park_until_cancellable(worker, fiber, None),
        None => {
            std::thread::park();
            Ok(())
        }
    }
}

/// Like [`park`], and returns after this long at the latest.
/// May suspend the calling fiber.
///
/// # Cancellation
///
/// A cancelled fiber unwinds here.
pub fn park_timeout(duration: Duration) {
    match Worker::current() {
        Some((worker, fiber)) => {
            park_until(worker, fiber, now().checked_add(duration));
        }
        None => std::thread::park_timeout(duration),
    }
}

/// Like [`park_timeout`], and returns an error where that unwinds.
/// May suspend the calling fiber.
///
/// # Errors
///
/// The fiber was cancelled before its token came and before the time was up: see
/// [`cancel::reason`](crate::cancel::reason).
pub fn park_timeout_cancellable(duration: Duration) -> io::Result<()> {
    match Worker::current() {
        Some((worker, fiber)) => park_until_cancellable(worker, fiber, now().checked_add(duration)),
        None => {
            std::thread::park_timeout(duration);
            Ok(())
        }
    }
}

fn park_until(worker: Here, fiber: FiberRef, deadline: Option<Instant>) {
    worker.interrupt_if_cancelled(fiber);
    // A token that came in wins over a cancel that came late.
    if !park_once(worker, fiber, deadline) {
        worker.interrupt_if_cancelled(fiber);
    }
}

fn park_until_cancellable(
    worker: Here,
    fiber: FiberRef,
    deadline: Option<Instant>,
) -> io::Result<()> {
    check(worker, fiber)?;
    match park_once(worker, fiber, deadline) {
        true => Ok(()),
        false => check(worker, fiber),
    }
}

/// Waits for the token once: whether it came.
fn park_once(worker: Here, fiber: FiberRef, deadline: Option<Instant>) -> bool {
    worker.spend(fiber);
    let identity = fiber.meta().expect("a running fiber").identity();
    identity.set_home(|| worker.waker(fiber));
    if identity.take_token_or_park() {
        return true;
    }
    let timer = deadline.map(|at| worker.set_timer(at, fiber));
    worker.suspend(fiber, Wait::Park);
    timer.inspect(|&timer| worker.take_back_timer(timer));
    identity.unparked()
}
