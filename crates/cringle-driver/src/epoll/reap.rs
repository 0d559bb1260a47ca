//! Completions to their frames.

use super::Epoll;
use super::flight::Stage;
use crate::Token;

impl Epoll {
    /// Ends an op with this result, and releases what it held.
    pub(super) fn end(&mut self, number: u32, result: i32) {
        let flight = self.flights.get_mut(number);
        debug_assert!(!matches!(flight.stage, Stage::Ended), "I5: an op was answered twice");
        flight.stage = Stage::Ended;
        if let Some(hold) = flight.hold.take() {
            hold.release(flight.op.socket().unwrap_or(-1));
        }
        if let Some((file, _)) = flight.kept.take() {
            drop(file.end());
        }
        self.ended.push_back((number, result));
    }

    /// Takes every completion that has arrived. `sink` gets the token of each frame to which
    /// nothing more is owed; it runs no fiber.
    #[inline]
    pub(crate) fn reap(&mut self, mut sink: impl FnMut(Token)) {
        while let Some((number, result)) = self.ended.pop_front() {
            let flight = self.flights.remove(number);
            // SAFETY: I1. `push` stored the address of a completion that by its contract stays in
            // place until nothing is owed to its frame, and this result is owed.
            let completion = unsafe { &*flight.completion };
            self.in_flight -= u32::from(completion.counts_against_limit());
            completion.finish(result);
            completion.waiter_ref().settle_one().map(&mut sink);
        }
        self.counts.in_flight.set(self.flights.len() as u64);
    }
}
