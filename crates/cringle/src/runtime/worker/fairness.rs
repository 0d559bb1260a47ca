//! Fairness: a fiber that only makes calls which need not wait lets the others of its worker run.
//!
//! Each fiber has a budget of such calls, which any suspension fills again. There are three kinds:
//!
//! - a call *shaped to block* (`lock`, `send`, `recv`, `acquire`, `wait`, `read`, …) spends from the budget,
//!   and yields when that was the last of it. It does so before it takes what it is for, and while the
//!   library holds no OS lock (**I6**);
//! - a `try_…` call may be made with a guard of std's held, which must not be held over a suspension. So it
//!   only counts, and yields after it has failed 128 times in a row: that is a loop which waits for
//!   another fiber;
//! - what never waits (`get`, `check`, `spawn`) only counts.
//!
//! Such a yield is no cancellation point. It is left out where the fiber cannot suspend. A fiber that unwinds
//! yields too: its destructor may ask in a loop for what another fiber of the worker is to do (**I8**).

use super::Worker;
use crate::runtime::fiber::{FiberRef, State};
use crate::runtime::stack;

impl Worker {
    /// A call shaped to block begins.
    #[inline(always)]
    pub(crate) fn spend(&self, fiber: FiberRef) {
        if !fiber.budget().spend() {
            self.let_others_run(fiber);
        }
    }

    /// A call that never waits is made.
    #[inline(always)]
    pub(crate) fn count(&self, fiber: FiberRef) {
        fiber.budget().spend();
    }

    /// A `try_…` call ends, with what it was for or without.
    #[inline(always)]
    pub(crate) fn tried(&self, fiber: FiberRef, succeeded: bool) {
        if succeeded {
            fiber.budget().succeed();
        } else if !fiber.budget().fail() {
            self.let_others_run(fiber);
        }
    }

    #[cold]
    fn let_others_run(&self, fiber: FiberRef) {
        if self.can_yield(fiber) {
            self.yield_now(fiber);
        }
    }

    /// Whether the caller is the fiber itself, and not code that is called while the fiber is being
    /// suspended, or on another stack.
    fn can_yield(&self, fiber: FiberRef) -> bool {
        let is_ours = self.running.get() == Some(fiber) && fiber.state() == State::Runnable;
        is_ours && fiber.stack().range().contains(&stack::pointer())
    }

    /// Lets others have their turn because the fiber has used up its budget of inline calls; it has a
    /// new one then.
    #[cold]
    pub(crate) fn refresh_budget(&self, fiber: FiberRef) {
        self.yield_now(fiber);
    }
}

/// [`Worker::spend`] for the calling fiber, if it is one.
#[inline]
pub(crate) fn spend() {
    if let Some((worker, fiber)) = Worker::current() {
        worker.spend(fiber);
    }
}

/// [`Worker::count`] for the calling fiber, if it is one.
#[inline]
pub(crate) fn count() {
    if let Some((worker, fiber)) = Worker::current() {
        worker.count(fiber);
    }
}

/// [`Worker::tried`] for the calling fiber, if it is one.
#[inline]
pub(crate) fn tried(succeeded: bool) {
    if let Some((worker, fiber)) = Worker::current() {
        worker.tried(fiber, succeeded);
    }
}
