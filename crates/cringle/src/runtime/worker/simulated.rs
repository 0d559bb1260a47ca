//! The worker's reaction to the end of its simulation: it reports which fiber waits for what, and
//! ends the run.
//!
//! Fibers cannot be dropped (**I2**). They are cancelled, as at the end of every run, and unwind.
//! If they still wait after that, the process aborts.

use super::Worker;
use crate::driver::sim::{self, Checker, HaltReason};
use crate::runtime::fiber::RunState;

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
            let report = format!("{problem}:{}", self.list_waits());
            if self.lifecycle.is_stopping() {
                crate::sys::report(format_args!("the run cannot end, {report}\naborting"));
                std::process::abort();
            }
            let driver = self.driver.borrow();
            let core = driver.simulation().expect("a simulation has halted").core();
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
