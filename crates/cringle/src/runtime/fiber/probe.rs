//! How a fiber is suspended, and how it is asked something on its own stack while it is.

use super::Fiber;
use std::backtrace::Backtrace;

/// Stack that a backtrace takes, and more.
const BACKTRACE_BYTES: usize = 32 << 10;

/// What a suspended fiber can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Backtrace,
    Unwinding,
}

#[derive(Default)]
pub(super) enum Answer {
    #[default]
    None,
    Backtrace(Backtrace),
    Unwinding(bool),
}

impl Fiber {
    /// Switches to the scheduler. Whenever the fiber is [probed](Self::probe) meanwhile, it answers and stays
    /// suspended.
    #[inline(always)]
    pub(in crate::runtime) fn switch_out(&self) {
        self.switch();
        while let Some(probe) = self.probed.get() {
            self.tell(probe);
            self.switch();
        }
    }

    #[inline(always)]
    fn switch(&self) {
        // SAFETY: I3. The yielder lies on this fiber's stack for as long as it lives, and the
        // caller runs on that stack.
        unsafe { (*self.yielder.get()).suspend(()) };
    }

    /// On the fiber's own stack, which is as it was when it was suspended.
    #[cold]
    #[inline(never)]
    fn tell(&self, probe: Probe) {
        let answer = match probe {
            Probe::Backtrace if self.stack().bytes_left() < BACKTRACE_BYTES => Answer::None,
            Probe::Backtrace => Answer::Backtrace(Backtrace::force_capture()),
            Probe::Unwinding => Answer::Unwinding(self.frames_unwind()),
        };
        *self.cold.answer.borrow_mut() = answer;
    }

    /// Where the suspended fiber is; `None` where there is no room on its stack.
    pub(in crate::runtime) fn ask_backtrace(&self) -> Option<Backtrace> {
        match self.probe(Probe::Backtrace) {
            Answer::Backtrace(backtrace) => Some(backtrace),
            _ => None,
        }
    }

    /// Whether the suspended fiber unwinds.
    pub(in crate::runtime) fn ask_frames(&self) -> Option<bool> {
        match self.probe(Probe::Unwinding) {
            Answer::Unwinding(unwinds) => Some(unwinds),
            _ => None,
        }
    }

    /// Resumes a suspended fiber to answer on its own stack. Only this module's code runs there, which
    /// suspends it again: what it waits for does not go on (**I1**). No answer from one that has not begun, and
    /// would begin. It must not be the one that runs.
    fn probe(&self, probe: Probe) -> Answer {
        if self.yielder.get().is_null() {
            return Answer::None;
        }
        // SAFETY: I3. As in `resume`; it has begun and does not run, so it is suspended, in `switch_out`.
        let Some(body) = unsafe { &mut *self.coroutine.get() }.as_mut() else {
            return Answer::None;
        };
        self.probed.set(Some(probe));
        let result = body.resume(());
        self.probed.set(None);
        debug_assert!(matches!(result, corosensei::CoroutineResult::Yield(())));
        std::mem::take(&mut *self.cold.answer.borrow_mut())
    }
}
