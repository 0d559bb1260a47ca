//! What the kernel would do while it is entered: take what is queued, perform what is due, and, in
//! place of sleeping, let the virtual time jump.

use super::options::Fault;
use super::perform::Outcome;
use super::{Checker, Core, Cqe, Event, HaltReason, Sim, Stage, lock};
use crate::driver::{Op, Wait};
use std::sync::Arc;

/// Completions that the queue holds when it may overflow.
const SMALL_QUEUE: usize = 1;

impl Sim {
    /// What a turn has to do: whether [`reap`](Self::reap) finds something, and whether something
    /// waits for [`enter`](Self::enter). The virtual time goes on a little, so that a fiber which
    /// spins for something to come sees it come.
    pub(crate) fn attention(&mut self) -> (bool, bool) {
        let mut core = lock(&self.core);
        if !core.turn() {
            self.halt = Some(HaltReason::Livelock);
        }
        let due = self.timeline.first_key_value().is_some_and(|(&(at, _), _)| at <= core.now_ns);
        let enter = due
            || !self.queued.is_empty()
            || !self.blocked.is_empty()
            || !self.overflow.is_empty()
            || self.halt.is_some();
        (!self.completions.is_empty(), enter)
    }

    /// Submits what is queued and performs what is due. One that is to wait does not sleep: the
    /// time jumps to what comes next.
    pub(crate) fn enter(&mut self, wait: Wait) {
        let core = Arc::clone(&self.core);
        let core = &mut *lock(&core);
        if wait == Wait::No && core.draw(Fault::EarlyReturn) {
            return;
        }
        self.submit(core);
        self.flush_overflow();
        self.run_due(core);
        let Wait::Until(deadline) = wait else { return };
        let deadline_ns = deadline.map(|at| core.at_ns(at));
        while self.completions.is_empty() && self.halt.is_none() {
            self.submit(core);
            self.flush_overflow();
            let next = self.timeline.first_key_value().map(|(&(at, _), _)| at);
            if !self.queued.is_empty() || !self.completions.is_empty() {
                continue;
            }
            let jump = match (next, deadline_ns) {
                (Some(next), Some(deadline)) => next.min(deadline),
                (Some(at), None) | (None, Some(at)) => at,
                (None, None) => {
                    self.halt = Some(HaltReason::Deadlock);
                    return;
                }
            };
            core.now_ns = core.now_ns.max(jump);
            self.run_due(core);
            if deadline_ns.is_some_and(|deadline| deadline <= core.now_ns)
                || core.draw(Fault::EarlyReturn)
            {
                return;
            }
        }
    }

    /// Has everything taken that is queued. Messages to other workers are none of it here.
    pub(crate) fn flush(&mut self) {}

    fn submit(&mut self, core: &mut Core) {
        let mut count = self.queued.len();
        if count > 0 && core.draw(Fault::PartialSubmit) {
            count = core.rng.below(count as u64) as usize;
        }
        self.counts.entered(count as u32);
        self.counts.in_flight.set(self.flights.len() as u64);
        for _ in 0..count {
            let number = self.queued.pop_front().expect("it was counted");
            let at_ns = match core.latency_ns() {
                Some(latency) => core.now_ns.saturating_add(latency),
                None => (core.now_ns.saturating_add(core.any_latency_ns())).max(self.last_due_ns),
            };
            self.last_due_ns = self.last_due_ns.max(at_ns);
            let key = self.plan(at_ns, Event::Perform(number));
            self.flights.get_mut(&number).expect("it is under way").stage = Stage::Armed(key);
        }
    }

    fn flush_overflow(&mut self) {
        if !self.overflow.is_empty() {
            self.counts.overflows.bump();
        }
        self.completions.append(&mut self.overflow);
    }

    /// Performs what is due, and tries again what waited for a peer, until nothing moves.
    fn run_due(&mut self, core: &mut Core) {
        loop {
            let mut moved = false;
            while let Some(first) = self.timeline.first_entry()
                && first.key().0 <= core.now_ns
            {
                moved = true;
                match first.remove() {
                    Event::Perform(number) => drop(self.attempt(core, number)),
                    Event::LetGo(number, result) => self.end(core, number, result),
                    Event::Cancel(ask) => self.cancel_arrives(core, ask),
                }
            }
            for number in std::mem::take(&mut self.blocked) {
                moved |= self.attempt(core, number);
            }
            if !moved {
                return;
            }
        }
    }

    /// Tries to perform an op; whether it has ended.
    fn attempt(&mut self, core: &mut Core, number: u64) -> bool {
        let flight = self.flights.get_mut(&number).expect("it is under way");
        #[cfg(any(test, feature = "sabotage"))]
        super::sabotage::before(core, flight);
        if core.would_block(&flight.op, &self.fixed) {
            flight.stage = Stage::Blocked;
            self.blocked.push(number);
            return false;
        }
        if core.count_op() {
            self.halt = Some(HaltReason::PowerLost);
        }
        let name = flight.op.name();
        if !flight.lent.give_to_op() {
            let text =
                format!("the memory of {} was changed before it was performed", name.as_str());
            core.fail(Checker::Buffers, text);
        }
        match core.perform(&flight.op, &self.fixed) {
            Outcome::Ended(result) if matches!(flight.op, Op::SendZc { .. }) => {
                self.note(core, number, result);
                true
            }
            Outcome::Ended(result) => {
                self.complete(core, number, result);
                true
            }
            Outcome::WouldBlock => {
                // SAFETY: I1. The op has not ended.
                flight.lent = unsafe { super::LentMemory::take(&flight.op) };
                flight.stage = Stage::Blocked;
                self.blocked.push(number);
                false
            }
        }
    }

    /// The op has this result: its completion goes into the queue.
    pub(super) fn complete(&mut self, core: &mut Core, number: u64, result: i32) {
        let flight = self.flights.get_mut(&number).expect("it is under way");
        #[cfg(any(test, feature = "sabotage"))]
        super::sabotage::performed(core, flight);
        flight.lent.seal();
        self.end(core, number, result);
    }

    /// The op has this result, and keeps its memory for a while.
    fn note(&mut self, core: &mut Core, number: u64, result: i32) {
        let flight = self.flights.get_mut(&number).expect("it is under way");
        flight.stage = Stage::Noted;
        flight.lent.seal();
        #[cfg(any(test, feature = "sabotage"))]
        super::sabotage::noted(core, flight);
        self.post(core, Cqe::Noted { flight: number, result });
        let latency = core.latency_ns().unwrap_or_else(|| core.any_latency_ns());
        self.plan(core.now_ns.saturating_add(latency), Event::LetGo(number, result));
    }

    /// Nobody but its caller has the op's memory any more.
    fn end(&mut self, core: &mut Core, number: u64, result: i32) {
        let flight = self.flights.get_mut(&number).expect("it is under way");
        flight.stage = Stage::Done;
        #[cfg(any(test, feature = "sabotage"))]
        if super::sabotage::after(core, flight) {
            return;
        }
        self.post(core, Cqe::Op { flight: number, result });
    }

    pub(super) fn post(&mut self, core: &mut Core, cqe: Cqe) {
        let full = self.completions.len() >= SMALL_QUEUE && core.draw(Fault::CompletionOverflow);
        match full || !self.overflow.is_empty() {
            true => self.overflow.push_back(cqe),
            false => self.completions.push_back(cqe),
        }
    }
}
