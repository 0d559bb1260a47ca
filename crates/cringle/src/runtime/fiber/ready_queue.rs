//! The fibers that are ready, in the order in which they became so.

use super::FiberRef;
use std::cell::Cell;

/// Fibers in a row, first come, first served: linked through their blocks, so that putting one in
/// allocates nothing. A fiber is in one row at a time.
#[derive(Default)]
pub(in crate::runtime) struct ReadyQueue {
    first: Cell<Option<FiberRef>>,
    last: Cell<Option<FiberRef>>,
}

impl ReadyQueue {
    #[inline]
    pub(in crate::runtime) fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    #[inline]
    pub(in crate::runtime) fn push(&self, fiber: FiberRef) {
        debug_assert!(fiber.next.get().is_none());
        match self.last.replace(Some(fiber)) {
            Some(last) => last.next.set(Some(fiber)),
            None => self.first.set(Some(fiber)),
        }
    }

    /// Takes the whole row, which is then empty: its first fiber, with the others behind it.
    #[inline]
    pub(in crate::runtime) fn take_all(&self) -> Option<FiberRef> {
        self.last.set(None);
        self.first.take()
    }

    /// Puts what is left of a row that was taken in front of the others.
    #[cold]
    pub(in crate::runtime) fn put_back(&self, rest: Option<FiberRef>) {
        let behind = self.take_all();
        for mut next in [rest, behind] {
            while let Some(fiber) = next {
                next = fiber.unlink();
                self.push(fiber);
            }
        }
    }

    /// Takes one fiber out, wherever it is.
    #[cold]
    pub(in crate::runtime) fn remove(&self, fiber: FiberRef) {
        let mut next = self.take_all();
        while let Some(each) = next {
            next = each.unlink();
            if each != fiber {
                self.push(each);
            }
        }
    }
}

impl FiberRef {
    /// Takes a fiber out of a row that was [taken](ReadyQueue::take_all): the one behind it.
    #[inline]
    pub(in crate::runtime) fn unlink(self) -> Option<FiberRef> {
        self.next.take()
    }
}
