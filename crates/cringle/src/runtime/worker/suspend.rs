//! How the running fiber suspends itself, and what for.
//!
//! A processor predicts a return by the call it remembers last. A switch of stacks pairs the
//! scheduler's call with the fiber's suspension; every return in between, from a function that was
//! called before the switch, is predicted wrong, at some 20 cycles each. So what lies between a
//! caller's own code and the switch is inlined into one function (`inline(always)`), and what is rare
//! is kept out of it (`cold`).

use super::Worker;
use crate::driver::{Completion, Op, OpSlot, Waiter};
use crate::runtime::fiber::{FiberRef, State, Wait, WaitedOps};
use crate::runtime::lent_frame::LentFrame;
use crate::runtime::timers::{Alarm, TimerId};
use crate::runtime::wait_target::WaitTarget;
use crate::trace::Cause;
use std::time::Instant;

impl Worker {
    /// Suspends the current fiber until something makes it ready.
    #[inline(always)]
    pub(crate) fn suspend(&self, fiber: FiberRef, wait: Wait) {
        debug_assert_eq!(self.running.get(), Some(fiber), "only the running fiber suspends itself");
        fiber.set_state(State::Waiting(wait));
        self.events.suspended(fiber, wait);
        self.switch_out(fiber);
        crate::tracing_events::trace!(waited_for = wait.word(), "a fiber goes on");
    }

    /// The same for what has more to say of itself than the kind of the wait.
    #[inline(always)]
    pub(crate) fn suspend_on(&self, fiber: FiberRef, wait: Wait, target: &dyn WaitTarget) {
        let lent = LentFrame::begin();
        // SAFETY: the caller lends it until this returns, and nothing unwinds in between (I2, I12).
        unsafe { fiber.set_target(Some(target)) };
        self.suspend(fiber, wait);
        // SAFETY: nothing is told.
        unsafe { fiber.set_target(None) };
        lent.end();
    }

    /// Suspends the current fiber until others of the runtime have ended.
    pub(crate) fn suspend_for_fibers(&self, fiber: FiberRef, wait: Wait, target: &dyn WaitTarget) {
        self.waiting_for_fibers.set(self.waiting_for_fibers.get() + 1);
        self.suspend_on(fiber, wait, target);
        self.waiting_for_fibers.set(self.waiting_for_fibers.get() - 1);
    }

    /// Lets the other ready fibers, and the kernel, have their turn.
    #[inline(always)]
    pub(crate) fn yield_now(&self, fiber: FiberRef) {
        self.events.yielded();
        self.ready.push(fiber);
        self.switch_out(fiber);
    }

    #[inline(always)]
    pub(super) fn switch_out(&self, fiber: FiberRef) {
        fiber.budget().refill();
        let lent = LentFrame::begin();
        // std counts panics for each thread, and other fibers run meanwhile (I8).
        let counted = self.before_suspension(fiber);
        #[cfg(feature = "tracing")]
        let spans = super::spans::Spans::leave();
        fiber.switch_out();
        #[cfg(feature = "tracing")]
        spans.enter_again();
        if let Some(counted) = counted {
            self.after_suspension(counted);
        }
        lent.end();
    }

    /// Has the kernel perform one op, and returns its result when it has ended (**I1**): a count,
    /// or a negated errno.
    #[inline(always)]
    pub(crate) fn perform_one(&self, fiber: FiberRef, op: Op) -> i32 {
        let waiter = Waiter::new(fiber.token());
        let completion = Completion::new();
        let lent = LentFrame::begin();
        self.push_or_refuse(fiber, &op, &completion, &waiter);
        self.settle(fiber, &waiter, WaitedOps::one(&completion));
        lent.end();
        completion.result()
    }

    /// The same for an op that waits for a peer, and has until then: after that the kernel is asked to
    /// give it up. Not by a cancel of the fiber: nobody else is told.
    #[cold]
    pub(crate) fn perform_one_until(&self, fiber: FiberRef, op: Op, at: Instant) -> i32 {
        debug_assert!(op.waits_for_peer(), "it needs no place, and so waits for none");
        let waiter = Waiter::new(fiber.token());
        let completion = Completion::new();
        let lent = LentFrame::begin();
        // SAFETY: I1. All of it stays in this frame until nothing is owed to the waiter.
        while unsafe { self.driver.borrow_mut().push(&op, &completion, &waiter) }.is_err() {
            if self.is_interrupted(fiber) || self.now() >= at {
                lent.end();
                return -libc::ECANCELED;
            }
            self.yield_now(fiber);
        }
        let timer = self.set_alarm(at, Alarm::GiveUp(fiber));
        self.settle(fiber, &waiter, WaitedOps::one(&completion));
        self.take_back_timer(timer);
        lent.end();
        completion.result()
    }

    /// Asks the kernel to give up what a fiber waits for.
    #[cold]
    pub(super) fn give_up_ops(&self, fiber: FiberRef) {
        let Some(ops) = fiber.waited_ops() else { return };
        let mut driver = self.driver.borrow_mut();
        ops.for_each(|completion| driver.cancel(completion));
    }

    /// Has the kernel perform these ops, and returns when all of them have ended (**I1**).
    pub(crate) fn perform(&self, fiber: FiberRef, slots: &[OpSlot]) {
        let waiter = Waiter::new(fiber.token());
        let lent = LentFrame::begin();
        // At once what there is room for, then one by one, in line with the others.
        let pushed = match self.in_line.get() {
            // SAFETY: I1. The slots and the waiter stay until nothing is owed to the waiter.
            0 => unsafe { self.driver.borrow_mut().push_many(slots, &waiter) },
            _ => 0,
        };
        for slot in &slots[pushed..] {
            self.push_or_refuse(fiber, &slot.op, &slot.completion, &waiter);
        }
        self.settle(fiber, &waiter, WaitedOps::slots(slots));
        lent.end();
    }

    /// Suspends until nothing is owed to the waiter.
    #[inline(always)]
    pub(super) fn settle(&self, fiber: FiberRef, waiter: &Waiter, ops: WaitedOps) {
        if waiter.is_settled() {
            return;
        }
        fiber.set_ops(ops);
        fiber.set_state(State::Waiting(Wait::Ops));
        if self.is_interrupted(fiber) {
            // Cancelled while it waited for room: the call that cancelled it saw no ops.
            self.ask_to_end(fiber);
        }
        self.events.suspended(fiber, Wait::Ops);
        self.switch_out(fiber);
        debug_assert!(waiter.is_settled(), "resumed before the last completion");
    }

    /// Gives an op to the driver, at once or when it is this fiber's turn; refuses it if the fiber
    /// is cancelled while it waits for that.
    #[inline(always)]
    pub(super) fn push_or_refuse(
        &self,
        fiber: FiberRef,
        op: &Op,
        completion: &Completion,
        waiter: &Waiter,
    ) {
        // SAFETY: I1, I12. The callers' frames hold all of it until nothing is owed to the waiter, and
        // nothing unwinds them before.
        let pushed = (self.in_line.get() == 0 || op.waits_for_peer())
            && unsafe { self.driver.borrow_mut().push(op, completion, waiter) }.is_ok();
        if !pushed {
            // A copy: the op itself need not exist in memory on the way above.
            let op = *op;
            self.push_when_possible(fiber, &op, completion, waiter);
        }
    }

    /// Waits in line for room. The op is refused if the fiber is cancelled meanwhile.
    #[cold]
    pub(super) fn push_when_possible(
        &self,
        fiber: FiberRef,
        op: &Op,
        completion: &Completion,
        waiter: &Waiter,
    ) {
        loop {
            if self.is_interrupted(fiber) {
                return completion.refuse(-libc::ECANCELED);
            }
            self.events.lacked_room();
            self.in_line.set(self.in_line.get() + 1);
            self.room_queue.borrow_mut().push_back(fiber);
            self.suspend(fiber, Wait::Room);
            self.in_line.set(self.in_line.get() - 1);
            if !fiber.take_grant() {
                self.room_queue.borrow_mut().retain(|&waits| waits != fiber);
                continue;
            }
            self.granted.set(self.granted.get() - 1);
            // SAFETY: I1, as above.
            if unsafe { self.driver.borrow_mut().push(op, completion, waiter) }.is_ok() {
                return;
            }
        }
    }

    /// Hands free places to those who wait for them, in order.
    #[cold]
    pub(super) fn grant_room(&self) {
        let room = self.driver.borrow().room();
        let mut queue = self.room_queue.borrow_mut();
        while self.granted.get() < room
            && let Some(fiber) = queue.pop_front()
        {
            if fiber.state() != State::Waiting(Wait::Room) {
                // A cancel has ended its wait: it is in the ready list already.
                continue;
            }
            self.granted.set(self.granted.get() + 1);
            fiber.grant();
            fiber.set_state(State::Runnable);
            self.ready.push(fiber);
            self.events.made_ready(fiber, Cause::Room);
        }
    }

    /// Sets a timer for a fiber; it is to be taken back when the wait has ended.
    pub(crate) fn set_timer(&self, at: Instant, fiber: FiberRef) -> TimerId {
        self.set_alarm(at, Alarm::Wake(fiber))
    }

    pub(super) fn set_alarm(&self, at: Instant, alarm: Alarm) -> TimerId {
        self.events.timer_set(&self.driver, at);
        self.has_timers.set(true);
        self.timers.borrow_mut().insert(at, alarm)
    }

    pub(crate) fn take_back_timer(&self, id: TimerId) {
        self.timers.borrow_mut().remove(id);
    }

    /// Whether nothing else could run while this fiber waits: no other is ready, nothing is queued
    /// for the kernel. Then a call that does not block is cheaper than the ring.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        !self.more_to_run.get() && self.ready.is_empty() && !self.driver.borrow().has_queued()
    }

    /// Whether nothing could run while this fiber blocks the thread: no other worker is there to
    /// make one runnable, nothing is in the kernel, no timer is set, and all other fibers wait for
    /// fibers to end.
    #[inline]
    pub(crate) fn is_solitary(&self, fiber: FiberRef) -> bool {
        !self.more_to_run.get()
            && self.ready.is_empty()
            && self.waiting_for_fibers.get() + 1 == self.alive.get()
            && self.shared.is_closed_world()
            && !self.has_timers.get()
            && self.driver.borrow().is_idle()
            && self.unstarted.is_empty()
            && self.in_line.get() == 0
            && !fiber.is_cancelled()
    }
}
