//! The switches to a fiber's stack and thread-locals, and back to the scheduler's.

use super::{Fiber, RunState};
use crate::stack::Stack;
use corosensei::CoroutineResult;
use cringle_tls::Switch;

impl Fiber {
    /// Runs the fiber until it suspends. Returns whether it has ended.
    ///
    /// # Safety
    ///
    /// I14: until the end of `switch`, the caller touches no thread-local.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self, switch: &mut Switch) -> bool {
        debug_assert_eq!(self.state.get(), RunState::Runnable, "I3");
        // SAFETY: I14, by the contract.
        match unsafe { self.switch_in(switch) } {
            Some(CoroutineResult::Yield(())) => false,
            Some(CoroutineResult::Return(())) => true,
            None => unreachable!("a started fiber"),
        }
    }

    /// Switches to the fiber's thread-locals and stack, and back to the caller's stack when it
    /// suspends. `None` if it has not started.
    ///
    /// # Safety
    ///
    /// As for [`resume`](Self::resume).
    #[inline(always)]
    pub(super) unsafe fn switch_in(&self, switch: &mut Switch) -> Option<CoroutineResult<(), ()>> {
        // SAFETY: I3. Only the scheduler takes this reference, and not twice: it does not run now.
        let body = unsafe { &mut *self.coroutine.get() }.as_mut()?;
        // SAFETY: I14. `resume` switches stacks, and touches no thread-local on this one. The rest
        // is the caller's contract.
        unsafe { switch.point_to(self.thread_pointer.get()) };
        let result = body.resume(());
        switch.check();
        Some(result)
    }

    /// Runs the fiber on a thread of its own until it suspends itself.
    ///
    /// # Safety
    ///
    /// As for [`resume`](Self::resume); and its worker has lent the fiber to the caller (I3).
    #[inline(always)]
    pub(crate) unsafe fn run_on_host(&self, switch: &mut Switch) {
        // SAFETY: I3, I14, by the contract.
        unsafe { self.switch_in(switch) };
    }

    /// Switches from its worker to a thread of its own, or back. No probe comes in between.
    pub(crate) fn switch_to_host(&self) {
        self.switch();
    }

    /// Takes the stack of a fiber that has ended.
    pub(crate) fn take_stack(&self) -> Stack {
        // SAFETY: I3. As in `switch_in`.
        let coroutine = unsafe { &mut *self.coroutine.get() }.take();
        coroutine.expect("a fiber that has ended").into_stack()
    }

    /// Switches to the scheduler, and returns when the fiber is resumed.
    #[inline(always)]
    pub(super) fn switch(&self) {
        // SAFETY: I3. The yielder lies on this fiber's stack for as long as the fiber lives, and
        // the caller runs on that stack.
        unsafe { (*self.yielder.get()).suspend(()) };
    }
}
