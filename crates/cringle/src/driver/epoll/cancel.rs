//! Giving an op up: at once, unless a thread has begun it. Its completion comes all the same (**I1**), with
//! what was moved before.

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
        debug_assert!(std::ptr::eq(flight.completion, completion));
        match &flight.stage {
            Stage::Ended => return,
            Stage::Aside(job) if !job.take_back() => return,
            Stage::Aside(_) => {}
            Stage::Queued => self.queued.retain(|&queued| queued != number),
            Stage::Later(_) => self.later.retain(|&later| later != number),
            &Stage::Waiting(fd, way) => self.waits.remove(&mut self.flights, fd, way, number),
        }
        let result = self.flights.get(number).total(-libc::ECANCELED);
        self.end(number, result);
    }
}
