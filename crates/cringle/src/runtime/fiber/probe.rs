//! How a fiber is suspended, and how it is asked where that was.

use super::Fiber;
use std::backtrace::Backtrace;

/// Stack that a backtrace takes, and more.
const BACKTRACE_BYTES: usize = 32 << 10;

impl Fiber {
    /// Switches to the scheduler. Whenever the fiber is [probed](Self::probe) meanwhile, it says where it is
    /// and stays suspended.
    #[inline(always)]
    pub(in crate::runtime) fn switch_out(&self) {
        self.switch();
        while self.probed.get() {
            self.tell_backtrace();
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
    fn tell_backtrace(&self) {
        let here = 0u8;
        let (guard, bytes) = self.cold.stack.get();
        let left =
            (&raw const here as usize).saturating_sub(guard + crate::runtime::stack::GUARD_BYTES);
        debug_assert!(left <= bytes + (1 << 12), "it runs on its own stack");
        if left >= BACKTRACE_BYTES {
            *self.cold.backtrace.borrow_mut() = Some(Backtrace::force_capture());
        }
    }

    /// Where the suspended fiber is. It runs for that, on its own stack, but only this module's code,
    /// which suspends it again: what it waits for does not go on (**I1**). `None` where there is no room
    /// on its stack, and for one that has not begun, and would begin. It must not be the one that runs.
    pub(in crate::runtime) fn probe(&self) -> Option<Backtrace> {
        if self.yielder.get().is_null() {
            return None;
        }
        // SAFETY: I3. As in `resume`; it has begun and does not run, so it is suspended, in `switch_out`.
        let body = unsafe { &mut *self.coroutine.get() }.as_mut()?;
        self.probed.set(true);
        let result = body.resume(());
        self.probed.set(false);
        debug_assert!(matches!(result, corosensei::CoroutineResult::Yield(())));
        self.cold.backtrace.borrow_mut().take()
    }
}
