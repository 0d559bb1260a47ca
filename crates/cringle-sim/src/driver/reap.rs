//! Completions to their frames.

use super::{Checker, Core, Cqe, Sim, Stage, lock};
use cringle_driver::Token;
use cringle_driver::completion::{Completion, OpState};
use cringle_driver::op::OpName;
use std::sync::Arc;

impl Sim {
    /// Takes every completion in the queue. `sink` gets the token of each frame to which nothing
    /// more is owed; it runs no fiber.
    pub(crate) fn reap(&mut self, mut sink: impl FnMut(Token)) {
        let core = Arc::clone(&self.core);
        let core = &mut *lock(&core);
        while let Some(cqe) = self.completions.pop_front() {
            let settled = match cqe {
                Cqe::Op { flight, result } => self.op_ended(core, flight, result),
                Cqe::EarlyResult { flight, result } => {
                    self.early_result_arrived(core, flight, result)
                }
                Cqe::Cancel { ask, result } => self.cancel_answered(core, ask, result),
            };
            settled.map(&mut sink);
        }
        self.counts.in_flight.set(self.flights.len() as u64);
    }

    fn early_result_arrived(&mut self, core: &mut Core, number: u64, result: i32) -> Option<Token> {
        core.note(8, number, result.into());
        // The entry that ends the op is behind this one, so the op is still in flight.
        let flight = self.flights.get(&number).expect("the op is in flight");
        // SAFETY: I1. `push` stored the address of a completion that by its contract stays in place
        // until nothing is owed to its frame, and the entry that ends the op is still owed.
        unsafe { &*flight.completion }.set_early_result(result);
        None
    }

    fn op_ended(&mut self, core: &mut Core, number: u64, result: i32) -> Option<Token> {
        let flight = match self.flights.remove(&number) {
            Some(flight) if flight.stage == Stage::Done => flight,
            // Its frame may be gone and must not be touched.
            _ => {
                core.fail(Checker::Completions, format!("operation {number} ended twice"));
                return None;
            }
        };
        let name = flight.op.name();
        if !flight.lent.is_untouched() {
            let text = format!("the memory of {} changed before its fiber resumed", name.as_str());
            core.fail(Checker::Buffers, text);
        }
        // SAFETY: I1. `push` stored the address of a completion that by its contract stays in place
        // until nothing is owed to its frame. This entry is owed, because the op was still in
        // flight.
        let completion: &Completion = unsafe { &*flight.completion };
        if completion.state() != OpState::InFlight {
            let text = format!("{} was resumed before its completion", name.as_str());
            core.fail(Checker::Completions, text);
            return None;
        }
        // The number of a descriptor differs from run to run.
        let traced = match name {
            OpName::Open | OpName::Accept => result.min(0),
            _ => result,
        };
        core.note(3, number, traced.into());
        self.in_flight -= u32::from(completion.counts_against_limit());
        self.withdraw_cancel(completion);
        completion.finish(result);
        #[cfg(any(test, feature = "sabotage"))]
        super::sabotage::ended(core, self, number);
        completion.waiter_ref().settle_one()
    }
}
