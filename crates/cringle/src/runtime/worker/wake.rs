//! Ending a fiber's wait: on this worker, and by message on another.

use super::Worker;
use crate::driver;
use crate::runtime::fiber::{FiberId, FiberRef, State, Wait};
use crate::runtime::inbox::Posted;
use crate::runtime::shared::{Mail, MailBox};
use std::sync::Arc;

impl Worker {
    /// Ends a wait of one of this worker's fibers, if it is in one that can be ended so.
    pub(crate) fn wake(&self, id: FiberId) {
        let fiber = self.table.borrow().get(id);
        if let Some(fiber) = fiber {
            self.make_ready(fiber);
        }
    }

    /// Puts a waiting fiber into the ready list. One that waits for its ops is not touched: only
    /// their last completion resumes it (**I1**).
    pub(crate) fn make_ready(&self, fiber: FiberRef) {
        match fiber.state() {
            State::Waiting(Wait::Ops | Wait::Room) => {}
            State::Waiting(_) => {
                self.seen_ready(fiber);
                fiber.set_state(State::Runnable);
                self.ready.push(fiber);
            }
            State::Runnable | State::Vacant => {}
        }
    }

    /// Leaves a message for another worker. One for a worker that is gone is for a fiber that is
    /// gone too.
    pub(crate) fn mail(&self, mailbox: &Arc<MailBox>, message: Mail) {
        if let Ok(Posted::MustWake) = mailbox.inbox.post(message) {
            self.wake_peer(mailbox);
        }
    }

    /// Wakes a sleeping worker: by a message of this ring to its ring if it is one of this
    /// runtime, else by its bell. The message is submitted at once, since the fiber that sends it
    /// may go on computing.
    pub(super) fn wake_peer(&self, mailbox: &Arc<MailBox>) {
        self.seen_wake(mailbox);
        let ours = self.shared.has(mailbox);
        let mut driver = self.driver.borrow_mut();
        match mailbox.ring() {
            Some(ring) if ours && driver.send_wake(ring, mailbox.worker) => {
                driver.enter(driver::Wait::No);
            }
            _ => mailbox.inbox.ring_bell(),
        }
    }
}
