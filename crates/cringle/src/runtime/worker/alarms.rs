//! The worker's timers, and what happens when one fires.

use super::Worker;
use crate::runtime::fiber::FiberRef;
use crate::runtime::timers::{Alarm, TimerId, Timers};
use crate::trace::Cause;
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

    fn time_of(&self, id: TimerId) -> Option<Instant> {
        self.timers.borrow().time_of(id)
    }

    /// The time of the nearest timer.
    pub(super) fn next(&self) -> Option<Instant> {
        self.timers.borrow().next()
    }

    /// Calls `f` with each timer that has not fired.
    pub(super) fn for_each_pending(&self, f: impl FnMut((Instant, Alarm))) {
        self.timers.borrow().pending().for_each(f);
    }

    #[cfg(feature = "interpose")]
    fn are_in_use(&self) -> bool {
        self.timers.try_borrow_mut().is_err()
    }

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
    #[cfg(feature = "interpose")]
    pub(crate) fn is_in_use(&self) -> bool {
        self.alarms.are_in_use() || self.driver.try_borrow_mut().is_err()
    }

    /// Sets a timer. It is to be [taken back](Self::take_back_timer).
    pub(super) fn set_alarm(&self, at: Instant, alarm: Alarm) -> TimerId {
        self.events.timer_set(&self.driver, at);
        self.alarms.set(at, alarm)
    }

    /// Takes back a timer, fired or not.
    pub(super) fn take_back_timer(&self, id: TimerId) {
        self.alarms.take_back(id);
    }

    /// Takes back the timer of a fiber's wait, which has ended.
    pub(super) fn take_back_wait_alarm(&self, fiber: FiberRef) {
        if let Some(alarm) = fiber.take_wait_alarm() {
            self.alarms.take_back(alarm);
        }
    }

    /// Takes back the timer of a waiting fiber, which moves to another worker.
    pub(super) fn pack_wait_alarm(&self, fiber: FiberRef) {
        let Some(alarm) = fiber.take_wait_alarm() else { return };
        // A timer that has fired has ended the wait. Should it not have, the wait ends early.
        let at = self.alarms.time_of(alarm);
        debug_assert!(at.is_some(), "the timer of a fiber that waits has not fired");
        self.alarms.take_back(alarm);
        fiber.pack_wait_alarm(at.unwrap_or_else(|| self.now()));
    }

    /// Sets the timer of a waiting fiber that has moved here.
    pub(super) fn unpack_wait_alarm(&self, fiber: FiberRef) {
        if let Some(at) = fiber.take_packed_alarm() {
            fiber.set_wait_alarm(self.set_alarm(at, Alarm::Wake(fiber)));
        }
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
                #[cfg(feature = "interpose")]
                Alarm::Review(fiber, review) => self.review(fiber, review),
                Alarm::ReportStubborn => self.report_stubborn(),
                Alarm::RetryStarts => self.retry_starts(),
            }
        }
    }
}
