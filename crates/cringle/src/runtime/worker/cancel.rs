//! Cancelling fibers, and what a cancelled fiber is told.

use super::Worker;
use crate::runtime::cancelled;
use crate::runtime::fiber::{FiberRef, State};
use std::time::{Duration, Instant};

/// Calls refused to a cancelled fiber before it is unwound.
const MAX_REFUSALS: u32 = 1000;
/// A cancelled op that the kernel has not given up after this is reported.
const STUBBORN_AFTER: Duration = Duration::from_secs(5);

impl Worker {
    /// Whether this fiber's next call is refused because it is cancelled. A fiber that asks on
    /// after [`MAX_REFUSALS`] of them is unwound, so that a loop which logs its errors and goes on
    /// cannot spin for ever.
    #[inline]
    pub(crate) fn refuses(&self, fiber: FiberRef) -> bool {
        fiber.is_cancelled() && self.refuses_cancelled(fiber)
    }

    #[cold]
    pub(super) fn refuses_cancelled(&self, fiber: FiberRef) -> bool {
        if self.is_unwinding(fiber) {
            return false;
        }
        if fiber.count_refusal() > MAX_REFUSALS {
            cancelled::unwind();
        }
        true
    }

    /// Whether a wait of this fiber is to end because it is cancelled; nothing is counted.
    #[inline]
    pub(crate) fn is_interrupted(&self, fiber: FiberRef) -> bool {
        fiber.is_cancelled() && !self.is_unwinding(fiber)
    }

    /// Unwinds the fiber if it is cancelled: what a wait does whose signature has no room for an
    /// error. Not where panics abort.
    #[inline]
    pub(crate) fn interrupt_if_cancelled(&self, fiber: FiberRef) {
        if self.is_interrupted(fiber) {
            cancelled::unwind();
        }
    }

    pub(super) fn begin_stop(&self) {
        self.stopping_since.set(Some(self.now()));
        let fibers: Vec<FiberRef> = self.table.borrow().occupied().collect();
        for fiber in fibers {
            self.cancel(fiber);
        }
    }

    /// Marks a fiber cancelled and ends its wait, where that may be.
    pub(super) fn cancel(&self, fiber: FiberRef) {
        fiber.set_cancelled();
        if fiber.wakes_on_cancel() {
            fiber.set_state(State::Runnable);
            self.ready.push(fiber);
        } else {
            self.cancel_ops(fiber);
        }
    }

    /// Asks the kernel to give up the ops that a fiber waits for.
    #[cold]
    pub(super) fn cancel_ops(&self, fiber: FiberRef) {
        let Some(ops) = fiber.cancellable_ops() else { return };
        let mut driver = self.driver.borrow_mut();
        ops.for_each(|completion| driver.cancel(completion));
    }

    /// When to wake for a report of ops that outlast their cancel, if that is before the next
    /// timer; reports them when the time has come.
    pub(super) fn report_stubborn_at(&self, next_timer: Option<Instant>) -> Option<Instant> {
        let Some(since) = self.stopping_since.get().filter(|_| !self.reported.get()) else {
            return next_timer;
        };
        let due = since + STUBBORN_AFTER;
        if self.now() < due {
            return Some(next_timer.map_or(due, |timer| timer.min(due)));
        }
        self.reported.set(true);
        for fiber in self.table.borrow().occupied() {
            let State::Waiting(wait) = fiber.state() else { continue };
            let name = fiber.meta().and_then(|meta| meta.name()).unwrap_or("<unnamed>");
            let what = fiber.op_name().unwrap_or(wait.describe());
            crate::sys::report(format_args!(
                "`run` is ending, but fiber '{name}' still waits for: {what}"
            ));
        }
        next_timer
    }
}
