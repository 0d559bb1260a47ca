//! What a worker does when its simulation has come to a verdict: it says who waits for what, and
//! ends the run.
//!
//! Fibers cannot be dropped (**I2**): they are cancelled, as at the end of every run, and unwind. If
//! they wait on all the same there is nothing left to try.

use super::Worker;
use crate::driver::sim::{self, Checker, HaltReason};
use crate::runtime::fiber::State;

impl Worker {
    /// Looks whether the simulation has come to a verdict.
    pub(super) fn heed_simulation(&self) {
        let verdict = self.driver.borrow_mut().take_halt();
        if let Some(verdict) = verdict {
            self.end_simulation(verdict);
        }
    }

    #[cold]
    fn end_simulation(&self, verdict: HaltReason) {
        let found = match verdict {
            HaltReason::PowerLost => None,
            HaltReason::Deadlock => Some((Checker::Deadlock, "nothing can go on")),
            HaltReason::Livelock => Some((Checker::Livelock, "it goes on for ever")),
        };
        if let Some((checker, what)) = found {
            let report = format!("{what}:{}", self.who_waits());
            if self.stopping_since.get().is_some() {
                crate::sys::report(format_args!("the run cannot end, {report}\naborting"));
                std::process::abort();
            }
            let driver = self.driver.borrow();
            let core = driver.simulation().expect("it has come to a verdict").core();
            sim::lock(core).fail(checker, report);
        }
        self.shared.stop();
        self.see_state();
    }

    /// A line for each fiber: its name, and what it waits for.
    fn who_waits(&self) -> String {
        let mut lines = String::new();
        for fiber in self.table.borrow().occupied() {
            let name = fiber.meta().and_then(|meta| meta.name()).unwrap_or("<unnamed>");
            let index = fiber.id().index;
            let what = match fiber.state() {
                State::Waiting(wait) => fiber.op_name().unwrap_or(wait.describe()),
                State::Runnable => "nothing: it is ready",
                State::Vacant => continue,
            };
            lines.push_str(&format!("\n  fiber {index} '{name}' waits for: {what}"));
        }
        lines
    }
}
