//! The number of calls that a fiber may make without suspending before other fibers run: see
//! [`Current::spend`].
//!
//! [`Current::spend`]: crate::worker::Current::spend

use std::cell::Cell;

/// The calls in a full budget; the last of them yields. Also the failures in a row after which a
/// `try_…` call yields.
const CALLS: u32 = 128;
const FULL: u32 = CALLS * COST;
/// The cost of a call.
const COST: u32 = 8;
/// That of an inline read or write, which takes longer than other calls.
const INLINE_COST: u32 = 2 * COST;
/// The same while other fibers are ready: each of them waits for all calls of a turn.
const INLINE_COST_AMONG_OTHERS: u32 = 16 * COST;
/// The same for a call of a program's that exchanges messages with a peer. An answer may wake the
/// peer on the worker's processor, and it asks again before the next call: such a fiber never
/// waits, and the others would for milliseconds.
const COST_WITH_PEER: u32 = 12 * COST;
/// That of any call of libc's in a program that is served, most of which do next to nothing.
const COST_OF_LIBC: u32 = 1;

/// See the module. Any suspension refills it.
pub(crate) struct Budget {
    left: Cell<u32>,
    /// `try_…` calls that have failed since the last success.
    failures: Cell<u32>,
}

impl Budget {
    pub(crate) const fn new() -> Budget {
        Budget { left: Cell::new(FULL), failures: Cell::new(0) }
    }

    #[inline(always)]
    pub(crate) fn refill(&self) {
        self.left.set(FULL);
        self.failures.set(0);
    }

    /// Takes one call. False if it was the last one.
    #[inline(always)]
    pub(crate) fn spend(&self) -> bool {
        self.take(COST);
        self.left.get() > 0
    }

    /// Takes one call of libc's. False if it was the last one.
    #[inline(always)]
    pub(crate) fn spend_of_libc(&self) -> bool {
        self.take(COST_OF_LIBC);
        self.left.get() > 0
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
