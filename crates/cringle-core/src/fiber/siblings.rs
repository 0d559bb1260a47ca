//! The members of a family, linked through their blocks: kept where families move.

use super::{Fiber, FiberRef};
use std::cell::Cell;

/// The members that have started and not ended. Only the family's host touches it (**I3**).
#[derive(Default)]
pub(crate) struct Siblings {
    first: Cell<Option<FiberRef>>,
}

/// A member's place in the list.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    previous: Option<FiberRef>,
    next: Option<FiberRef>,
}

impl Siblings {
    pub(crate) fn add(&self, fiber: FiberRef) {
        let next = self.first.replace(Some(fiber));
        fiber.set_sibling_place(Place { previous: None, next });
        if let Some(next) = next {
            next.set_sibling_place(Place { previous: Some(fiber), ..next.sibling_place() });
        }
    }

    pub(crate) fn remove(&self, fiber: FiberRef) {
        let Place { previous, next } = fiber.sibling_place();
        match previous {
            Some(previous) => {
                previous.set_sibling_place(Place { next, ..previous.sibling_place() });
            }
            None => self.first.set(next),
        }
        if let Some(next) = next {
            next.set_sibling_place(Place { previous, ..next.sibling_place() });
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = FiberRef> {
        std::iter::successors(self.first.get(), |fiber| fiber.sibling_place().next)
    }
}

impl Fiber {
    fn sibling_place(&self) -> Place {
        self.cold.siblings.get()
    }

    fn set_sibling_place(&self, place: Place) {
        self.cold.siblings.set(place);
    }
}
