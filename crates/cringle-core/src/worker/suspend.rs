//! How the running fiber suspends itself.
//!
//! A processor predicts a return by the call it remembers last. A switch of stacks pairs the
//! scheduler's call with the fiber's suspension, and every return from a function that was called
//! before the switch is mispredicted. So the code between a caller's own function and the switch is
//! inlined into one function (`inline(always)`), and rare code is kept out of it (`cold`).

use super::{Current, Worker};
use crate::fiber::{RunState, Wait};
use crate::hazards;
use crate::lent_frame::LentFrame;
use crate::spans::AcrossWait;
use crate::timers::Alarm;
use crate::wait_target::Target;
#[cfg(debug_assertions)]
use cringle_sys as sys;
use std::time::Instant;

impl Current {
    /// Whether this fiber may block the thread, because nothing could become ready meanwhile: no
    /// other worker or thread can make a fiber, no op is in the kernel, no timer is set, and all
    /// other fibers wait for fibers to end.
    #[inline(always)]
    pub fn is_solitary(self) -> bool {
        !self.worker.schedule.has_others()
            && self.worker.admission.waiting_for_fibers() + 1 == self.worker.table.occupied()
            && self.worker.shared.is_closed_world()
            && !self.worker.alarms.may_be_set()
            && self.worker.driver.borrow().is_idle()
            && !self.worker.admission.has_unstarted()
            && self.worker.room.is_empty()
            && !self.fiber.is_cancelled()
    }

    /// Spends one of a solitary fiber's plain calls. When none is left, the worker looks for
    /// completions and messages first. Returns whether the fiber is solitary still.
    #[inline]
    pub fn spends_solitary(self) -> bool {
        if !self.fiber.spend_inline() {
            self.refresh_budget();
            if !self.is_solitary() {
                return false;
            }
        }
        self.worker.events().tried_inline(true);
        true
    }

    /// Suspends the running fiber until it is made ready.
    #[inline(always)]
    pub fn suspend(self, wait: Wait) {
        self.fiber.set_state(RunState::Waiting(wait));
        self.worker.events.suspended(self.fiber, wait);
        self.switch_out();
        crate::emit!(TRACE, waited_for = wait.word(), "a fiber continues");
    }

    /// [`suspend`](Self::suspend) with a description of the object that the fiber waits for.
    #[inline(always)]
    pub fn suspend_on(self, wait: Wait, target: Target<'_>) {
        let lent = LentFrame::begin();
        // SAFETY: I2, I12. The caller lends the target until this returns, and it is taken back
        // below; nothing unwinds in between.
        unsafe { self.fiber.set_target(Some(target)) };
        self.suspend(wait);
        // SAFETY: the contract asks nothing of a call that takes back.
        unsafe { self.fiber.set_target(None) };
        lent.end();
    }

    /// [`suspend`](Self::suspend) until this time at most.
    pub fn suspend_until(self, wait: Wait, until: Option<Instant>) {
        self.set_wait_alarm(until);
        self.suspend(wait);
        self.worker.alarms.end_wait(self.fiber);
    }

    /// [`suspend_on`](Self::suspend_on) until this time at most.
    #[cfg_attr(loom, allow(dead_code, reason = "for the callers that the models replace"))]
    pub fn suspend_on_until(self, wait: Wait, target: Target<'_>, until: Option<Instant>) {
        self.set_wait_alarm(until);
        self.suspend_on(wait, target);
        self.worker.alarms.end_wait(self.fiber);
    }

    fn set_wait_alarm(self, until: Option<Instant>) {
        if let Some(at) = until {
            self.fiber.set_wait_alarm(self.worker.set_alarm(at, Alarm::Wake(self.fiber)));
        }
    }

    /// [`suspend_on`](Self::suspend_on) for a wait that only the end of other fibers of this
    /// runtime ends.
    pub fn suspend_for_fibers(self, wait: Wait, target: Target<'_>) {
        self.worker.admission.begin_wait_for_fibers();
        self.fiber.set_waits_for_fibers(true);
        self.suspend_on(wait, target);
        self.fiber.set_waits_for_fibers(false);
        self.worker.admission.end_wait_for_fibers();
    }

    /// Forgets when the running fiber waited last: see [`has_waited`](Self::has_waited).
    pub fn forget_waits(self) {
        self.fiber.set_since_ns(0);
    }

    /// Whether the running fiber has waited since [`forget_waits`](Self::forget_waits). (A yield is
    /// no wait.)
    pub fn has_waited(self) -> bool {
        self.fiber.since_ns() != 0
    }

    /// Lets the other ready fibers run, and the worker look at the kernel.
    #[inline(always)]
    pub fn yield_now(self) {
        self.worker.events.yielded();
        self.worker.schedule.ready().push(self.fiber);
        self.switch_out();
    }

    /// Switches to the scheduler, and returns when the fiber is resumed.
    #[inline(always)]
    pub(super) fn switch_out(self) {
        debug_assert_eq!(
            self.worker.foreground.get(),
            Some(self.fiber),
            "I3, I13: only the running fiber suspends itself"
        );
        #[cfg(debug_assertions)]
        assert_eq!(sys::lock::held::count(), 0, "I6: a fiber suspends itself under a lock");
        self.fiber.budget().refill();
        let lent = LentFrame::begin();
        if hazards::COMPILED && self.fiber.holds_guards() {
            self.report_held_guards();
        }
        // std counts panics by thread, and other fibers run meanwhile (I8).
        let counted = self.before_suspension();
        let spans = AcrossWait::begin(self);
        self.fiber.switch_out();
        spans.end(self);
        if let Some(counted) = counted {
            self.after_suspension(counted);
        }
        lent.end();
    }
}

impl Worker {
    /// Whether another fiber is ready.
    pub fn has_others_ready(&self) -> bool {
        self.schedule.has_others()
    }

    /// Whether no other work could run if this fiber waited: no fiber is ready, and nothing is
    /// queued for the kernel. Then a call that does not block is cheaper than the ring.
    #[inline]
    pub fn is_alone(&self) -> bool {
        !self.schedule.has_others() && !self.driver.borrow().has_queued()
    }
}
