//! Ops from fibers.

use super::lent_memory::LentMemory;
use super::options::Fault;
use super::{Flight, Sim, Stage, lock};
use cringle_driver::{Completion, Full, Op, Waiter};

impl Sim {
    /// Queues one op. The next [`enter`](Self::enter) submits it.
    ///
    /// # Safety
    ///
    /// I1: the completion, the waiter and everything the op points to stay where they are until
    /// nothing is owed to the waiter.
    pub(crate) unsafe fn push(
        &mut self,
        op: &Op,
        completion: &Completion,
        waiter: &Waiter,
    ) -> Result<(), Full> {
        let mut core = lock(&self.core);
        let waits_for_peer = op.waits_for_peer();
        if !waits_for_peer && (self.in_flight >= self.limit || core.draw(Fault::QueueFull)) {
            return Err(Full);
        }
        let number = self.next_flight;
        self.next_flight += 1;
        core.note(2, op.name() as u64, number as i64);
        let reused = |flight: &Flight| std::ptr::eq(flight.completion, completion);
        if self.flights.values().any(reused) {
            let text =
                format!("the frame of {} was reused before the op ended", op.name().as_str());
            core.fail(super::Checker::Completions, text);
        }
        completion.start(op, waiter);
        // SAFETY: I1, by this function's contract.
        let lent = unsafe { LentMemory::take(op) };
        let flight = Flight { op: *op, completion, stage: Stage::Queued, lent };
        self.flights.insert(number, flight);
        self.queued.push_back(number);
        self.in_flight += u32::from(!waits_for_peer);
        Ok(())
    }
}
