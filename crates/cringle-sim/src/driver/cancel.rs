//! Cancels of ops: before the op has begun, while it waits, or too late.
//!
//! As on a ring, the answer to a cancel is owed to the op's frame like the op's own, and a cancel
//! that finds its op about to run is repeated, after a pause that doubles.

use super::options::Fault;
use super::{Checker, Core, Cqe, Event, Sim, Stage, lock};
use cringle_driver::Token;
use cringle_driver::completion::{CancelState, Completion};
use std::sync::Arc;

const FIRST_PAUSE_NS: u64 = 1_000_000;
const MAX_DOUBLINGS: u8 = 10;

/// One attempt to cancel an op.
#[derive(Clone, Copy)]
pub(super) struct CancelRequest {
    completion: *const Completion,
    flight: u64,
    /// Whether this is a repetition, whose answer is owed only from its arrival on.
    is_retry: bool,
}

impl Sim {
    /// Requests that an op be cancelled. Its completion still arrives (**I1**).
    pub(crate) fn cancel(&mut self, completion: &Completion) {
        if !completion.is_cancellable() || completion.cancel.get() != CancelState::No {
            return;
        }
        let mut flights = self.flights.iter();
        let found = flights.find(|(_, flight)| std::ptr::eq(flight.completion, completion));
        let Some((&flight, _)) = found else { return };
        let at_ns = {
            let core = Arc::clone(&self.core);
            let mut core = lock(&core);
            core.note(4, flight, 0);
            core.stats.cancels += 1;
            let delay = if core.draw(Fault::CancelRace) { core.any_latency_ns() } else { 0 };
            core.now_ns.saturating_add(delay)
        };
        completion.cancel.set(CancelState::InFlight);
        completion.waiter_ref().owe();
        self.schedule(at_ns, Event::Cancel(CancelRequest { completion, flight, is_retry: false }));
    }

    /// Handles a cancel that reaches the op, or the place where the op was.
    pub(super) fn cancel_arrives(&mut self, core: &mut Core, mut ask: CancelRequest) {
        if ask.is_retry {
            ask.is_retry = false;
            // SAFETY: I1. The op has not ended: its end withdraws a scheduled retry, and this one
            // was still scheduled. So the frame still holds the completion.
            let completion = unsafe { &*ask.completion };
            completion.cancel.set(CancelState::InFlight);
            completion.waiter_ref().owe();
        }
        let stage = self.flights.get(&ask.flight).map(|flight| flight.stage);
        let result = match stage {
            None | Some(Stage::Done | Stage::EarlyResult | Stage::Queued) => {
                self.cancel_missed(core, ask)
            }
            // A kernel thread is about to run it.
            Some(Stage::Armed(_)) if core.draw(Fault::CancelRace) => -libc::EALREADY,
            Some(Stage::Armed(key)) => {
                self.timeline.remove(&key);
                self.end_cancelled(core, ask.flight, -libc::ECANCELED);
                0
            }
            Some(Stage::Blocked) => {
                self.blocked.retain(|&number| number != ask.flight);
                let answer = if core.draw(Fault::CancelRace) {
                    [-libc::EINTR, -512][core.rng.below(2) as usize]
                } else {
                    -libc::ECANCELED
                };
                self.end_cancelled(core, ask.flight, answer);
                0
            }
        };
        self.post(core, Cqe::Cancel { ask, result });
    }

    fn cancel_missed(&mut self, core: &mut Core, ask: CancelRequest) -> i32 {
        core.note(7, ask.flight, 0);
        #[cfg(any(test, feature = "sabotage"))]
        if super::sabotage::deliver_lost(core, self, ask.flight) {
            return 0;
        }
        -libc::ENOENT
    }

    fn end_cancelled(&mut self, core: &mut Core, number: u64, answer: i32) {
        let flight = self.flights.get_mut(&number).expect("the op is in flight");
        if !flight.lent.give_to_op() {
            core.fail(Checker::Buffers, "the memory of a cancelled operation changed");
        }
        self.complete(core, number, answer);
    }

    /// Handles the answer to a cancel.
    pub(super) fn cancel_answered(
        &mut self,
        core: &mut Core,
        ask: CancelRequest,
        result: i32,
    ) -> Option<Token> {
        core.note(5, ask.flight, result.into());
        // SAFETY: I1. The cancel counted its answer as owed to the op's frame, and this is that
        // answer. So the frame still holds the completion, even if the op itself has ended.
        let completion = unsafe { &*ask.completion };
        completion.cancel.set(CancelState::No);
        if completion.is_cancellable() && result != 0 {
            let attempts = completion.cancel_attempts.get().min(MAX_DOUBLINGS);
            completion.cancel_attempts.set(attempts + 1);
            completion.cancel.set(CancelState::RetryLater);
            let at_ns = core.now_ns.saturating_add(FIRST_PAUSE_NS << attempts);
            self.schedule(at_ns, Event::Cancel(CancelRequest { is_retry: true, ..ask }));
        }
        completion.waiter_ref().settle_one()
    }

    /// Withdraws the scheduled cancel of an op that has ended.
    pub(super) fn withdraw_cancel(&mut self, completion: &Completion) {
        if completion.cancel.get() == CancelState::RetryLater {
            self.timeline.retain(|_, event| match event {
                Event::Cancel(ask) => !(ask.is_retry && std::ptr::eq(ask.completion, completion)),
                Event::Perform(_) | Event::Release(..) => true,
            });
            completion.cancel.set(CancelState::No);
        }
    }
}
