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
use super::moving::may_move;
use crate::fiber::{FiberRef, RunState};
use cringle_driver::simulation::{HaltReason, Simulation};

/// The most fibers of a turn, if it does not have all.
const SHORT_TURN: usize = 3;
/// The most unstarted fibers that start in a turn. The others may be stolen.
const FEW_STARTS: usize = 3;

// The order of workers, and the moves of fibers.
impl Worker {
    /// Calls `f` in a simulation.
    #[inline(always)]
    pub(super) fn simulation<R>(&self, f: impl FnOnce(&dyn Simulation) -> R) -> Option<R> {
        if self.is_simulated { self.ask_simulation(f) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn ask_simulation<R>(&self, f: impl FnOnce(&dyn Simulation) -> R) -> Option<R> {
        self.driver.borrow().simulation().map(f)
    }

    /// Whether a simulation lets a fiber move now.
    pub(super) fn draws_move(&self) -> bool {
        self.simulation(|sim| sim.draw_move()) == Some(true)
    }

    /// Draws how many of the unstarted fibers start in this turn.
    pub(super) fn draw_starts(&self) -> usize {
        1 + self.draw_below(FEW_STARTS)
    }

    /// Draws a number for a decision of the scheduler.
    fn draw_below(&self, limit: usize) -> usize {
        self.simulation(|sim| sim.draw_below(limit)).expect("it is a simulation")
    }

    /// Draws which ready fibers run in this turn, and which move: in a message, or offered to the
    /// worker that comes first.
    #[cold]
    pub(super) fn share_as_drawn(&self, turn: Option<FiberRef>) -> Option<FiberRef> {
        let mut left = match self.draw_below(2) {
            0 => usize::MAX,
            _ => 1 + self.draw_below(SHORT_TURN),
        };
        let (ready, mut later) = (self.schedule.ready(), Vec::new());
        let leaves = |fiber| self.moves.may_happen() && may_move(fiber) && self.draws_move();
        let stays = |fiber| match left.checked_sub(1) {
            Some(less) => {
                left = less;
                ready.push(fiber);
            }
            None => later.push(fiber),
        };
        let leaving = self.moves.part(turn, leaves, stays);
        self.give_away(leaving, || {
            let workers = self.shared.workers();
            let step = || 1 + self.draw_below(workers - 1);
            (self.draw_below(2) != 0).then(|| (self.index as usize + step()) % workers)
        });
        let turn = ready.take_all();
        later.into_iter().for_each(|fiber| ready.push(fiber));
        if !self.moves.has_offered() {
            return turn;
        }
        self.me().load.call_for_help(true);
        if let Some(thief) = self.shared.thief_to_wake(self.index, |_| true) {
            self.wake_peer(thief);
        }
        if turn.is_none() {
            self.simulation(|sim| sim.hand_over());
            return self.moves.take_back().map(|traveller| self.arrive(traveller));
        }
        turn
    }
}

// The end.
impl Worker {
    /// Ends the run, because the simulation has halted.
    #[cold]
    pub(super) fn end_simulation(&self, reason: HaltReason) {
        let mut waits = String::new();
        if reason.is_failure() {
            // From the first list on no fiber moves, and fibers on their way arrive before the list
            // of their worker: so each fiber is in one list.
            std::mem::forget(self.shared.hold_moves());
            self.read_mail();
            self.take_back_all();
            waits = list_waits(self.table.fibers());
        }
        let is_stopping = self.lifecycle.is_stopping();
        if self.simulation(|sim| sim.record_halt(reason, is_stopping, waits)) == Some(true) {
            self.shared.stop();
            self.follow_state();
        }
    }
}

/// Writes a line for each fiber: its name, and what it waits for.
fn list_waits(fibers: Vec<FiberRef>) -> String {
    let mut lines = String::new();
    for fiber in fibers {
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
