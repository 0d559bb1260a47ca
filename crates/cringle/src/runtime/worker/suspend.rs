//! How the running fiber suspends itself.
//!
//! A processor predicts a return by the call it remembers last. A switch of stacks pairs the
//! scheduler's call with the fiber's suspension, and every return from a function that was called
//! before the switch is mispredicted. So the code between a caller's own function and the switch is
//! inlined into one function (`inline(always)`), and rare code is kept out of it (`cold`).

use super::{Here, Worker};
use crate::runtime::fiber::{FiberRef, RunState, Wait};
use crate::runtime::hazards;
use crate::runtime::lent_frame::LentFrame;
use crate::runtime::timers::Alarm;
use crate::runtime::wait_target::Target;
use std::time::Instant;

impl Here {
    /// Suspends the running fiber until it is made ready.
    #[inline(always)]
    pub(crate) fn suspend(self, fiber: FiberRef, wait: Wait) {
        debug_assert_eq!(self.current.get(), Some(fiber), "only the running fiber suspends itself");
        fiber.set_state(RunState::Waiting(wait));
        self.events.suspended(fiber, wait);
        self.switch_out(fiber);
        crate::tracing_events::trace!(waited_for = wait.word(), "a fiber continues");
    }

    /// [`suspend`](Self::suspend) with a description of the object that the fiber waits for.
    #[inline(always)]
    pub(crate) fn suspend_on(self, fiber: FiberRef, wait: Wait, target: Target<'_>) {
        let lent = LentFrame::begin();
        // SAFETY: I2, I12. The caller lends the target until this returns, and it is taken back
        // below; nothing unwinds in between.
        unsafe { fiber.set_target(Some(target)) };
        self.suspend(fiber, wait);
        // SAFETY: the contract asks nothing of a call that takes back.
        unsafe { fiber.set_target(None) };
        lent.end();
    }

    /// [`suspend`](Self::suspend) until this time at most.
    pub(crate) fn suspend_until(self, fiber: FiberRef, wait: Wait, until: Option<Instant>) {
        self.set_wait_alarm(fiber, until);
        self.suspend(fiber, wait);
        self.take_back_wait_alarm(fiber);
    }

    /// [`suspend_on`](Self::suspend_on) until this time at most.
    #[cfg_attr(loom, allow(dead_code, reason = "for the callers that the models replace"))]
    pub(crate) fn suspend_on_until(
        self,
        fiber: FiberRef,
        wait: Wait,
        target: Target<'_>,
        until: Option<Instant>,
    ) {
        self.set_wait_alarm(fiber, until);
        self.suspend_on(fiber, wait, target);
        self.take_back_wait_alarm(fiber);
    }

    fn set_wait_alarm(self, fiber: FiberRef, until: Option<Instant>) {
        if let Some(at) = until {
            fiber.set_wait_alarm(self.set_alarm(at, Alarm::Wake(fiber)));
        }
    }

    /// [`suspend_on`](Self::suspend_on) for a wait that only the end of other fibers of this
    /// runtime ends.
    pub(crate) fn suspend_for_fibers(self, fiber: FiberRef, wait: Wait, target: Target<'_>) {
        self.admission.begin_wait_for_fibers();
        fiber.set_waits_for_fibers(true);
        self.suspend_on(fiber, wait, target);
        fiber.set_waits_for_fibers(false);
        self.admission.end_wait_for_fibers();
    }

    /// Lets the other ready fibers run, and the worker look at the kernel.
    #[inline(always)]
    pub(crate) fn yield_now(self, fiber: FiberRef) {
        self.events.yielded();
        self.schedule.ready().push(fiber);
        self.switch_out(fiber);
    }

    /// Switches to the scheduler, and returns when the fiber is resumed.
    #[inline(always)]
    pub(super) fn switch_out(self, fiber: FiberRef) {
        fiber.budget().refill();
        let lent = LentFrame::begin();
        if hazards::COMPILED && fiber.holds_guards() {
            self.report_held_guards(fiber);
        }
        // std counts panics by thread, and other fibers run meanwhile (I8).
        let counted = self.before_suspension(fiber);
        #[cfg(all(feature = "detect", not(feature = "tracing")))]
        self.report_entered_span(fiber);
        #[cfg(feature = "tracing")]
        let spans = super::spans::Spans::leave();
        fiber.switch_out();
        #[cfg(feature = "tracing")]
        spans.enter_again();
        #[cfg(all(feature = "detect", not(feature = "tracing")))]
        self.note_span(fiber);
        if let Some(counted) = counted {
            self.after_suspension(fiber, counted);
        }
        lent.end();
    }
}

impl Worker {
    /// Whether no other work could run if this fiber waited: no fiber is ready, and nothing is
    /// queued for the kernel. Then a call that does not block is cheaper than the ring.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        !self.schedule.has_others() && !self.driver.borrow().has_queued()
    }

    /// Whether a read of a file is tried by a plain call first: no other work would share the trip
    /// to the kernel, or the page cache has answered the last reads.
    #[inline]
    pub(crate) fn may_read_inline(&self) -> bool {
        self.is_alone() || self.driver.borrow().page_cache_answers()
    }

    /// Whether this fiber may block the thread, because nothing could become ready meanwhile: no
    /// other worker or thread can make a fiber, no op is in the kernel, no timer is set, and all
    /// other fibers wait for fibers to end.
    #[inline]
    pub(crate) fn is_solitary(&self, fiber: FiberRef) -> bool {
        !self.schedule.has_others()
            && self.admission.waiting_for_fibers() + 1 == self.table.occupied()
            && self.shared.is_closed_world()
            && !self.alarms.may_be_set()
            && self.driver.borrow().is_idle()
            && !self.admission.has_unstarted()
            && self.room.is_empty()
            && !fiber.is_cancelled()
    }
}
