//! Ending a fiber's wait: here, or by message on another worker.

use super::Worker;
use super::fiber_table::Found;
use crate::fiber::{FiberId, FiberRef, RunState, Wait};
use crate::inbox::Posted;
use crate::shared::{Mail, MailBox};
use cringle_driver as driver;
use cringle_driver::trace::Cause;
use std::sync::Arc;

impl Worker {
    /// Ends the wait of a fiber, if a wake-up can end it: here, or by message if the fiber has
    /// moved away. A fiber that has ended is not found.
    pub fn wake(&self, id: FiberId) {
        self.wake_from(id, Some(self.index));
    }

    /// [`wake`](Self::wake) by a fiber of the given worker, if by a fiber. The woken one may follow
    /// it there.
    pub(super) fn wake_from(&self, id: FiberId, by: Option<u32>) {
        let Some(fiber) = self.find(id, || Mail::Wake(id, by)) else { return };
        let draws = || self.draws_move();
        match by.filter(|&by| self.moves.follows(fiber, by, || self.now(), draws)) {
            Some(by) => {
                fiber.set_state(RunState::Runnable);
                self.events.made_ready(fiber, Cause::Wake);
                let traveller = self.depart(fiber);
                self.mail(&self.shared.peers[by as usize].mailbox, Mail::Arrive(traveller));
            }
            None => self.make_ready(fiber, Cause::Wake),
        }
    }

    /// Finds a fiber that this worker hosts. A message for one that lives elsewhere is sent there;
    /// then, and if the fiber has ended, there is nothing to do here.
    #[inline]
    pub(super) fn find(&self, id: FiberId, message: impl FnOnce() -> Mail) -> Option<FiberRef> {
        match self.table.find(id)? {
            Found::Here(fiber) => return Some(fiber),
            Found::Away(transit) => {
                let message = message();
                let is_wake = matches!(message, Mail::Wake(..));
                if let Some((host, message)) = transit.leave(message, is_wake) {
                    self.mail(&self.shared.peers[host].mailbox, message);
                }
            }
        }
        None
    }

    /// Puts a waiting fiber into the ready queue. A fiber that waits for ops stays: only their last
    /// completion resumes it (**I1**). So does one that waits for room, which is granted in order, and
    /// one on a thread of its own.
    pub(crate) fn make_ready(&self, fiber: FiberRef, cause: Cause) {
        match fiber.state() {
            RunState::Waiting(Wait::Ops | Wait::Room | Wait::Thread) => {}
            RunState::Waiting(_) => self.make_runnable(fiber, cause),
            RunState::Runnable | RunState::Vacant => {}
        }
    }

    /// Ends a fiber's wait, whatever it waits for.
    #[inline]
    pub(super) fn make_runnable(&self, fiber: FiberRef, cause: Cause) {
        debug_assert!(matches!(fiber.state(), RunState::Waiting(_)), "I3: its wait is over");
        fiber.set_state(RunState::Runnable);
        self.schedule.ready().push(fiber);
        self.events.made_ready(fiber, cause);
    }

    /// Sends a message to another worker. If that worker has ended, so has the fiber that the
    /// message is for.
    pub fn mail(&self, mailbox: &Arc<MailBox>, message: Mail) {
        if let Mail::Wake(id, _) = message {
            self.events.sent_wake(mailbox, id);
        }
        if let Ok(Posted::MustWake) = mailbox.inbox.post(message) {
            self.wake_peer(mailbox);
        }
    }

    /// Wakes a sleeping worker: from ring to ring if it belongs to this runtime, else by its bell
    /// (**I9**). The message is submitted at once, because the fiber that sends it may compute for
    /// long.
    pub(super) fn wake_peer(&self, mailbox: &Arc<MailBox>) {
        self.events.woke(mailbox);
        let is_ours = self.shared.has(mailbox);
        let by_ring = |ring| is_ours && self.driver.borrow_mut().send_wake(ring, mailbox.worker);
        match mailbox.ring() {
            Some(ring) if by_ring(ring) => self.enter_driver(driver::Wait::No),
            _ => mailbox.inbox.ring_bell(),
        }
    }
}
