//! The worker's timers, and what happens when one fires.

use super::Worker;
use crate::fiber::{FiberRef, RunState};
use crate::timers::{Alarm, TimerId, Timers};
use cringle_driver::trace::Cause;
use std::cell::{Cell, RefCell};
use std::time::Instant;

/// The timers of a worker.
#[derive(Default)]
pub(super) struct Alarms {
    timers: RefCell<Timers>,
    /// A timer may be set. Each turn tests this, which needs no borrow.
    may_be_set: Cell<bool>,
}

impl Alarms {
    #[inline(always)]
    pub(super) fn may_be_set(&self) -> bool {
        self.may_be_set.get()
    }

    fn set(&self, at: Instant, alarm: Alarm) -> TimerId {
        self.may_be_set.set(true);
        self.timers.borrow_mut().insert(at, alarm)
    }

    pub(super) fn take_back(&self, id: TimerId) {
        self.timers.borrow_mut().remove(id);
    }

    /// Takes back the timer of a fiber's wait, which has ended.
    pub(super) fn end_wait(&self, fiber: FiberRef) {
        if let Some(alarm) = fiber.take_wait_alarm() {
            self.take_back(alarm);
        }
    }

    /// Takes back the timers of a fiber that leaves, which keeps their times.
    pub(super) fn pack(&self, fiber: FiberRef, now: impl FnOnce() -> Instant) {
        if let Some(alarm) = fiber.take_wait_alarm() {
            if matches!(fiber.state(), RunState::Waiting(_)) {
                // A timer that has fired has ended the wait. Should it not have, the wait ends
                // early.
                let at = self.timers.borrow().time_of(alarm);
                debug_assert!(at.is_some(), "the timer of a fiber that waits has not fired");
                fiber.pack_wait_alarm(at.unwrap_or_else(now));
            }
            self.take_back(alarm);
        }
        for region in fiber.regions().with_alarms() {
            if let Some(alarm) = region.pack_alarm() {
                self.take_back(alarm);
            }
        }
    }

    /// The time of the nearest timer.
    pub(super) fn next(&self) -> Option<Instant> {
        self.timers.borrow().next()
    }

    /// Whether a timer is due.
    pub(super) fn are_due(&self, now: Instant) -> bool {
        self.may_be_set() && self.next().is_some_and(|at| at <= now)
    }

    /// Calls `f` with each timer that has not fired.
    pub(super) fn for_each_pending(&self, f: impl FnMut((Instant, Alarm))) {
        self.timers.borrow().pending().for_each(f);
    }

    fn are_in_use(&self) -> bool {
        self.timers.try_borrow_mut().is_err()
    }

    /// Whether no timer of a fiber is set.
    pub(super) fn are_taken_back(&self) -> bool {
        self.timers.borrow().are_taken_back()
    }

    fn pop_due(&self, now: Instant) -> Option<Alarm> {
        let due = self.timers.borrow_mut().pop_due(now);
        if due.is_none() {
            self.may_be_set.set(!self.timers.borrow().is_empty());
        }
        due
    }
}

impl Worker {
    /// Whether code of the library that the running fiber has called changes what a wait needs.
    /// Then it has called an allocator, say, and that must not suspend the fiber.
    pub fn is_in_use(&self) -> bool {
        self.alarms.are_in_use() || self.driver.try_borrow_mut().is_err()
    }

    /// Sets a timer. One of a fiber is to be [taken back](Alarms::take_back).
    pub(super) fn set_alarm(&self, at: Instant, alarm: Alarm) -> TimerId {
        self.events.timer_set(&self.driver, at);
        self.alarms.set(at, alarm)
    }

    /// Does what is due.
    pub(super) fn fire_timers(&self) {
        let now = self.now();
        while let Some(due) = self.alarms.pop_due(now) {
            self.events.timer_fired();
            match due {
                Alarm::Wake(fiber) => self.make_ready(fiber, Cause::Timer),
                Alarm::Expire(fiber, region) => self.expire(fiber, region),
                Alarm::GiveUp(fiber) => self.give_up_ops(fiber),
                Alarm::Review(fiber, review) => self.review(fiber, review),
                Alarm::ReportStubborn => {
                    if let Some(at) = self.stubborn.report(self.table.fibers(), now) {
                        self.set_alarm(at, Alarm::ReportStubborn);
                    }
                }
                Alarm::RetryStarts => self.retry_starts(),
            }
        }
    }
}
