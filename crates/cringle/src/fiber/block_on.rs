//! Awaiting a future on a fiber.
//!
//! The waker says that it was woken before it ends the fiber's wait, and the fiber asks that after each
//! poll and each wait, so no wake-up is lost. It has nothing to do with the fiber's `park` token, which
//! stays for whom it was meant. A waker that is woken late ends some later wait of the fiber, which looks
//! again; or finds that the fiber, or its runtime, has gone, and does nothing (**I9**).

use crate::runtime::cancelled;
use crate::runtime::fiber::Wait;
use crate::runtime::waker::Waker;
use crate::runtime::worker::{Worker, fairness};
use std::future::IntoFuture;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};

/// Awaits a future; only the calling fiber waits. For what async crates offer: channels, the submissions
/// of [`BlockIo`](crate::block::BlockIo), a request that another runtime performs. Outside of a fiber the
/// thread waits.
/// May suspend the calling fiber.
///
/// The future may borrow and need not be `Send`; it is polled on the fiber's stack, where it may call
/// whatever waits, another `block_on` included. It gets no runtime by this: sockets and timers of tokio
/// want tokio's, so have that perform them (`fiber::block_on(handle.spawn(future))`). Do not hold what
/// marks the *thread* as being in a runtime (tokio's `Handle::enter`) over a wait of a fiber.
///
/// ```
/// use cringle::fiber;
/// use std::future::poll_fn;
/// use std::task::Poll;
///
/// cringle::run(|| {
///     let mut polls = 0;
///     let text = String::from("borrowed");
///     let length = fiber::block_on(async {
///         poll_fn(|context| {
///             polls += 1;
///             let waker = context.waker().clone();
///             std::thread::spawn(move || waker.wake());
///             if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
///         })
///         .await;
///         text.len()
///     });
///     assert_eq!((polls >= 3, length), (true, 8));
/// });
/// ```
///
/// # Panics
///
/// With the future's panic.
///
/// # Cancellation
///
/// A cancelled fiber unwinds where it would wait; the future is dropped, which is how futures are
/// cancelled. One that is ready is returned all the same.
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let value = poll_to_the_end(pin!(future.into_future()), cfg!(panic = "unwind"));
    value.unwrap_or_else(|| {
        cancelled::unwind();
        unreachable!("where panics abort such a wait is not interrupted")
    })
}

/// Like [`block_on`], and returns an error where that unwinds.
/// May suspend the calling fiber.
///
/// ```
/// use cringle::{cancel, fiber, time};
/// use std::time::Duration;
///
/// cringle::run(|| {
///     let limit = Duration::from_millis(1);
///     let never = std::future::pending::<()>;
///     let error = time::timeout(limit, || fiber::block_on_cancellable(never())).unwrap_err();
///     assert!(cancel::reason(&error).is_some());
/// });
/// ```
///
/// # Errors
///
/// The fiber was cancelled before the future was ready: see [`cancel::reason`](crate::cancel::reason).
pub fn block_on_cancellable<F: IntoFuture>(future: F) -> io::Result<F::Output> {
    let value = poll_to_the_end(pin!(future.into_future()), true);
    value.ok_or_else(|| {
        // Counted only now: it may unwind, and the future is dropped then.
        super::is_refused();
        super::refusal()
    })
}

/// The future's value; `None` if the fiber is cancelled where it would wait. One that was woken too is
/// polled once more: what is ready wins.
fn poll_to_the_end<F: Future + ?Sized>(
    mut future: Pin<&mut F>,
    interruptible: bool,
) -> Option<F::Output> {
    fairness::spend();
    let signal = Arc::new(Signal::new());
    let waker = std::task::Waker::from(Arc::clone(&signal));
    let mut context = Context::from_waker(&waker);
    loop {
        let is_last = interruptible && is_interrupted();
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending if is_last => return None,
            Poll::Pending => signal.wait(interruptible),
        }
    }
}

fn is_interrupted() -> bool {
    Worker::current().is_some_and(|(worker, fiber)| worker.is_interrupted(fiber))
}

/// Whether the future was woken, and how its fiber or thread is.
struct Signal {
    woken: AtomicBool,
    waiter: Waker,
}

impl Signal {
    fn new() -> Signal {
        let waiter = match Worker::current() {
            Some((worker, fiber)) => worker.waker(fiber),
            None => Waker::Thread(std::thread::current()),
        };
        Signal { woken: AtomicBool::new(false), waiter }
    }

    /// What came before the wake happens before the poll that follows.
    fn was_woken(&self) -> bool {
        self.woken.swap(false, Ordering::Acquire)
    }

    /// Waits until the future was woken, or the fiber is cancelled.
    fn wait(&self, interruptible: bool) {
        let Some((worker, fiber)) = Worker::current() else { return self.wait_on_thread() };
        if self.was_woken() {
            // It woke itself: the others have their turn.
            return worker.yield_now(fiber);
        }
        let goes_on = || !interruptible || !worker.is_interrupted(fiber);
        while !self.was_woken() && goes_on() {
            worker.suspend(fiber, Wait::Future);
        }
    }

    fn wait_on_thread(&self) {
        while !self.was_woken() {
            std::thread::park();
        }
        // It may have taken a token that was meant for a `park` of the thread's own.
        std::thread::current().unpark();
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.waiter.wake();
        }
    }
}
