//! Giving an op up: at once, unless a thread has begun it. Its completion comes all the same (**I1**), with
//! what was moved before. One that was not outcome yet is outcome: as on a ring, which takes the op before the
//! cancel, what can be done without waiting is done.

use super::Epoll;
use super::flight::Stage;
use crate::driver::Completion;
use crate::driver::completion::OpState;

impl Epoll {
    pub(crate) fn cancel(&mut self, completion: &Completion) {
        if completion.state() != OpState::InFlight {
            return;
        }
        let number = completion.cancel_place.get() as u32;
        let flight = self.flights.get_mut(number);
        flight.cancelled = true;
        debug_assert!(std::ptr::eq(flight.completion, completion));
        match &flight.stage {
            Stage::Ended | Stage::Queued => return,
            Stage::Offloaded(job) if !job.withdraw() => return,
            Stage::Offloaded(_) => {}
            Stage::Backoff(_) => self.backing_off.retain(|&later| later != number),
            &Stage::Waiting(fd, direction) => {
                self.wait_queues.remove(&mut self.flights, fd, direction, number)
            }
        }
        let result = self.flights.get(number).total(-libc::ECANCELED);
        self.end(number, result);
    }
}
