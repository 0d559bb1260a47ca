//! Ops whose deadline is looked up late: most end before, and the lookup costs a system call.
//!
//! When the timer fires, the worker looks the deadline up while the op stays in the kernel.

use super::{Current, Worker};
use crate::fiber::FiberRef;
use crate::timers::Alarm;
use cringle_driver::Op;
use std::cell::Cell;
use std::ptr::NonNull;
use std::time::Instant;

/// The deadline of an op, and how to look it up. It lies in the frame of the waiting fiber.
pub struct Review<'a> {
    look_up: &'a dyn Fn() -> Option<Instant>,
    deadline: Cell<Option<Instant>>,
}

impl<'a> Review<'a> {
    /// `look_up` is called by the scheduler, and only makes system calls.
    pub fn new(look_up: &'a dyn Fn() -> Option<Instant>) -> Review<'a> {
        Review { look_up, deadline: Cell::new(None) }
    }

    /// The deadline, if it was looked up and there is one.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get()
    }

    /// Looks the deadline up, and returns whether it has passed.
    fn is_over(&self, now: Instant) -> bool {
        self.deadline.set((self.look_up)());
        self.deadline().is_some_and(|at| at <= now)
    }
}

impl Current {
    /// Performs one op that waits for a peer. Its deadline is looked up at the given time, and the
    /// kernel is asked to end the op when it has passed.
    pub fn perform_one_reviewed(self, op: Op, at: Instant, review: &Review<'_>) -> i32 {
        // The lifetime is erased: the timer is taken back before this returns.
        let alarm = Alarm::Review(self.fiber, NonNull::from(review).cast());
        self.perform_one_alarmed(op, at, alarm, |now| now >= at && review.is_over(now))
    }
}

impl Worker {
    /// Is called by the timer.
    #[cold]
    pub(super) fn review(&self, fiber: FiberRef, review: NonNull<Review<'static>>) {
        // SAFETY: I12. `perform_one_alarmed` takes the timer back before it returns.
        let review = unsafe { review.as_ref() };
        self.alarms.end_wait(fiber);
        if review.is_over(self.now()) {
            self.give_up_ops(fiber);
        } else if let Some(at) = review.deadline() {
            fiber.set_wait_alarm(self.set_alarm(at, Alarm::GiveUp(fiber)));
        }
    }
}
