//! The cancels that reach a fiber, as its block records them.

mod late_clock;

use super::Fiber;
use crate::cancelled::Reason;
use crate::region::Regions;
use std::cell::Cell;
use std::time::Instant;

/// What was refused to a cancelled fiber, in the shield that it is in.
#[derive(Default)]
pub(super) struct Refusals {
    calls: Cell<u32>,
    clock: Cell<late_clock::LateClock>,
}

impl Refusals {
    pub(super) fn reset(&self) {
        self.calls.set(0);
        self.clock.set(late_clock::LateClock::default());
    }
}

impl Fiber {
    /// Whether a cancel reaches the place where the fiber is.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        let cancelled = self.cancelled.get();
        debug_assert_eq!(
            cancelled,
            self.regions().is_cancelled(),
            "`update_cancelled` follows each change of the regions"
        );
        cancelled
    }

    /// Determines again whether the fiber is cancelled, after a change of its regions.
    pub(crate) fn update_cancelled(&self) {
        let cancelled = self.cold.regions.is_cancelled();
        self.cancelled.set(cancelled);
        if !cancelled {
            // The fiber has left the cancelled region: no wait of it is to end.
            self.cold.asked_to_end.set(None);
        }
    }

    /// Why the fiber is cancelled at the place where it is.
    pub fn cause(&self) -> Option<Reason> {
        self.cold.regions.cause()
    }

    /// The error of a call that is refused or given up because the fiber is cancelled.
    #[cold]
    pub fn cancel_error(&self) -> std::io::Error {
        self.cause().unwrap_or(Reason::Cancelled).error()
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.cold.regions
    }

    /// When it was cancelled in a wait, if it was, and is still in the cancelled region.
    pub(crate) fn asked_to_end(&self) -> Option<Instant> {
        self.cold.asked_to_end.get()
    }

    pub(crate) fn set_asked_to_end(&self, at: Option<Instant>) {
        self.cold.asked_to_end.set(at);
    }

    /// The refusals in the shield that the fiber is in.
    pub fn refusals(&self) -> u32 {
        self.refusals.calls.get()
    }

    pub(crate) fn set_refusals(&self, refusals: u32) {
        self.refusals.calls.set(refusals);
    }

    /// Forgets the refusals, and the waits that were ended, as the fiber has left the cancelled
    /// region.
    pub(crate) fn reset_refusals(&self) {
        self.refusals.reset();
    }

    /// Counts a refusal. Returns the number so far.
    pub(crate) fn count_refusal(&self) -> u32 {
        let refusals = self.refusals.calls.get().saturating_add(1);
        self.refusals.calls.set(refusals);
        refusals
    }
}
