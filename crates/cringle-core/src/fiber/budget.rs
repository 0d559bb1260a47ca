//! The number of calls that a fiber may make without suspending before other fibers run: see
//! [`Current::spend`].
//!
//! [`Current::spend`]: crate::worker::Current::spend

use std::cell::Cell;

/// The calls in a full budget; the last of them yields. Also the failures in a row after which a
/// `try_…` call yields.
const CALLS: u32 = 128;
/// The cost of an inline read or write, which takes longer than other calls.
const INLINE_COST: u32 = 2;
/// The same while other fibers are ready: each of them waits for all calls of a turn.
const INLINE_COST_AMONG_OTHERS: u32 = 16;
/// The same for a call of a program's that exchanges messages with a peer. An answer may wake the
/// peer on the worker's processor, and it asks again before the next call: such a fiber never
/// waits, and the others would for milliseconds.
const COST_WITH_PEER: u32 = 8;

/// See the module. Any suspension refills it.
pub(crate) struct Budget {
    left: Cell<u32>,
    /// `try_…` calls that have failed since the last success.
    failures: Cell<u32>,
}

impl Budget {
    pub(crate) const fn new() -> Budget {
        Budget { left: Cell::new(CALLS), failures: Cell::new(0) }
    }

    #[inline(always)]
    pub(crate) fn refill(&self) {
        self.left.set(CALLS);
        self.failures.set(0);
    }

    /// Takes one call. False if it was the last one.
    #[inline(always)]
    pub(crate) fn spend(&self) -> bool {
        let left = self.left.get().saturating_sub(1);
        self.left.set(left);
        left > 0
    }

    /// Takes one inline call into the kernel. False if nothing was left for it.
    #[inline(always)]
    pub(crate) fn spend_inline(&self, is_alone: bool) -> bool {
        self.take(if is_alone { INLINE_COST } else { INLINE_COST_AMONG_OTHERS })
    }

    /// The same for a message.
    #[inline(always)]
    pub(crate) fn spend_with_peer(&self) -> bool {
        self.take(COST_WITH_PEER)
    }

    #[inline(always)]
    fn take(&self, cost: u32) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(cost));
        left > 0
    }

    /// Counts a `try_…` call that succeeded.
    #[inline(always)]
    pub(crate) fn succeed(&self) {
        self.spend();
        self.failures.set(0);
    }

    /// Counts a `try_…` call that failed. False after too many in a row.
    #[inline(always)]
    pub(crate) fn fail(&self) -> bool {
        self.spend();
        let failures = (self.failures.get() + 1).min(CALLS);
        self.failures.set(failures);
        failures < CALLS
    }
}
