//! The kernel's work during an enter: it submits queued ops and performs due ones. Where the kernel
//! would sleep, the virtual time jumps.

use super::options::Fault;
use super::perform::Outcome;
use super::{Checker, Core, Cqe, Event, HaltReason, Sim, Stage, baton, lock};
use cringle_driver::{OpName, Wait};
use cringle_sys::lock::MutexGuard;
use std::sync::Arc;

/// The number of completions in the queue from which on it may overflow.
const SMALL_QUEUE: usize = 1;

impl Sim {
    /// Whether [`reap`](Self::reap) finds a completion, and whether the worker should
    /// [`enter`](Self::enter). The virtual time advances a little, so that a fiber which spins for
    /// an event sees it arrive.
    pub(crate) fn attention(&mut self) -> (bool, bool) {
        let mut core = lock(&self.core);
        if !core.turn() {
            core.baton.halt(HaltReason::Livelock);
        }
        let mut core = baton::hand_over(core, self.worker);
        if let Some(reason) = core.baton.heed(self.worker) {
            self.halt.set(Some(reason));
        }
        let due = self.timeline.first_key_value().is_some_and(|(&(at, _), _)| at <= core.now_ns);
        let enter = due
            || !self.queued.is_empty()
            || !self.blocked.is_empty()
            || !self.overflow.is_empty()
            || self.halt.get().is_some();
        (!self.completions.is_empty(), enter)
    }

    /// Submits queued ops and performs due ones. Instead of sleeping, it moves the time to the next
    /// event.
    pub(crate) fn enter(&mut self, wait: Wait) {
        let core = Arc::clone(&self.core);
        let mut guard = lock(&core);
        let core = &mut *guard;
        if wait == Wait::No && core.draw(Fault::EarlyReturn) {
            return;
        }
        self.submit(core);
        self.flush_overflow();
        self.run_due(core);
        let Wait::Until(deadline) = wait else { return };
        let deadline_ns = deadline.map(|at| core.at_ns(at));
        if !core.baton.is_alone() {
            return self.sleep(guard, deadline_ns);
        }
        while self.completions.is_empty() && self.halt.get().is_none() {
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
                    core.baton.halt(HaltReason::Deadlock);
                    self.halt.set(core.baton.heed(self.worker));
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

    /// Sleeps as one of several workers: the others run meanwhile.
    fn sleep(&mut self, mut guard: MutexGuard<'_, Core>, deadline_ns: Option<u64>) {
        while self.completions.is_empty() && self.halt.get().is_none() {
            let core = &mut *guard;
            self.submit(core);
            self.flush_overflow();
            if !self.queued.is_empty() || !self.completions.is_empty() {
                continue;
            }
            let next = self.timeline.first_key_value().map(|(&(at, _), _)| at);
            let until_ns = [next, deadline_ns].into_iter().flatten().min();
            guard = baton::sleep(guard, self.worker, until_ns, !self.blocked.is_empty());
            let core = &mut *guard;
            self.run_due(core);
            if let Some(reason) = core.baton.heed(self.worker) {
                self.halt.set(Some(reason));
            }
            let is_due = until_ns.is_some_and(|until| until <= core.now_ns);
            if core.baton.take_ring(self.worker)
                || deadline_ns.is_some_and(|deadline| deadline <= core.now_ns)
                || (is_due && core.draw(Fault::EarlyReturn))
            {
                return;
            }
        }
    }

    fn submit(&mut self, core: &mut Core) {
        let mut count = self.queued.len();
        if count > 0 && core.draw(Fault::PartialSubmit) {
            count = core.rng.below(count as u64) as usize;
        }
        self.counts.entered(count as u32);
        self.counts.in_flight.set(self.flights.len() as u64);
        for _ in 0..count {
            let number = self.queued.pop_front().expect("counted above");
            let at_ns = match core.latency_ns() {
                Some(latency) => core.now_ns.saturating_add(latency),
                None => (core.now_ns.saturating_add(core.any_latency_ns())).max(self.last_due_ns),
            };
            self.last_due_ns = self.last_due_ns.max(at_ns);
            let key = self.schedule(at_ns, Event::Perform(number));
            self.flights.get_mut(&number).expect("the op is in flight").stage = Stage::Armed(key);
        }
    }

    fn flush_overflow(&mut self) {
        if !self.overflow.is_empty() {
            self.counts.overflows.bump();
        }
        self.completions.append(&mut self.overflow);
    }

    /// Performs due events and attempts blocked ops, until none of them makes progress.
    fn run_due(&mut self, core: &mut Core) {
        loop {
            let mut moved = false;
            while let Some(first) = self.timeline.first_entry()
                && first.key().0 <= core.now_ns
            {
                moved = true;
                match first.remove() {
                    Event::Perform(number) => drop(self.attempt(core, number)),
                    Event::Release(number, result) => self.end(core, number, result),
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

    /// Attempts an op. Returns whether it has ended.
    fn attempt(&mut self, core: &mut Core, number: u64) -> bool {
        let flight = self.flights.get_mut(&number).expect("the op is in flight");
        #[cfg(any(test, feature = "sabotage"))]
        super::sabotage::before(core, flight);
        if core.would_block(&flight.op, &self.fixed) {
            flight.stage = Stage::Blocked;
            self.blocked.push(number);
            return false;
        }
        if core.count_op() {
            self.halt.set(Some(HaltReason::PowerLost));
        }
        let name = flight.op.name();
        if !flight.lent.give_to_op() {
            let text =
                format!("the memory of {} changed before the op was performed", name.as_str());
            core.fail(Checker::Buffers, text);
        }
        let outcome = if core.has_power() && core.exceeds_size(&flight.op, &self.fixed) {
            Outcome::Done(-libc::EFBIG)
        } else {
            core.perform(&flight.op, &self.fixed)
        };
        match outcome {
            Outcome::Done(result) if flight.op.name() == OpName::SendZc => {
                self.post_early_result(core, number, result);
                true
            }
            Outcome::Done(result) => {
                self.complete(core, number, result);
                true
            }
            Outcome::WouldBlock => {
                // SAFETY: I1. The op has not ended, so by the contract of `push` its pointers are
                // valid.
                flight.lent = unsafe { super::LentMemory::take(&flight.op) };
                flight.stage = Stage::Blocked;
                self.blocked.push(number);
                false
            }
        }
    }

    /// Ends an op with this result, now that its memory has its last contents.
    pub(super) fn complete(&mut self, core: &mut Core, number: u64, result: i32) {
        let flight = self.flights.get_mut(&number).expect("the op is in flight");
        #[cfg(any(test, feature = "sabotage"))]
        super::sabotage::performed(core, flight);
        flight.lent.seal();
        self.end(core, number, result);
    }

    /// Gives an op its result, and keeps its memory for a while.
    fn post_early_result(&mut self, core: &mut Core, number: u64, result: i32) {
        let flight = self.flights.get_mut(&number).expect("the op is in flight");
        flight.stage = Stage::EarlyResult;
        flight.lent.seal();
        #[cfg(any(test, feature = "sabotage"))]
        super::sabotage::early_result(core, flight);
        self.post(core, Cqe::EarlyResult { flight: number, result });
        let latency = core.latency_ns().unwrap_or_else(|| core.any_latency_ns());
        self.schedule(core.now_ns.saturating_add(latency), Event::Release(number, result));
    }

    /// Ends an op: posts the entry that returns its memory to the caller.
    fn end(&mut self, core: &mut Core, number: u64, result: i32) {
        let flight = self.flights.get_mut(&number).expect("the op is in flight");
        flight.stage = Stage::Done;
        #[cfg(any(test, feature = "sabotage"))]
        if super::sabotage::after(core, flight) {
            return;
        }
        self.post(core, Cqe::Op { flight: number, result });
    }

    /// Puts an entry into the completion queue, or lets the queue overflow.
    pub(super) fn post(&mut self, core: &mut Core, cqe: Cqe) {
        let full = self.completions.len() >= SMALL_QUEUE && core.draw(Fault::CompletionOverflow);
        if full || !self.overflow.is_empty() {
            self.overflow.push_back(cqe);
        } else {
            self.completions.push_back(cqe);
        }
    }
}
