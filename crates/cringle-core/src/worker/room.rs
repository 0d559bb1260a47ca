//! The line of fibers that wait for room among the ops in flight (**I7**).
//!
//! Fibers get room in the order in which they asked for it, and no op overtakes them.

use super::Worker;
use crate::fiber::{FiberRef, RunState, Wait};
use cringle_driver::trace::Cause;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// See the module.
#[derive(Default)]
pub(super) struct RoomLine {
    queue: RefCell<VecDeque<FiberRef>>,
    /// Places granted to fibers that have not used them yet.
    granted: Cell<u32>,
    /// Fibers in the queue or with a granted place.
    len: Cell<u32>,
}

impl RoomLine {
    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        self.len.get()
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Puts the running fiber, which suspends next, at the end of the line.
    pub(super) fn join(&self, fiber: FiberRef) {
        self.len.set(self.len.get() + 1);
        self.queue.borrow_mut().push_back(fiber);
    }

    /// Takes the running fiber out of the line. True if it has a granted place, which it uses now.
    pub(super) fn leave(&self, fiber: FiberRef) -> bool {
        self.len.set(self.len.get() - 1);
        if !fiber.take_grant() {
            self.queue.borrow_mut().retain(|&waiting| waiting != fiber);
            return false;
        }
        self.granted.set(self.granted.get() - 1);
        true
    }

    /// Grants a place to the next fiber in line, if `room` exceeds the places granted already.
    fn grant_next(&self, room: u32) -> Option<FiberRef> {
        let mut queue = self.queue.borrow_mut();
        while self.granted.get() < room {
            let fiber = queue.pop_front()?;
            // A cancel may have ended its wait: then it is ready already, and leaves the line when
            // it runs.
            if fiber.state() == RunState::Waiting(Wait::Room) {
                debug_assert!(!fiber.take_grant(), "I7: a fiber gets one place");
                self.granted.set(self.granted.get() + 1);
                fiber.grant();
                return Some(fiber);
            }
        }
        None
    }
}

impl Worker {
    /// Hands out free places, in order.
    #[cold]
    pub(super) fn grant_room(&self) {
        let room = self.driver.borrow().room();
        while let Some(fiber) = self.room.grant_next(room) {
            self.make_runnable(fiber, Cause::Room);
        }
    }
}
