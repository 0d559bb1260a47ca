//! The caller of a blocking call, a fiber or a plain thread: how it waits, is woken and is
//! cancelled. This module holds everything that `sync` needs of the runtime, and everything that
//! the loom models replace.

use cringle_core::cancelled;
use cringle_core::fiber::Wait;
use cringle_core::wait_target::{FiberTag, Target};
use cringle_core::worker::{Current, Worker};
use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

#[cfg(loom)]
pub(super) use modelled::{BorrowedWaker, Waker};
#[cfg(not(loom))]
pub(super) use wakers::{BorrowedWaker, Waker};

/// Wakers that borrow the mailbox of the waiter's worker. An owned reference count, taken and
/// released for every wait, would be a measurable part of a message between two fibers of a worker.
#[cfg(not(loom))]
mod wakers {
    use cringle_core::fiber::FiberId;
    use cringle_core::shared::MailBox;
    use cringle_core::waker;
    use cringle_core::worker::{Current, Worker};
    use std::sync::Arc;

    /// The waker in a waiter's frame, valid while the waiter waits.
    pub(in crate::sync) enum BorrowedWaker {
        Fiber { home: *const Arc<MailBox>, id: FiberId },
        Thread(std::thread::Thread),
    }

    /// The waker in the hands of the waking caller. It outlives the wait, and stays on its thread.
    pub(in crate::sync) enum Waker {
        /// A fiber that this thread's worker finds.
        Here(FiberId),
        Elsewhere(waker::Waker),
    }

    impl BorrowedWaker {
        pub(super) fn new(caller: Option<Current>) -> BorrowedWaker {
            match caller {
                Some(current) => {
                    BorrowedWaker::Fiber { home: current.worker.mailbox(), id: current.fiber.id() }
                }
                None => BorrowedWaker::Thread(std::thread::current()),
            }
        }

        /// Returns a waker that does not depend on the waiter's frame.
        ///
        /// # Safety
        ///
        /// The waiter that made this waker still waits.
        #[inline]
        pub(in crate::sync) unsafe fn upgrade(self) -> Waker {
            match self {
                BorrowedWaker::Fiber { home, id } => {
                    // SAFETY: I2. The fiber is suspended in its wait, and its worker outlives it.
                    let home = unsafe { &*home };
                    match Worker::here() {
                        Some(worker) if worker.table.reaches(home) => Waker::Here(id),
                        _ => Waker::Elsewhere(waker::Waker::Fiber { home: Arc::clone(home), id }),
                    }
                }
                BorrowedWaker::Thread(thread) => Waker::Elsewhere(waker::Waker::Thread(thread)),
            }
        }
    }

    impl Waker {
        #[inline]
        pub(in crate::sync) fn wake(&self) {
            match self {
                Waker::Here(id) => Worker::here().expect("upgraded on this worker").wake(*id),
                Waker::Elsewhere(waker) => waker.wake(),
            }
        }
    }
}

/// The same for the models, in which loom's threads wait.
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

/// Returns the current time of the clock that timeouts use.
pub(super) fn now() -> Instant {
    cringle_core::now()
}

/// Returns the end of a wait of this length, or `None` (never) if no `Instant` can represent it.
pub(super) fn deadline(timeout: Duration) -> Option<Instant> {
    now().checked_add(timeout)
}

/// The calling fiber, or the calling thread outside of any fiber. Never leaves its thread.
#[derive(Clone, Copy)]
pub(super) struct Caller(Option<Current>);

/// Identifies a fiber, or a thread outside of any fiber, for the life of the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallerId {
    Fiber(NonZeroU64),
    Thread(std::thread::ThreadId),
}

/// What a caller waits for, and what else ends the wait.
#[derive(Clone, Copy)]
pub(super) struct WaitOptions {
    wait: Wait,
    deadline: Option<Instant>,
    interruptible: bool,
}

impl WaitOptions {
    /// A wait that a cancel unwinds. Where panics abort, a cancel does not end it.
    #[inline]
    pub(super) fn unwinding(wait: Wait) -> WaitOptions {
        WaitOptions { wait, deadline: None, interruptible: cfg!(panic = "unwind") }
    }

    /// A wait that returns an error when the caller is cancelled.
    #[inline]
    pub(super) fn fallible(wait: Wait) -> WaitOptions {
        WaitOptions { wait, deadline: None, interruptible: true }
    }

    pub(super) fn until(self, deadline: Option<Instant>) -> WaitOptions {
        WaitOptions { deadline, ..self }
    }

    /// Returns an error if the caller is cancelled and so must not begin, or continue, this wait.
    #[inline]
    pub(super) fn refusal(&self, caller: Caller) -> Option<WaitError> {
        (self.interruptible && caller.is_interrupted()).then_some(WaitError::Cancelled)
    }

    /// Returns the reason to end the wait now, if there is one.
    #[inline]
    pub(super) fn expired(&self, caller: Caller) -> Option<WaitError> {
        self.refusal(caller).or_else(|| self.is_late().then_some(WaitError::TimedOut))
    }

    /// Returns whether the deadline has passed.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|at| now() >= at)
    }
}

/// Why a wait ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitError {
    Cancelled,
    TimedOut,
}

impl WaitError {
    /// Unwinds the cancelled caller of a wait that has no deadline and returns no error.
    pub(super) fn unwind(self) -> ! {
        assert_eq!(self, WaitError::Cancelled, "a wait without a deadline timed out");
        cancelled::unwind();
        unreachable!("where panics abort, a cancel does not end such a wait");
    }

    /// Returns the error of a `…_cancellable` call. The caller must be in no queue any more: after
    /// too many refusals this call unwinds.
    #[cold]
    pub(super) fn into_io_error(self) -> io::Error {
        match self {
            WaitError::Cancelled => match Current::get() {
                Some(current) => {
                    current.refuses();
                    current.fiber.cancel_error()
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
        Caller(Current::get())
    }

    /// Whether the caller is code beside a fiber, as a panic hook is, on the thread of a worker. If
    /// that code waited for a fiber of that worker, neither would continue.
    pub(super) fn is_beside_a_fiber(self) -> bool {
        self.0.is_none() && Worker::here().is_some()
    }

    /// Returns whether the caller is cancelled, so that its waits end.
    #[inline]
    pub(super) fn is_interrupted(self) -> bool {
        self.0.is_some_and(Current::is_interrupted)
    }

    /// Returns the tag by which dumps identify the caller.
    #[inline]
    pub(super) fn tag(self) -> FiberTag {
        match self.0 {
            Some(Current { fiber, .. }) => fiber.tag(),
            None => FiberTag::THREAD,
        }
    }

    /// Returns the identity of the code that runs, which may be foreign code called beside a fiber.
    pub(super) fn id() -> CallerId {
        match Current::identity().as_ref().and_then(|fiber| fiber.meta()) {
            Some(meta) => CallerId::Fiber(meta.identity().number()),
            None => CallerId::Thread(std::thread::current().id()),
        }
    }

    /// Charges a call shaped to block: see [`fairness`](cringle_core::worker::fairness).
    #[inline]
    pub(super) fn spend(self) {
        if let Some(current) = self.0 {
            current.spend();
        }
    }

    /// Counts a call that never waits.
    #[inline]
    pub(super) fn count(self) {
        if let Some(current) = self.0 {
            current.count();
        }
    }

    /// Counts the end of a `try_…` call. It may yield, so no OS lock is held here (**I6**).
    #[inline]
    pub(super) fn tried(self, succeeded: bool) {
        if let Some(current) = self.0 {
            current.tried(succeeded);
        }
    }

    #[cfg(not(loom))]
    pub(super) fn lend_waker(self) -> BorrowedWaker {
        BorrowedWaker::new(self.0)
    }

    /// Suspends the caller once, until the deadline at most. It may also return without a reason.
    #[cfg(not(loom))]
    #[inline]
    pub(super) fn suspend(self, options: &WaitOptions, subject: Target<'_>) {
        match (self.0, options.deadline) {
            (Some(current), None) => current.suspend_on(options.wait, subject),
            (Some(current), until) => {
                current.suspend_on_until(options.wait, subject, until);
            }
            (None, None) => std::thread::park(),
            (None, Some(at)) => std::thread::park_timeout(at.saturating_duration_since(now())),
        }
    }

    /// Ends a wait. On a plain thread, the wait may have consumed an `unpark` token that was meant
    /// for the program's own `park`, so it makes one available again: `park` may wake spuriously.
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
    pub(super) fn suspend(self, options: &WaitOptions, _subject: Target<'_>) {
        let _ = options.wait;
        loom::thread::park();
    }

    #[cfg(loom)]
    pub(super) fn waited(self) {}
}
