//! The fiber whose code the worker's thread runs now.

use crate::fiber::{FiberRef, RunState, Running, Wait};
use crate::unwinding::Unwinding;
use cringle_sys::plainly;
use std::backtrace::Backtrace;
use std::cell::Cell;

/// The fiber that the worker runs, and the fiber that foreign code is called beside.
#[derive(Default)]
pub(crate) struct Foreground {
    running: Running,
    beside: Cell<Option<FiberRef>>,
    /// A suspended fiber is resumed to answer a question about itself.
    is_probing: Cell<bool>,
}

/// The state before [`Foreground::step_aside`].
#[derive(Clone, Copy)]
pub(crate) struct Before {
    running: Option<FiberRef>,
    beside: Option<FiberRef>,
}

impl Foreground {
    /// The offset of the running fiber, for debuggers.
    pub(super) const RUNNING: usize = std::mem::offset_of!(Foreground, running);

    /// For the watchdog and the dump, by way of the worker's roster.
    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    /// The fiber that runs now. `None` while the worker itself runs, and while foreign code is
    /// called beside a fiber.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<FiberRef> {
        self.running.get()
    }

    #[inline(always)]
    pub(super) fn set(&self, fiber: Option<FiberRef>) {
        self.running.set(fiber);
    }

    /// The fiber whose name and locals the calling code has.
    #[inline]
    pub(super) fn identity(&self) -> Option<FiberRef> {
        self.running.get().or_else(|| self.beside.get())
    }

    /// Makes the caller's code run beside the current fiber: the fiber cannot be suspended, and
    /// calls are plain ones. [`step_back`](Self::step_back) ends it.
    pub(crate) fn step_aside(&self) -> Before {
        let before = Before { running: self.running.get(), beside: self.beside.get() };
        self.running.set(None);
        self.beside.set(before.running.or(before.beside));
        before
    }

    pub(crate) fn step_back(&self, before: Before) {
        debug_assert_eq!(self.running.get(), None, "I13: foreign code was called beside a fiber");
        self.running.set(before.running);
        self.beside.set(before.beside);
    }

    /// Resumes a suspended fiber to answer on its own stack. `None` if it cannot.
    pub(super) fn probe<R>(
        &self,
        fiber: FiberRef,
        ask: impl FnOnce(FiberRef) -> Option<R>,
    ) -> Option<R> {
        // Another thread runs it.
        if fiber.state() == RunState::Waiting(Wait::Thread) {
            return None;
        }
        // Within a backtrace the program's allocator may get here. The fiber beneath is not known
        // then.
        if self.is_probing.replace(true) {
            return None;
        }
        // Code that is called meanwhile is called by that fiber.
        let running = self.running.get();
        debug_assert_ne!(running, Some(fiber), "I3: only a suspended fiber is resumed");
        self.running.set(Some(fiber));
        let answer = ask(fiber);
        self.running.set(running);
        self.is_probing.set(false);
        answer
    }

    /// Whether a suspended fiber of this worker unwinds.
    pub(super) fn unwinds(&self, fiber: FiberRef) -> bool {
        fiber.unwinding() != Unwinding::No
            && self.probe(fiber, |fiber| fiber.ask_unwinding()).unwrap_or(true)
    }

    /// The backtrace of a fiber of this worker.
    pub(crate) fn backtrace_of(&self, fiber: FiberRef) -> Option<Backtrace> {
        if self.running.get() == Some(fiber) {
            return Some(plainly(Backtrace::force_capture));
        }
        self.probe(fiber, |fiber| fiber.ask_backtrace())
    }
}
