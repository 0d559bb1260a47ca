//! Who calls: a fiber, or a thread outside of any; how it waits, is woken, and is told that it is
//! cancelled. All that `sync` needs of the runtime is here, and all that the models replace.

use crate::runtime::cancelled;
use crate::runtime::fiber::{FiberRef, Wait};
use crate::runtime::wait_target::{FiberTag, WaitTarget};
use crate::runtime::worker::{Here, Worker};
use std::io;
use std::time::{Duration, Instant};

#[cfg(not(loom))]
pub(super) use lent::{BorrowedWaker, Waker};
#[cfg(loom)]
pub(super) use modelled::{BorrowedWaker, Waker};

/// How a waiter is woken, without a count of its worker's mailbox: taking one and giving it back
/// would be a fifth of what a message between two fibers of a worker costs.
#[cfg(not(loom))]
mod lent {
    use crate::runtime::fiber::{FiberId, FiberRef};
    use crate::runtime::shared::MailBox;
    use crate::runtime::waker;
    use crate::runtime::worker::{Here, Worker};
    use std::sync::Arc;

    /// For the frame of one who waits; good for as long as it waits.
    pub(in crate::sync) enum BorrowedWaker {
        Fiber { home: *const Arc<MailBox>, id: FiberId },
        Thread(std::thread::Thread),
    }

    /// For the one who wakes; good for ever, but only on the thread that has it.
    pub(in crate::sync) enum Waker {
        /// A fiber of this thread's worker.
        Here(FiberId),
        There(waker::Waker),
    }

    impl BorrowedWaker {
        pub(super) fn new(caller: Option<(Here, FiberRef)>) -> BorrowedWaker {
            match caller {
                Some((worker, fiber)) => {
                    BorrowedWaker::Fiber { home: worker.mailbox(), id: fiber.id() }
                }
                None => BorrowedWaker::Thread(std::thread::current()),
            }
        }

        /// # Safety
        ///
        /// The one who lent it still waits.
        #[inline]
        pub(in crate::sync) unsafe fn upgrade(self) -> Waker {
            match self {
                BorrowedWaker::Fiber { home, id } => {
                    // SAFETY: I2. The fiber waits, and its worker outlives it.
                    let home = unsafe { &*home };
                    match Worker::here() {
                        Some(worker) if worker.lives_at(home) => Waker::Here(id),
                        _ => Waker::There(waker::Waker::Fiber { home: Arc::clone(home), id }),
                    }
                }
                BorrowedWaker::Thread(thread) => Waker::There(waker::Waker::Thread(thread)),
            }
        }
    }

    impl Waker {
        #[inline]
        pub(in crate::sync) fn wake(&self) {
            match self {
                Waker::Here(id) => Worker::here().expect("redeemed on a worker").wake(*id),
                Waker::There(waker) => waker.wake(),
            }
        }
    }
}

/// In the models a thread of loom's waits.
#[cfg(loom)]
mod modelled {
    pub(in crate::sync) struct BorrowedWaker(pub(super) loom::thread::Thread);
    pub(in crate::sync) struct Waker(loom::thread::Thread);

    impl BorrowedWaker {
        pub(in crate::sync) unsafe fn upgrade(self) -> Waker {
            Waker(self.0)
        }
    }

    impl Waker {
        pub(in crate::sync) fn wake(&self) {
            self.0.unpark();
        }
    }
}

/// The clock by which waits are limited.
pub(super) fn now() -> Instant {
    crate::runtime::now()
}

/// When a wait of this length ends; `None` is never: no clock can show it.
pub(super) fn deadline(timeout: Duration) -> Option<Instant> {
    now().checked_add(timeout)
}

/// See the module. Never leaves its thread.
#[derive(Clone, Copy)]
pub(super) struct Caller(Option<(Here, FiberRef)>);

/// What a wait may be ended by, other than what it waits for.
#[derive(Clone, Copy)]
pub(super) struct WaitOptions {
    wait: Wait,
    deadline: Option<Instant>,
    interruptible: bool,
}

impl WaitOptions {
    /// A cancel unwinds the fiber: not where panics abort.
    #[inline]
    pub(super) fn unwinding(wait: Wait) -> WaitOptions {
        WaitOptions { wait, deadline: None, interruptible: cfg!(panic = "unwind") }
    }

    /// A cancel is reported.
    #[inline]
    pub(super) fn fallible(wait: Wait) -> WaitOptions {
        WaitOptions { wait, deadline: None, interruptible: true }
    }

    pub(super) fn until(self, deadline: Option<Instant>) -> WaitOptions {
        WaitOptions { deadline, ..self }
    }

    /// Whether the caller is not to wait, nor to go on, because it is cancelled.
    #[inline]
    pub(super) fn refused(&self, caller: Caller) -> Option<WaitError> {
        (self.interruptible && caller.is_interrupted()).then_some(WaitError::Cancelled)
    }

    /// Why the caller is not to wait any longer, if so.
    #[inline]
    pub(super) fn exhausted(&self, caller: Caller) -> Option<WaitError> {
        self.refused(caller).or_else(|| self.is_late().then_some(WaitError::TimedOut))
    }

    /// Whether the time is up.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|at| now() >= at)
    }
}

/// Why a wait ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitError {
    Cancelled,
    TimedOut,
}

impl WaitError {
    /// What a cancel does where there is no room for an error; for waits without a limit.
    pub(super) fn unwind(self) -> ! {
        assert_eq!(self, WaitError::Cancelled, "a wait without a limit ended by its limit");
        cancelled::unwind();
        unreachable!("where panics abort such a wait is not interrupted");
    }

    /// What a twin returns. To be asked when the caller is in no queue any more: a refusal too many
    /// unwinds.
    #[cold]
    pub(super) fn into_io_error(self) -> io::Error {
        match self {
            WaitError::Cancelled => match Worker::current() {
                Some((worker, fiber)) => {
                    worker.refuses(fiber);
                    fiber.cancel_error()
                }
                None => unreachable!("only fibers are cancelled"),
            },
            WaitError::TimedOut => io::ErrorKind::TimedOut.into(),
        }
    }
}

impl Caller {
    #[inline]
    pub(super) fn current() -> Caller {
        Caller(Worker::current())
    }

    /// Whether a wait of the caller is to end because it is cancelled.
    #[inline]
    pub(super) fn is_interrupted(self) -> bool {
        self.0.is_some_and(|(worker, fiber)| worker.is_interrupted(fiber))
    }

    /// As others know it.
    #[inline]
    pub(super) fn tag(self) -> FiberTag {
        match self.0 {
            Some((_, fiber)) => fiber.tag(),
            None => FiberTag::THREAD,
        }
    }

    /// A call shaped to block begins: see [`fairness`](crate::runtime::worker::fairness).
    #[inline]
    pub(super) fn spend(self) {
        if let Some((worker, fiber)) = self.0 {
            worker.spend(fiber);
        }
    }

    /// A call that never waits is made.
    #[inline]
    pub(super) fn count(self) {
        if let Some((worker, fiber)) = self.0 {
            worker.count(fiber);
        }
    }

    /// A `try_…` call ends, with what it was for or without. No OS lock is held (**I6**).
    #[inline]
    pub(super) fn tried(self, succeeded: bool) {
        if let Some((worker, fiber)) = self.0 {
            worker.tried(fiber, succeeded);
        }
    }

    #[cfg(not(loom))]
    pub(super) fn lend_waker(self) -> BorrowedWaker {
        BorrowedWaker::new(self.0)
    }

    /// Waits once, until the deadline at most. May end for no reason.
    #[cfg(not(loom))]
    #[inline]
    pub(super) fn suspend(self, options: &WaitOptions, subject: &dyn WaitTarget) {
        match (self.0, options.deadline) {
            (Some((worker, fiber)), None) => worker.suspend_on(fiber, options.wait, subject),
            (Some((worker, fiber)), Some(at)) => {
                let timer = worker.set_timer(at, fiber);
                worker.suspend_on(fiber, options.wait, subject);
                worker.take_back_timer(timer);
            }
            (None, None) => std::thread::park(),
            (None, Some(at)) => std::thread::park_timeout(at.saturating_duration_since(now())),
        }
    }

    /// The wait is over. A thread may have taken a token in it that was meant for a `park` of its
    /// own: there is one again, and a park may end for no reason.
    #[cfg(not(loom))]
    pub(super) fn waited(self) {
        if self.0.is_none() {
            std::thread::current().unpark();
        }
    }

    #[cfg(loom)]
    pub(super) fn lend_waker(self) -> BorrowedWaker {
        BorrowedWaker(loom::thread::current())
    }

    #[cfg(loom)]
    pub(super) fn suspend(self, options: &WaitOptions, _subject: &dyn WaitTarget) {
        let _ = options.wait;
        loom::thread::park();
    }

    #[cfg(loom)]
    pub(super) fn waited(self) {}
}
