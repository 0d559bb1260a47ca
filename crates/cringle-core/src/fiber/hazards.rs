//! The state that the [hazard detector](crate::hazards) keeps for a fiber.

use super::Fiber;
use crate::hazards::PLACE_BYTES;
use crate::identity::Meta;
use crate::label::Origins;
use crate::spans::OfFiber;
use crate::stack;
use std::cell::Cell;

/// See the module.
#[derive(Default)]
pub(super) struct Hazards {
    holds_guards: Cell<bool>,
    spans: OfFiber,
}

impl Hazards {
    /// Prepares for a new fiber.
    pub(super) fn reset(&self) {
        self.holds_guards.set(false);
        self.spans.reset();
    }
}

impl Fiber {
    /// What is kept of the spans that it is in.
    pub fn spans(&self) -> &OfFiber {
        &self.hazards.spans
    }

    /// Whether it may hold guards that the detector has listed, and is looked at when it is
    /// suspended.
    #[inline(always)]
    pub(crate) fn holds_guards(&self) -> bool {
        self.hazards.holds_guards.get()
    }

    #[inline]
    pub(crate) fn set_holds_guards(&self, holds: bool) {
        self.hazards.holds_guards.set(holds);
    }

    /// The name and the place of the spawn, as far as they are known.
    pub fn origins(&self) -> Origins {
        self.meta().map(Meta::origins).unwrap_or_default()
    }

    /// Whether the caller runs on this stack (not on one that the fiber's code has made) and
    /// may use this much of it.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let (usable, pointer) = (self.stack().usable(), stack::pointer());
        usable.contains(&pointer) && pointer - usable.start >= bytes
    }

    /// Whether a place of the program can be looked up on the caller's stack.
    pub(crate) fn has_room_for_place(&self) -> bool {
        self.has_room(PLACE_BYTES)
    }
}
