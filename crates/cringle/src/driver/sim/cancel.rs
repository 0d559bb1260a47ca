//! Asking for an op to be given up: before it has begun, while it waits, or too late.
//!
//! As with the ring, the answer to a cancel is owed to the op's frame like the op itself, and a
//! cancel that finds its op about to run is asked again, after a pause that doubles.

use super::options::Fault;
use super::{Checker, Core, Cqe, Event, Sim, Stage, lock};
use crate::driver::Token;
use crate::driver::completion::{CancelState, Completion};
use std::sync::Arc;

const FIRST_PAUSE_NS: u64 = 1_000_000;
const MAX_TRIES: u8 = 10;

/// One asking.
#[derive(Clone, Copy)]
pub(super) struct CancelRequest {
    completion: *const Completion,
    flight: u64,
    /// It is asked for again, and owed only from then on.
    again: bool,
}

impl Sim {
    /// Asks for an op to be given up. Its completion comes all the same (**I1**).
    pub(crate) fn cancel(&mut self, completion: &Completion) {
        let under_way = completion.is_cancellable();
        if !under_way || completion.cancel.get() != CancelState::No {
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
            match core.draw(Fault::CancelRace) {
                true => core.now_ns.saturating_add(core.any_latency_ns()),
                false => core.now_ns,
            }
        };
        completion.cancel.set(CancelState::InFlight);
        completion.waiter_ref().owe();
        self.plan(at_ns, Event::Cancel(CancelRequest { completion, flight, again: false }));
    }

    /// The cancel has come to where the op is, or was.
    pub(super) fn cancel_arrives(&mut self, core: &mut Core, mut ask: CancelRequest) {
        if ask.again {
            ask.again = false;
            // SAFETY: I1. The op has not ended, else this asking had been withdrawn.
            let completion = unsafe { &*ask.completion };
            completion.cancel.set(CancelState::InFlight);
            completion.waiter_ref().owe();
        }
        let stage = self.flights.get(&ask.flight).map(|flight| flight.stage);
        let result = match stage {
            None | Some(Stage::Done | Stage::Noted | Stage::Queued) => {
                self.cancel_missed(core, ask)
            }
            // A thread of the kernel's has it.
            Some(Stage::Armed(_)) if core.draw(Fault::CancelRace) => -libc::EALREADY,
            Some(Stage::Armed(key)) => {
                self.timeline.remove(&key);
                self.give_up(core, ask.flight, -libc::ECANCELED);
                0
            }
            Some(Stage::Blocked) => {
                self.blocked.retain(|&number| number != ask.flight);
                let answer = match core.draw(Fault::CancelRace) {
                    true => [-libc::EINTR, -512][core.rng.below(2) as usize],
                    false => -libc::ECANCELED,
                };
                self.give_up(core, ask.flight, answer);
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

    fn give_up(&mut self, core: &mut Core, number: u64, answer: i32) {
        let flight = self.flights.get_mut(&number).expect("it is under way");
        if !flight.lent.give_to_op() {
            core.fail(Checker::Buffers, "the memory of a cancelled operation was changed");
        }
        self.complete(core, number, answer);
    }

    /// The answer to a cancel is taken.
    pub(super) fn cancel_answered(
        &mut self,
        core: &mut Core,
        ask: CancelRequest,
        result: i32,
    ) -> Option<Token> {
        core.note(5, ask.flight, result.into());
        // SAFETY: I1. A cancel that was asked is owed to its op's frame.
        let completion = unsafe { &*ask.completion };
        completion.cancel.set(CancelState::No);
        let under_way = completion.is_cancellable();
        if under_way && result != 0 {
            let tries = completion.cancel_attempts.get().min(MAX_TRIES);
            completion.cancel_attempts.set(tries + 1);
            completion.cancel.set(CancelState::RetryLater);
            let at_ns = core.now_ns.saturating_add(FIRST_PAUSE_NS << tries);
            self.plan(at_ns, Event::Cancel(CancelRequest { again: true, ..ask }));
        }
        completion.waiter_ref().settle_one()
    }

    /// The op has ended: it is not asked for again.
    pub(super) fn withdraw_cancel(&mut self, completion: &Completion) {
        if completion.cancel.get() == CancelState::RetryLater {
            self.timeline.retain(|_, event| match event {
                Event::Cancel(ask) => !(ask.again && std::ptr::eq(ask.completion, completion)),
                Event::Perform(_) | Event::LetGo(..) => true,
            });
            completion.cancel.set(CancelState::No);
        }
    }
}
