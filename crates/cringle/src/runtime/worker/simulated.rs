//! A worker in a simulation: what the seed draws for the scheduler, and the end of a run that
//! cannot continue.
//!
//! One of several workers lets another one run in each turn. It draws how many of the ready fibers
//! run in a turn, so that the workers alternate after any run of a fiber, and which fibers move.
//!
//! At the end each worker reports which of its fibers waits for what; the last one ends the run.
//!
//! Fibers cannot be dropped (**I2**). They are cancelled, as at the end of every run, and unwind.
//! If they still wait after that, the process aborts.

use super::Worker;
use super::sharing::{Leaving, collect};
use crate::driver::sim::{self, Checker, HaltReason};
use crate::runtime::fiber::{FiberRef, RunState};
use crate::runtime::shared::Mail;

/// The most fibers of a turn, if it does not have all.
const SHORT_TURN: usize = 3;
/// The most unstarted fibers that start in a turn: the others may be stolen.
const FEW_STARTS: usize = 3;

// The order of workers, and the moves of fibers.
impl Worker {
    fn simulation<R>(&self, f: impl FnOnce(&sim::Sim) -> R) -> Option<R> {
        self.driver.borrow().simulation().map(f)
    }

    pub(super) fn begin_simulation(&self) {
        self.simulation(sim::Sim::wait_for_turn);
    }

    pub(super) fn leave_simulation(&self) {
        self.simulation(sim::Sim::leave);
    }

    /// In a simulation, lets another worker run now, if the seed says so.
    #[cold]
    pub(super) fn let_others_run(&self) {
        self.simulation(sim::Sim::hand_over);
    }

    /// Whether the seed lets a fiber move now.
    pub(super) fn draws_move(&self) -> bool {
        self.moves.are_drawn && self.simulation(sim::Sim::draw_move) == Some(true)
    }

    fn draw_below(&self, limit: usize) -> usize {
        self.simulation(|sim| sim.draw_below(limit)).expect("it is a simulation")
    }

    /// Draws how many unstarted fibers start in this turn, if a simulation decides.
    pub(super) fn draw_starts(&self) -> Option<usize> {
        self.moves.are_drawn.then(|| 1 + self.draw_below(FEW_STARTS))
    }

    /// Draws which ready fibers run in this turn, and which move: in a message, or offered to the
    /// worker that comes first.
    #[cold]
    pub(super) fn share_as_drawn(&self, turn: Option<FiberRef>) -> Option<FiberRef> {
        let mut left = match self.draw_below(2) {
            0 => usize::MAX,
            _ => 1 + self.draw_below(SHORT_TURN),
        };
        let mut offers = false;
        let (mut next, mut later, mut leaving) = (turn, Vec::new(), Leaving::new());
        while let Some(fiber) = next {
            next = fiber.unlink();
            let goes = || self.may_move(fiber) && self.draws_move();
            if self.moves.may_happen() && self.leaves(fiber, goes) {
                collect(fiber, &mut leaving);
            } else if left > 0 {
                left -= 1;
                self.schedule.ready().push(fiber);
            } else {
                later.push(fiber);
            }
        }
        self.dispatch(leaving, |traveller| {
            if self.draw_below(2) == 0 {
                self.moves.offered.push(traveller);
                offers = true;
            } else {
                let step = 1 + self.draw_below(self.workers() - 1);
                let worker = (self.index as usize + step) % self.workers();
                self.mail(&self.shared.peers[worker].mailbox, Mail::Arrive(traveller));
            }
        });
        let turn = self.schedule.ready().take_all();
        later.into_iter().for_each(|fiber| self.schedule.ready().push(fiber));
        if offers {
            self.me().load.call_for_help(true);
            if let Some(thief) = self.shared.thief_to_wake(self.index, |_| true) {
                self.wake_peer(thief);
            }
        }
        if turn.is_none() && offers {
            self.let_others_run();
            return self.take_back_offered();
        }
        turn
    }
}

// The end.
impl Worker {
    /// Ends the run if the simulation has halted.
    pub(super) fn heed_simulation(&self) {
        let reason = self.driver.borrow_mut().take_halt();
        if let Some(reason) = reason {
            self.end_simulation(reason);
        }
    }

    #[cold]
    fn end_simulation(&self, reason: HaltReason) {
        let found = match reason {
            HaltReason::PowerLost => None,
            HaltReason::Deadlock => Some((Checker::Deadlock, "no fiber can continue")),
            HaltReason::Livelock => Some((Checker::Livelock, "the fibers run without end")),
        };
        if let Some((checker, problem)) = found {
            // From the first list on no fiber moves, and fibers on their way arrive before the list
            // of their worker: so each fiber is in one list.
            std::mem::forget(self.shared.hold_moves());
            self.read_mail();
            self.take_back_all();
            let driver = self.driver.borrow();
            let core = driver.simulation().expect("a simulation has halted").core();
            let own = self.list_waits();
            let Some(waits) = sim::lock(core).list_waits(self.index, own) else { return };
            let report = format!("{problem}:{waits}");
            if self.lifecycle.is_stopping() {
                crate::sys::report(format_args!("the run cannot end, {report}\naborting"));
                std::process::abort();
            }
            sim::lock(core).fail(checker, report);
        }
        self.shared.stop();
        self.follow_state();
    }

    /// Writes a line for each fiber: its name, and what it waits for.
    fn list_waits(&self) -> String {
        let mut lines = String::new();
        for fiber in self.fibers() {
            let name = fiber.meta().and_then(|meta| meta.name()).unwrap_or("<unnamed>");
            let index = fiber.id().index;
            let target = match fiber.state() {
                RunState::Waiting(wait) => fiber.op_name().unwrap_or(wait.describe()),
                RunState::Runnable => "nothing: it is ready",
                RunState::Vacant => continue,
            };
            lines.push_str(&format!("\n  fiber {index} '{name}' waits for: {target}"));
        }
        lines
    }
}
