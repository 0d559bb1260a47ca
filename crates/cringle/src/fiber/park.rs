//! Waiting for nothing in particular: yielding, sleeping, parking.

use crate::runtime::fiber::Wait;
use crate::runtime::worker::Worker;
use std::time::{Duration, Instant};

/// Lets every other ready fiber of this worker run once, and the kernel be looked at. Outside of a
/// fiber: `std::thread::yield_now`.
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

/// Waits for at least this long; only the calling fiber does. Outside of a fiber:
/// `std::thread::sleep`.
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
    let Some((worker, fiber)) = Worker::current() else { return std::thread::sleep(duration) };
    // A time that no clock can show is for ever.
    let deadline = worker.now().checked_add(duration);
    loop {
        worker.interrupt_if_cancelled(fiber);
        if deadline.is_some_and(|at| worker.now() >= at) {
            return;
        }
        let timer = deadline.map(|at| worker.set_timer(at, fiber));
        worker.suspend(fiber, Wait::Sleep);
        timer.inspect(|&timer| worker.take_back_timer(timer));
    }
}

/// Waits until the fiber's token is made available by [`Thread::unpark`](super::Thread::unpark),
/// and takes it. As with std's, it may also return for no reason. Outside of a fiber:
/// `std::thread::park`.
///
/// # Cancellation
///
/// A cancelled fiber unwinds here.
pub fn park() {
    match Worker::current() {
        Some(_) => park_until(None),
        None => std::thread::park(),
    }
}

/// Like [`park`], and returns after this long at the latest.
///
/// # Cancellation
///
/// A cancelled fiber unwinds here.
pub fn park_timeout(duration: Duration) {
    match Worker::current() {
        Some((worker, _)) => park_until(worker.now().checked_add(duration)),
        None => std::thread::park_timeout(duration),
    }
}

fn park_until(deadline: Option<Instant>) {
    let (worker, fiber) = Worker::current().expect("asked before");
    worker.interrupt_if_cancelled(fiber);
    let identity = fiber.meta().expect("a running fiber").identity();
    identity.set_home(|| worker.waker(fiber));
    if identity.take_token_or_park() {
        return;
    }
    let timer = deadline.map(|at| worker.set_timer(at, fiber));
    worker.suspend(fiber, Wait::Park);
    timer.inspect(|&timer| worker.take_back_timer(timer));
    // A token that came in wins over a cancel that came late.
    if !identity.unparked() {
        worker.interrupt_if_cancelled(fiber);
    }
}
