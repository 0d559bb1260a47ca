//! A list of waiters, in the order of their arrival. A waiter lies in the frame of its caller, so
//! joining and leaving allocate nothing.

use std::cell::Cell;
use std::ptr::NonNull;

/// A waiter's place in its list.
pub struct Links<W> {
    queued: Cell<bool>,
    previous: Cell<Option<NonNull<W>>>,
    next: Cell<Option<NonNull<W>>>,
}

impl<W> Links<W> {
    /// For the holder of the list's lock.
    pub fn is_queued(&self) -> bool {
        self.queued.get()
    }
}

impl<W> Default for Links<W> {
    fn default() -> Links<W> {
        Links { queued: Cell::new(false), previous: Cell::new(None), next: Cell::new(None) }
    }
}

pub trait Linked: Sized {
    fn links(&self) -> &Links<Self>;
}

/// See the module. It is under a lock, under which alone the links are touched (**I10**).
pub struct WaiterList<W> {
    first: Option<NonNull<W>>,
    last: Option<NonNull<W>>,
}

impl<W: Linked> WaiterList<W> {
    #[expect(clippy::new_without_default, reason = "it is made in constants")]
    pub const fn new() -> WaiterList<W> {
        WaiterList { first: None, last: None }
    }

    #[inline]
    pub fn first(&self) -> Option<NonNull<W>> {
        self.first
    }

    pub fn iter(&self) -> impl Iterator<Item = NonNull<W>> {
        // SAFETY: I10. It is queued, so its frame stays.
        std::iter::successors(self.first, |waiter| unsafe { waiter.as_ref() }.links().next.get())
    }

    /// Appends a waiter.
    ///
    /// # Safety
    ///
    /// The waiter is in no list, and does not move before it has left this one by
    /// [`remove`](Self::remove).
    pub unsafe fn push(&mut self, waiter: &W) {
        let (node, links) = (NonNull::from(waiter), waiter.links());
        debug_assert!(!links.is_queued(), "I10: a waiter is in one list");
        links.queued.set(true);
        links.previous.set(self.last);
        match self.last.replace(node) {
            // SAFETY: I10. A queued waiter's frame stays, by the contract of `push`.
            Some(last) => unsafe { last.as_ref() }.links().next.set(Some(node)),
            None => self.first = Some(node),
        }
    }

    /// Removes a waiter, which must belong to this list or to none. Returns whether it was queued.
    pub fn remove(&mut self, waiter: &W) -> bool {
        let links = waiter.links();
        if !links.queued.replace(false) {
            return false;
        }
        let (previous, next) = (links.previous.take(), links.next.take());
        match previous {
            // SAFETY: I10. Its neighbours are queued, so their frames stay.
            Some(previous) => unsafe { previous.as_ref() }.links().next.set(next),
            None => self.first = next,
        }
        match next {
            // SAFETY: I10. As above.
            Some(next) => unsafe { next.as_ref() }.links().previous.set(previous),
            None => self.last = previous,
        }
        true
    }
}
