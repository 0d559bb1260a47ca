//! The state that the [hazard detector](crate::runtime::hazards) keeps for a fiber.

use super::Fiber;
use crate::runtime::hazards::PLACE_BYTES;
use crate::runtime::identity::Meta;
use crate::runtime::label::Origins;
use crate::runtime::stack;
use std::cell::Cell;

/// See the module.
#[derive(Default)]
pub(super) struct Hazards {
    holds_guards: Cell<bool>,
    /// The span of `tracing` in which it was resumed.
    #[cfg(all(feature = "detect", not(feature = "tracing")))]
    resumed_in: Cell<Option<u64>>,
}

impl Hazards {
    /// Prepares for a new fiber.
    pub(super) fn reset(&self) {
        self.holds_guards.set(false);
        #[cfg(all(feature = "detect", not(feature = "tracing")))]
        self.resumed_in.set(None);
    }
}

#[cfg(all(feature = "detect", not(feature = "tracing")))]
impl Fiber {
    pub(in crate::runtime) fn resumed_in(&self) -> Option<u64> {
        self.hazards.resumed_in.get()
    }

    pub(in crate::runtime) fn set_resumed_in(&self, span: Option<u64>) {
        self.hazards.resumed_in.set(span);
    }
}

impl Fiber {
    /// Whether it may hold guards that the detector has listed, and is looked at when it is
    /// suspended.
    #[inline(always)]
    pub(in crate::runtime) fn holds_guards(&self) -> bool {
        self.hazards.holds_guards.get()
    }

    #[inline]
    pub(in crate::runtime) fn set_holds_guards(&self, holds: bool) {
        self.hazards.holds_guards.set(holds);
    }

    /// The name and the place of the spawn, as far as they are known.
    pub(in crate::runtime) fn origins(&self) -> Origins {
        self.meta().map(Meta::origins).unwrap_or_default()
    }

    /// Whether the caller runs on this stack (not on one that the fiber's code has made) and
    /// may use this much of it.
    pub(in crate::runtime) fn has_room(&self, bytes: usize) -> bool {
        let (usable, pointer) = (self.stack().usable(), stack::pointer());
        usable.contains(&pointer) && pointer - usable.start >= bytes
    }

    /// Whether a place of the program can be looked up on the caller's stack.
    pub(in crate::runtime) fn has_room_for_place(&self) -> bool {
        self.has_room(PLACE_BYTES)
    }
}
