//! The fibers that are ready, and which of them may run.

use crate::fiber::{FiberRef, ReadyQueue};
use std::cell::Cell;

/// The ready fibers of a worker, first come, first served.
#[derive(Default)]
pub(super) struct Schedule {
    ready: ReadyQueue,
    /// Fibers of this turn will run after the current one.
    has_more_in_turn: Cell<bool>,
    /// The one fiber that may run, though it is suspended: see [`exclusive`](super::exclusive).
    alone: Cell<Option<FiberRef>>,
}

impl Schedule {
    #[inline(always)]
    pub(super) fn ready(&self) -> &ReadyQueue {
        &self.ready
    }

    #[inline(always)]
    pub(super) fn set_more_in_turn(&self, more: bool) {
        self.has_more_in_turn.set(more);
    }

    /// Whether a fiber other than the current one would run if that suspended.
    #[inline]
    pub(super) fn has_others(&self) -> bool {
        self.has_more_in_turn.get() || !self.ready.is_empty()
    }

    #[inline(always)]
    pub(super) fn alone(&self) -> Option<FiberRef> {
        self.alone.get()
    }

    /// Lets one fiber run alone, or no longer. Its family stays on this worker meanwhile.
    pub(super) fn set_alone(&self, fiber: Option<FiberRef>) {
        fiber.inspect(|fiber| fiber.family().pin());
        let before = self.alone.replace(fiber);
        before.inspect(|fiber| fiber.family().unpin());
    }
}
