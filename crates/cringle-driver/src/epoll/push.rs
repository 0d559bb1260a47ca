//! Ops from fibers.

use super::{Epoll, nowait};
use crate::{Completion, Full, Op, Waiter};

impl Epoll {
    /// Queues one op. The next [`enter`](Self::enter) attempts it.
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
        let waits_for_peer = op.waits_for_peer();
        if !waits_for_peer && self.in_flight >= self.limit {
            return Err(Full);
        }
        completion.start(op, waiter);
        let op = nowait::with_descriptor(op, |slot| self.registered.file(slot));
        let flight = self.flights.add(op, completion);
        completion.keep_file(&op);
        completion.cancel_place.set(flight.into());
        self.queued.push_back(flight);
        self.in_flight += u32::from(!waits_for_peer);
        debug_assert!(self.in_flight <= self.limit, "I7: more ops in flight than the limit");
        Ok(())
    }
}
