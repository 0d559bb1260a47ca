//! Ending a fiber's wait: on this worker, and by message on another.

use super::Worker;
use crate::driver;
use crate::runtime::fiber::{FiberId, FiberRef, State, Wait};
use crate::runtime::inbox::Posted;
use crate::runtime::shared::{Mail, MailBox};
use crate::trace::Cause;
use std::sync::Arc;

impl Worker {
    /// Ends a wait of one of this worker's fibers, if it is in one that can be ended so.
    pub(crate) fn wake(&self, id: FiberId) {
        let fiber = self.table.borrow().get(id);
        if let Some(fiber) = fiber {
            self.make_ready(fiber, Cause::Wake);
        }
    }

    /// Puts a waiting fiber into the ready list. One that waits for its ops is not touched: only
    /// their last completion resumes it (**I1**).
    pub(crate) fn make_ready(&self, fiber: FiberRef, cause: Cause) {
        match fiber.state() {
            State::Waiting(Wait::Ops | Wait::Room) => {}
            State::Waiting(_) => {
                fiber.set_state(State::Runnable);
                self.ready.push(fiber);
                self.events.made_ready(fiber, cause);
            }
            State::Runnable | State::Vacant => {}
        }
    }

    /// Leaves a message for another worker. One for a worker that is gone is for a fiber that is
    /// gone too.
    pub(crate) fn mail(&self, mailbox: &Arc<MailBox>, message: Mail) {
        if let Mail::Wake(id) = message {
            self.events.sent_wake(mailbox, id);
        }
        if let Ok(Posted::MustWake) = mailbox.inbox.post(message) {
            self.wake_peer(mailbox);
        }
    }

    /// Wakes a sleeping worker: by a message of this ring to its ring if it is one of this
    /// runtime, else by its bell. The message is submitted at once, since the fiber that sends it
    /// may go on computing.
    pub(super) fn wake_peer(&self, mailbox: &Arc<MailBox>) {
        self.events.woke(mailbox);
        let ours = self.shared.has(mailbox);
        let by_ring = |ring| ours && self.driver.borrow_mut().send_wake(ring, mailbox.worker);
        match mailbox.ring() {
            Some(ring) if by_ring(ring) => self.enter_driver(driver::Wait::No),
            _ => mailbox.inbox.ring_bell(),
        }
    }
}
