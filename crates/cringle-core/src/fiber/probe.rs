//! Questions that a suspended fiber answers on its own stack.
//!
//! A backtrace, and a walk over frames, can be taken only on the stack itself. So the worker
//! resumes the fiber with a *probe*. The fiber wakes up within [`Fiber::switch_out`], answers and
//! suspends itself again: its wait is not over (**I1**).

use super::Fiber;
use corosensei::CoroutineResult;
use cringle_sys::{self as sys, plainly};
use cringle_tls::Switch;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};

/// The stack that a backtrace may take.
const BACKTRACE_BYTES: usize = 32 << 10;

/// A question to a suspended fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Backtrace,
    Unwinding,
    GivePagesBack,
}

/// A fiber's part in probes.
#[derive(Default)]
pub(super) struct Probes {
    /// The answer to the last one.
    answer: RefCell<Answer>,
    /// The fiber's `since_ns` when it last gave pages of its stack back.
    trimmed_ns: Cell<u64>,
}

#[derive(Default)]
enum Answer {
    #[default]
    None,
    Backtrace(Backtrace),
    Unwinding(bool),
}

impl Fiber {
    /// Switches to the scheduler, and answers probes until the fiber is resumed to continue.
    #[inline(always)]
    pub(crate) fn switch_out(&self) {
        self.switch();
        while let Some(probe) = self.probed.get() {
            self.answer(probe);
            self.switch();
        }
    }

    /// Is called on the fiber's own stack, which is as it was when the fiber was suspended.
    #[cold]
    #[inline(never)]
    fn answer(&self, probe: Probe) {
        // The fiber's code has not asked for the system calls of an answer.
        let errno = sys::errno();
        let answer = match probe {
            Probe::Backtrace if self.stack().bytes_left() < BACKTRACE_BYTES => Answer::None,
            Probe::Backtrace => Answer::Backtrace(plainly(Backtrace::force_capture)),
            Probe::Unwinding => Answer::Unwinding(self.frames_unwind()),
            Probe::GivePagesBack => {
                self.stack().give_back_below_caller();
                Answer::None
            }
        };
        *self.cold.probes.answer.borrow_mut() = answer;
        sys::set_errno(errno);
    }

    /// Returns the backtrace of a suspended fiber; `None` if its stack has no room for that.
    pub(crate) fn ask_backtrace(&self) -> Option<Backtrace> {
        match self.probe(Probe::Backtrace) {
            Answer::Backtrace(backtrace) => Some(backtrace),
            _ => None,
        }
    }

    /// Whether a suspended fiber unwinds; `None` if it has not begun.
    pub(crate) fn ask_unwinding(&self) -> Option<bool> {
        match self.probe(Probe::Unwinding) {
            Answer::Unwinding(unwinds) => Some(unwinds),
            _ => None,
        }
    }

    /// Makes a suspended fiber give back the pages of its stack that no frame uses.
    pub(crate) fn ask_to_give_pages_back(&self) {
        self.probe(Probe::GivePagesBack);
    }

    /// When the wait began in which the fiber last gave pages back.
    pub(crate) fn trimmed_ns(&self) -> u64 {
        self.cold.probes.trimmed_ns.get()
    }

    pub(crate) fn set_trimmed_ns(&self, ns: u64) {
        self.cold.probes.trimmed_ns.set(ns);
    }

    /// Resumes a suspended fiber to answer. Only code of this module runs on its stack. A fiber
    /// that has not begun does not answer, because it would begin. The running fiber must not be
    /// probed.
    #[inline(never)]
    fn probe(&self, probe: Probe) -> Answer {
        if self.yielder.get().is_null() {
            return Answer::None;
        }
        self.probed.set(Some(probe));
        let result = {
            let mut switch = Switch::begin();
            // SAFETY: I3, I14. The fiber has begun and does not run, so it is suspended, in
            // `switch_out`. The switch ends at once.
            unsafe { self.switch_in(&mut switch) }
        };
        self.probed.set(None);
        debug_assert!(!matches!(result, Some(CoroutineResult::Return(()))), "I1: it waits on");
        std::mem::take(&mut *self.cold.probes.answer.borrow_mut())
    }
}
