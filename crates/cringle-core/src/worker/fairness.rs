//! Fairness: a fiber whose calls never need to wait still lets the other fibers of its worker run.
//!
//! Each fiber has a budget of such calls, which any suspension refills. A call is of one of three
//! kinds:
//!
//! - A call *shaped to block* (`lock`, `send`, `recv`, `acquire`, `wait`, `read`, …) spends from
//!   the budget, and yields when it has spent the last of it. It yields before it takes anything,
//!   and while the library holds no OS lock (**I6**).
//! - A `try_…` call may be made while the caller holds a guard of std's, which must not be held
//!   over a suspension. So it only counts. After 128 failures in a row it yields, because a loop of
//!   them waits for another fiber. `OnceLock::get` and its like fail so while there is no value;
//!   with a value they do nothing here.
//! - A call that never waits (`check`, `spawn`) only counts.
//!
//! There is one count of failures for each fiber, and a success of any `try_…` call begins it anew:
//! a loop in which one such call succeeds and another fails does not yield.
//!
//! Such a yield is no cancellation point. Where the fiber cannot suspend it is skipped. A fiber
//! that unwinds yields too: its destructor may poll for the work of another fiber of the worker
//! (**I8**).

use super::Current;
use crate::fiber::RunState;
use crate::stack;

impl Current {
    /// Spends from the budget, at the begin of a call shaped to block. May yield.
    #[inline(always)]
    pub fn spend(self) {
        if !self.fiber.budget().spend() {
            self.let_others_run();
        }
    }

    /// Counts a call that never waits.
    #[inline(always)]
    pub fn count(self) {
        self.fiber.budget().spend();
    }

    /// Counts a `try_…` call at its end. May yield after a failure.
    #[inline(always)]
    pub fn tried(self, succeeded: bool) {
        if succeeded {
            self.fiber.budget().succeed();
        } else if !self.fiber.budget().fail() {
            self.let_others_run();
        }
    }

    /// Takes a message to a peer, or from one, from the budget of inline calls. False if nothing
    /// was left for it.
    #[inline]
    pub fn spend_with_peer(self) -> bool {
        self.worker.pairing.count_message(self.fiber);
        self.fiber.budget().spend_with_peer()
    }

    /// Yields because the budget is spent, where the fiber may suspend itself.
    #[cold]
    pub fn let_others_run(self) {
        if self.can_yield() {
            self.yield_now();
        }
    }

    /// Whether the caller is the fiber itself. Not so for code that is called while the fiber is
    /// being suspended, or on another stack.
    fn can_yield(self) -> bool {
        let is_running = self.worker.foreground.get() == Some(self.fiber)
            && self.fiber.state() == RunState::Runnable;
        is_running && self.fiber.stack().range().contains(&stack::pointer())
    }

    /// Yields because the fiber has used up its budget of inline calls. The yield refills it.
    #[cold]
    pub fn refresh_budget(self) {
        self.yield_now();
    }
}

/// [`Current::spend`] for the calling fiber, if a fiber calls.
#[inline]
pub fn spend() {
    if let Some(current) = Current::get() {
        current.spend();
    }
}

/// [`Current::count`] for the calling fiber, if a fiber calls.
#[inline]
pub fn count() {
    if let Some(current) = Current::get() {
        current.count();
    }
}

/// [`Current::tried`] for the calling fiber, if a fiber calls.
#[inline]
pub fn tried(succeeded: bool) {
    if let Some(current) = Current::get() {
        current.tried(succeeded);
    }
}
