//! How the running fiber has ops performed: it pushes them to the driver and waits for their last
//! completion.
//!
//! Ops, completions and the waiter lie in the caller's frame until then (**I1**), and nothing
//! unwinds out of that frame meanwhile (**I12**). Inlining is as in [`suspend`](super::suspend).

use super::{Current, Worker};
use crate::fiber::{FiberRef, RunState, Wait, WaitedOps};
use crate::lent_frame::LentFrame;
use crate::timers::Alarm;
use cringle_driver::{Completion, Driver, Op, OpSlot, Waiter};
use cringle_sys as sys;
use std::cell::Cell;
use std::time::{Duration, Instant};

impl Current {
    /// Performs one op, and returns its result: a count, or a negated errno.
    #[inline(always)]
    pub fn perform_one(self, op: Op) -> i32 {
        let waiter = Waiter::new(self.fiber.token());
        let completion = Completion::new();
        let lent = LentFrame::begin();
        self.push_or_refuse(&op, &completion, &waiter);
        self.settle(&waiter, WaitedOps::one(&completion));
        lent.end();
        completion.result()
    }

    /// Performs one op that waits for a peer. At the given time the kernel is asked to end it. That
    /// is no cancel of the fiber, and reaches nothing else.
    #[cold]
    pub fn perform_one_until(self, op: Op, at: Instant) -> i32 {
        self.perform_one_alarmed(op, at, Alarm::GiveUp(self.fiber), |now| now >= at)
    }

    /// Performs one op that waits for a peer, with an alarm at the given time. While there is no
    /// room, `is_over` says whether to end the op.
    #[inline(always)]
    pub(super) fn perform_one_alarmed(
        self,
        op: Op,
        at: Instant,
        alarm: Alarm,
        is_over: impl Fn(Instant) -> bool,
    ) -> i32 {
        debug_assert!(op.waits_for_peer(), "such an op never waits in line for room");
        let waiter = Waiter::new(self.fiber.token());
        let completion = Completion::new();
        let lent = LentFrame::begin();
        // SAFETY: I1, I12. All of it stays in this frame until nothing is owed to the waiter.
        while unsafe { self.worker.driver.borrow_mut().push(&op, &completion, &waiter) }.is_err() {
            if self.is_interrupted() || is_over(self.worker.now()) {
                lent.end();
                return -libc::ECANCELED;
            }
            self.yield_now();
        }
        self.fiber.set_wait_alarm(self.worker.set_alarm(at, alarm));
        self.settle(&waiter, WaitedOps::one(&completion));
        self.worker.alarms.end_wait(self.fiber);
        lent.end();
        completion.result()
    }

    /// Performs the ops that are the driver's, and returns when all of them have ended. Where
    /// threads are scarce, ops that may need one are answered as the kernel answers them, for the
    /// caller to repeat.
    pub fn perform(self, slots: &[OpSlot], is_drivers: impl Fn(&OpSlot) -> bool) {
        let waiter = Waiter::new(self.fiber.token());
        let lent = LentFrame::begin();
        // As many at once as there is room for, the others one by one, in line with other fibers.
        let lacks_threads = self.worker.thread_lack.lasts();
        for run in slots.split(|slot| !is_drivers(slot)) {
            let pushed = if self.worker.room.is_empty() && !lacks_threads {
                // SAFETY: I1, I12. The slots and the waiter stay until nothing is owed to the
                // waiter.
                unsafe { self.worker.driver.borrow_mut().push_many(run, &waiter) }
            } else {
                0
            };
            for slot in &run[pushed..] {
                if lacks_threads && slot.op.may_need_thread() {
                    slot.completion.refuse(-libc::ECANCELED);
                } else {
                    self.push_or_refuse(&slot.op, &slot.completion, &waiter);
                }
            }
        }
        self.settle(&waiter, WaitedOps::slots(slots));
        lent.end();
    }

    /// Performs ops that wait for peers until one of them has ended, or until this time. Then the
    /// kernel is asked to end the others. Returns when all have ended.
    pub fn perform_until_first(self, slots: &[OpSlot], at: Option<Instant>) {
        // Each op has a waiter of its own, so that the end of any op makes the fiber ready.
        let waiters: Vec<Waiter> = slots.iter().map(|_| Waiter::new(self.fiber.token())).collect();
        let are_settled = || waiters.iter().all(Waiter::is_settled);
        let lent = LentFrame::begin();
        // While the fiber is ready, its other ops are still with this worker's driver.
        self.fiber.family().while_pinned(|| {
            for (slot, waiter) in slots.iter().zip(&waiters) {
                debug_assert!(slot.op.waits_for_peer(), "such an op never waits in line for room");
                let mut driver = self.worker.driver.borrow_mut();
                // SAFETY: I1, I12. The slots and the waiters stay until nothing is owed to any.
                if unsafe { driver.push(&slot.op, &slot.completion, waiter) }.is_err() {
                    slot.completion.refuse(-libc::ECANCELED);
                }
            }
            if waiters.iter().all(|waiter| !waiter.is_settled()) {
                if let Some(at) = at {
                    let alarm = self.worker.set_alarm(at, Alarm::GiveUp(self.fiber));
                    self.fiber.set_wait_alarm(alarm);
                }
                self.wait_for_ops(WaitedOps::slots(slots));
                self.worker.alarms.end_wait(self.fiber);
            }
            while !are_settled() {
                self.fiber.set_state(RunState::Waiting(Wait::Ops));
                self.worker.give_up_ops(self.fiber);
                self.wait_for_ops(WaitedOps::slots(slots));
            }
        });
        lent.end();
    }

    /// Suspends the fiber until nothing is owed to the waiter.
    #[inline(always)]
    pub(super) fn settle(self, waiter: &Waiter, ops: WaitedOps) {
        if waiter.is_settled() {
            return;
        }
        self.wait_for_ops(ops);
        debug_assert!(waiter.is_settled(), "I1: resumed before the last completion");
    }

    /// Suspends the fiber until a waiter of these ops is settled.
    #[inline(always)]
    fn wait_for_ops(self, ops: WaitedOps) {
        self.fiber.set_ops(ops);
        self.fiber.set_state(RunState::Waiting(Wait::Ops));
        if self.is_interrupted() {
            // The fiber was cancelled while it waited for room, when its ops were not known.
            self.worker.ask_to_end(self.fiber);
        }
        self.worker.events.suspended(self.fiber, Wait::Ops);
        self.switch_out();
    }

    /// Pushes an op, at once or after a wait for room. Refuses the op if the fiber is cancelled in
    /// that wait.
    #[inline(always)]
    fn push_or_refuse(self, op: &Op, completion: &Completion, waiter: &Waiter) {
        // SAFETY: I1, I12. The callers' frames hold all of it until nothing is owed to the waiter,
        // and nothing unwinds out of them before.
        let pushed = (self.worker.room.is_empty() || op.waits_for_peer())
            && unsafe { self.worker.driver.borrow_mut().push(op, completion, waiter) }.is_ok();
        if !pushed {
            // A copy, so that on the path above the op need not exist in memory.
            let op = *op;
            self.push_when_possible(&op, completion, waiter);
        }
    }

    /// Waits in line for room, then pushes.
    #[cold]
    fn push_when_possible(self, op: &Op, completion: &Completion, waiter: &Waiter) {
        loop {
            if self.is_interrupted() {
                return completion.refuse(-libc::ECANCELED);
            }
            self.worker.events.lacked_room();
            // The line is for one ring, where other ops of the fiber may be under way.
            let has_room = self.fiber.family().while_pinned(|| {
                self.worker.room.join(self.fiber);
                self.suspend(Wait::Room);
                self.worker.room.leave(self.fiber)
            });
            let mut driver = self.worker.driver.borrow_mut();
            // SAFETY: I1, I12. As in `push_or_refuse`, whose arguments these are.
            if has_room && unsafe { driver.push(op, completion, waiter) }.is_ok() {
                return;
            }
        }
    }
}

/// Until when the kernel is not asked to start a thread for an op, if it lately could not.
pub struct ThreadLack(Cell<Option<Instant>>);

/// Longer than a process lasts.
const FOR_GOOD: Duration = Duration::from_secs(1 << 32);

/// How long the kernel is not asked again for a thread. It takes up to 50 ms to refuse one.
const LACK_LASTS: Duration = Duration::from_secs(1);

impl ThreadLack {
    /// A ring lacks threads for good, if it is made where the user may have none (`RLIMIT_NPROC` is
    /// 0). The kernel takes the limit as the ring's own, and never begins a transfer on a device
    /// that needs a thread, nor drops it.
    pub(super) fn new(driver: &Driver) -> ThreadLack {
        let lacks = driver.is_ring() && sys::may_have_no_threads();
        ThreadLack(Cell::new(sys::now().checked_add(FOR_GOOD).filter(|_| lacks)))
    }

    /// Notes that the kernel can start no thread for an op.
    #[cold]
    pub fn note(&self) {
        self.0.set(self.0.get().max(sys::now().checked_add(LACK_LASTS)));
    }

    /// Whether the kernel lately could start no thread for an op.
    #[inline(always)]
    pub fn lasts(&self) -> bool {
        self.0.get().is_some() && self.still_lasts()
    }

    #[cold]
    fn still_lasts(&self) -> bool {
        let lasts = self.0.get() > Some(sys::now());
        if !lasts {
            self.0.set(None);
        }
        lasts
    }
}

impl Worker {
    /// Asks the kernel to end the ops that a fiber waits for.
    #[cold]
    pub(super) fn give_up_ops(&self, fiber: FiberRef) {
        let Some(ops) = fiber.waited_ops() else { return };
        let mut driver = self.driver.borrow_mut();
        ops.for_each(|completion| driver.cancel(completion));
    }
}
