//! How many calls a fiber may make without suspending before other fibers run: see [`Worker::spend`].
//!
//! [`Worker::spend`]: crate::runtime::worker::Worker::spend

use std::cell::Cell;

/// Calls in a row, at most, before other fibers and the kernel get their turn: the last of them yields. Also
/// the failures in a row after which a `try_…` call yields.
const CALLS: u32 = 128;
/// What an inline read or write costs: it takes longer, so that 64 of them use up the budget.
const INLINE_COST: u32 = 2;

/// See the module. Any suspension fills it again.
pub(in crate::runtime) struct Budget {
    left: Cell<u32>,
    /// `try_…` calls that failed since the last one that did not.
    failures: Cell<u32>,
}

impl Budget {
    pub(in crate::runtime) const fn new() -> Budget {
        Budget { left: Cell::new(CALLS), failures: Cell::new(0) }
    }

    #[inline(always)]
    pub(in crate::runtime) fn refill(&self) {
        self.left.set(CALLS);
        self.failures.set(0);
    }

    /// Takes one call from the budget; false when that was the last.
    #[inline(always)]
    pub(in crate::runtime) fn spend(&self) -> bool {
        let left = self.left.get().saturating_sub(1);
        self.left.set(left);
        left > 0
    }

    /// Takes one inline call into the kernel; false if nothing was left for it.
    #[inline(always)]
    pub(in crate::runtime) fn spend_inline(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(INLINE_COST));
        left > 0
    }

    /// Counts a `try_…` call that succeeded.
    #[inline(always)]
    pub(in crate::runtime) fn succeed(&self) {
        self.spend();
        self.failures.set(0);
    }

    /// Counts a `try_…` call that failed; false if there have been too many in a row.
    #[inline(always)]
    pub(in crate::runtime) fn fail(&self) -> bool {
        self.spend();
        let failures = (self.failures.get() + 1).min(CALLS);
        self.failures.set(failures);
        failures < CALLS
    }
}
