//! The queue of ready fibers, in the order in which they became ready.

use super::FiberRef;
use std::cell::Cell;

/// Fibers, first in, first out. Linked through their blocks, so that a push allocates nothing. A
/// fiber is in one queue at a time.
#[derive(Default)]
pub(crate) struct ReadyQueue {
    first: Cell<Option<FiberRef>>,
    last: Cell<Option<FiberRef>>,
}

impl ReadyQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    pub(crate) fn first(&self) -> Option<FiberRef> {
        self.first.get()
    }

    #[inline]
    pub(crate) fn push(&self, fiber: FiberRef) {
        debug_assert!(fiber.next.get().is_none(), "a fiber is in one queue");
        debug_assert_ne!(self.last.get(), Some(fiber), "a fiber is in the queue once");
        match self.last.replace(Some(fiber)) {
            Some(last) => last.next.set(Some(fiber)),
            None => self.first.set(Some(fiber)),
        }
    }

    /// Empties the queue. Returns its first fiber, with the others linked behind it.
    #[inline]
    pub(crate) fn take_all(&self) -> Option<FiberRef> {
        self.last.set(None);
        self.first.take()
    }

    /// Puts the rest of a queue that was taken in front of the others.
    #[cold]
    pub(crate) fn put_back(&self, rest: Option<FiberRef>) {
        let behind = self.take_all();
        for mut next in [rest, behind] {
            while let Some(fiber) = next {
                next = fiber.unlink();
                self.push(fiber);
            }
        }
    }

    /// Removes one fiber, wherever it is in the queue.
    #[cold]
    pub(crate) fn remove(&self, fiber: FiberRef) {
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
    /// The number of fibers in a queue that was taken, of which this is the first.
    pub(crate) fn count_queued(self) -> u32 {
        let mut count = 1;
        let mut next = self.next.get();
        while let Some(fiber) = next {
            next = fiber.next.get();
            count += 1;
        }
        count
    }

    /// Removes the first fiber of a queue that was [taken](ReadyQueue::take_all). Returns the next
    /// one.
    #[inline]
    pub(crate) fn unlink(self) -> Option<FiberRef> {
        self.next.take()
    }
}
