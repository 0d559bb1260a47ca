//! Cancels. A cancel takes effect at once, unless a thread has begun the op. The op's completion
//! still arrives (**I1**), with the bytes that were moved before. An op that has not been attempted
//! yet is attempted once: as on a ring, which consumes the op before its cancel, it completes if it
//! need not wait.

use super::Epoll;
use super::flight::Stage;
use crate::Completion;
use crate::completion::OpState;

impl Epoll {
    /// Requests that an op be cancelled. Its completion still arrives (**I1**).
    pub(crate) fn cancel(&mut self, completion: &Completion) {
        if completion.state() != OpState::InFlight {
            return;
        }
        let number = completion.cancel_place.get() as u32;
        let flight = self.flights.get_mut(number);
        debug_assert!(std::ptr::eq(flight.completion, completion), "I9: not this op's number");
        flight.cancelled = true;
        match &flight.stage {
            Stage::Ended | Stage::Queued => return,
            Stage::Offloaded(job) if !job.withdraw() => return,
            Stage::Offloaded(_) => {}
            Stage::Backoff(_) => self.backing_off.retain(|&other| other != number),
            &Stage::Waiting(fd, direction) => {
                self.wait_queues.remove(&mut self.flights, fd, direction, number);
            }
        }
        let result = self.flights.get(number).total(-libc::ECANCELED);
        self.end(number, result);
    }
}
