//! Runs one fiber alone while it waits in the code that formats its panic message.
//!
//! std marks the *thread* as being in the panic hook from before it formats the message until the
//! hook has returned. A second panic on that thread aborts the process, even if another fiber of
//! the worker raises it. The library cannot keep the formatting code from suspending its fiber, and
//! does not see the begin of that code. (The hook itself is called beside the fiber, see
//! [`foreign`](crate::foreign).)
//!
//! So the worker holds the other fibers back meanwhile: it handles the kernel, timers and messages,
//! and runs only this fiber. It gives up after [`HOLD`], because the fiber may wait for one of the
//! others.
//!
//! The fiber's [`frames`](crate::frames) show that it waits so. One case is missed: no
//! panic of the process has reached our hook yet, and another fiber is suspended in a destructor
//! that a cancel runs.
//!
//! Refused: waits that block the worker, as the waits of a hook do. The `Debug` of an error that
//! takes a lock would hang whenever a fiber of the same worker holds that lock.

use super::{Current, Worker};
use crate::fiber::{FiberRef, RunState, Wait};
use cringle_sys as sys;
use cringle_tls::ThreadLocals;
use std::time::Duration;

/// How long ready fibers are held back. A fiber that sleeps holds them back for all of its sleep.
const HOLD: Duration = Duration::from_secs(1);

impl Current {
    /// Holds the others back while the calling fiber is suspended, which it is next. In a
    /// simulation it does nothing: virtual time stands still while a fiber is ready.
    #[cold]
    pub(super) fn hold_others_back(self) {
        let shares = self.worker.families.mode() == ThreadLocals::Shared
            || self.fiber.family().members() > 1;
        if shares && self.worker.driver.borrow().is_in_real_time() {
            self.worker.schedule.set_alone(Some(self.fiber));
        }
    }
}

impl Worker {
    /// Runs the one fiber until it waits elsewhere, or the others have been held back for long.
    /// `rest` are the fibers that are left of this turn. Returns them with the ready ones behind.
    #[cold]
    #[inline(never)]
    pub(super) fn run_alone(&self, rest: Option<FiberRef>) -> Option<FiberRef> {
        self.foreground.set(None);
        // The one fiber may wait for a fiber that was offered.
        self.take_back_all();
        self.schedule.ready().put_back(rest);
        self.schedule.set_more_in_turn(false);
        let mut held_since = None;
        while let Some(fiber) = self.schedule.alone() {
            self.foreground.set(None);
            if fiber.state() == RunState::Runnable {
                self.schedule.ready().remove(fiber);
                self.schedule.set_alone(None);
                self.resume_alone(fiber);
                continue;
            }
            let held = if self.has_work() {
                held_since.get_or_insert_with(sys::now).elapsed()
            } else {
                Duration::ZERO
            };
            if held > HOLD && fiber.state() != RunState::Waiting(Wait::Sleep) {
                self.schedule.set_alone(None);
            } else {
                self.look();
                cringle_sys::yield_thread();
            }
        }
        self.schedule.ready().take_all()
    }

    /// [`resume`](Self::resume) apart from code that may touch a thread-local (**I14**).
    #[inline(never)]
    fn resume_alone(&self, fiber: FiberRef) {
        self.resume(fiber, None);
    }
}
