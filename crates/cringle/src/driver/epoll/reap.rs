//! Taking completions, each towards the frame it is owed to.

use super::Epoll;
use super::flight::Stage;
use crate::driver::Token;

impl Epoll {
    /// This is what came of an op. What it held is given back.
    pub(super) fn end(&mut self, number: u32, result: i32) {
        let flight = self.flights.get_mut(number);
        flight.stage = Stage::Ended;
        if let Some(hold) = flight.hold.take() {
            hold.release(flight.op.socket().unwrap_or(-1));
        }
        self.ended.push_back((number, result));
    }

    /// Takes every completion that has come. `sink` gets the token of each frame to which nothing more is
    /// owed; it runs no fiber.
    #[inline]
    pub(crate) fn reap(&mut self, mut sink: impl FnMut(Token)) {
        while let Some((number, result)) = self.ended.pop_front() {
            let flight = self.flights.remove(number);
            // SAFETY: I1. `push` stored the address of a completion that its frame keeps until nothing is
            // owed to it, and this is what is owed.
            let completion = unsafe { &*flight.completion };
            self.in_flight -= u32::from(completion.counts_against_limit());
            completion.finish(result);
            completion.waiter_ref().settle_one().map(&mut sink);
        }
        self.counts.in_flight.set(self.flights.len() as u64);
    }
}
