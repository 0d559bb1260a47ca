//! Awaiting a future on a fiber.
//!
//! The waker sets a flag before it ends the fiber's wait, and the fiber checks the flag after each
//! poll and each wait, so no wake-up is lost. The flag is independent of the fiber's `park` token,
//! which stays for the program's own `unpark`. A late wake-up ends a later wait of the fiber, which
//! checks its own condition again; if the fiber or its runtime has ended, it has no effect
//! (**I9**).

use cringle_core::cancelled;
use cringle_core::fiber::Wait;
use cringle_core::waker::{Waker, park_thread_until};
use cringle_core::worker::{Current, fairness};
use std::future::IntoFuture;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};

/// Awaits a future. Only the calling fiber waits; outside of a fiber, the calling thread does. For
/// futures of async crates: channels, the submissions of `block::BlockIo`, a request that another
/// runtime performs. May suspend the calling fiber.
///
/// The future may borrow and need not be `Send`. It is polled on the fiber's stack, and may call
/// functions that wait, including another `block_on`. It does not get a runtime: tokio's sockets
/// and timers need tokio, so let that perform them (`fiber::block_on(handle.spawn(future))`). Do
/// not hold a guard that marks the *thread* as being in a runtime (tokio's `Handle::enter`) across
/// a wait of a fiber.
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
/// If the future panics, with its payload. tokio's sockets and timers panic with "there is no
/// reactor running, must be called from the context of a Tokio 1.x runtime" (as they do on any
/// thread without one): spawn the future on a runtime, and await its handle, as above. Spawn it as
/// `async { … }` that *makes* the socket or timer; `handle.spawn(tokio::time::sleep(limit))` makes
/// it here, and panics too.
///
/// # Cancellation
///
/// A cancelled fiber unwinds where it would wait, and drops the future, which is how futures are
/// cancelled. The value of a future that is ready is returned.
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let value = poll_to_the_end(pin!(future.into_future()), cfg!(panic = "unwind"));
    value.unwrap_or_else(|| {
        cancelled::unwind();
        unreachable!("where panics abort, a cancel does not end this wait")
    })
}

/// Like [`block_on`], but returns an error if the calling fiber is cancelled.
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
/// If the fiber was cancelled before the future was ready: see
/// [`cancel::reason`](crate::cancel::reason).
pub fn block_on_cancellable<F: IntoFuture>(future: F) -> io::Result<F::Output> {
    let value = poll_to_the_end(pin!(future.into_future()), true);
    value.ok_or_else(|| {
        // Count the refusal last: it may unwind, which drops the future.
        super::is_refused();
        super::refusal()
    })
}

/// Returns the future's value, or `None` if the fiber is cancelled where it would wait. A cancelled
/// fiber polls the future once more: a value that is ready wins.
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
    Current::get().is_some_and(|current| current.is_interrupted())
}

/// Whether the future was woken, and the waker of its fiber or thread.
struct Signal {
    woken: AtomicBool,
    waiter: Waker,
}

impl Signal {
    fn new() -> Signal {
        let waiter = match Current::get() {
            Some(current) => current.waker(),
            None => Waker::Thread(std::thread::current()),
        };
        Signal { woken: AtomicBool::new(false), waiter }
    }

    /// Returns whether the future was woken, and resets the flag. The waking caller's earlier
    /// writes happen before the next poll.
    fn was_woken(&self) -> bool {
        self.woken.swap(false, Ordering::Acquire)
    }

    /// Waits until the future was woken, or the fiber is cancelled.
    fn wait(&self, interruptible: bool) {
        let Some(current) = Current::get() else {
            return park_thread_until(|| self.was_woken());
        };
        if self.was_woken() {
            // The future woke itself: let the other fibers run.
            return current.yield_now();
        }
        let is_interrupted = || interruptible && current.is_interrupted();
        while !self.was_woken() && !is_interrupted() {
            current.suspend(Wait::Future);
        }
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
