//! A fiber that waits before its panic has begun to unwind it: in the code that formats the message.
//!
//! std marks the *thread* as being in the panic hook from before it formats the message until the hook has returned,
//! and aborts the process if another panic begins on the thread meanwhile: a panic of any other fiber of the worker.
//! The library cannot keep such code from suspending its fiber, and does not see it begin. (The hook it calls beside
//! the fiber, see [`foreign`](crate::runtime::foreign).) So the worker holds the other fibers back while it waits:
//! it looks at the kernel, the timers and the messages, and runs this fiber alone. Not for ever, because the fiber
//! may wait for one of the others.
//!
//! Which fiber waits so is found by its [`frames`](crate::runtime::frames). One is missed: before the first panic of
//! the process has reached our hook, while another fiber is suspended in a destructor that a cancel runs.
//!
//! Refused: waits that block the worker, as those of a hook do. The `Debug` of an error that takes a lock would hang
//! whenever a fiber of the same worker holds that lock.

use super::Worker;
use crate::runtime::fiber::{FiberRef, State, Wait};
use std::time::{Duration, Instant};

/// Fibers that are ready are held back for so long, unless the one sleeps.
const HOLD: Duration = Duration::from_secs(1);

impl Worker {
    /// The calling fiber is about to be suspended, and others are not to run meanwhile. In a simulation they are:
    /// its time stands still while a fiber is ready.
    #[cold]
    pub(super) fn hold_others_back(&self, fiber: FiberRef) {
        if !self.is_simulated() {
            self.runs_alone.set(Some(fiber));
        }
    }

    /// Runs the one fiber until it is past such waits, or the others have been held back for long. They are `rest`,
    /// which were to run in this turn, and the ready ones; it returns all of them.
    #[cold]
    pub(super) fn run_alone(&self, rest: Option<FiberRef>) -> Option<FiberRef> {
        self.ready.put_back(rest);
        self.more_to_run.set(false);
        let mut held_since = None;
        while let Some(fiber) = self.runs_alone.get() {
            self.running.set(None);
            if fiber.state() == State::Runnable {
                self.ready.remove(fiber);
                self.runs_alone.set(None);
                self.resume(fiber);
                continue;
            }
            let held = match self.has_work() {
                true => held_since.get_or_insert_with(Instant::now).elapsed(),
                false => Duration::ZERO,
            };
            if held > HOLD && fiber.state() != State::Waiting(Wait::Sleep) {
                self.runs_alone.set(None);
            } else {
                self.look();
                std::thread::yield_now();
            }
        }
        self.ready.take_all()
    }
}
