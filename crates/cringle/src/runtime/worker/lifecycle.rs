//! How the worker follows the state of its runtime: running, cancelled, stopping, stopped.
//!
//! The state itself is in [`Shared`](crate::runtime::shared::Shared), whose page explains the end
//! of a runtime. Every change nudges the worker's inbox, and the worker looks at the state after it
//! has read its mail.

use super::Worker;
use crate::runtime::cancelled::Reason;
use crate::runtime::fiber::{FiberRef, RunState};
use std::cell::Cell;

/// The parts of the runtime's state that this worker has acted on.
#[derive(Default)]
pub(super) struct Lifecycle {
    /// Everything is cancelled, and this worker has cancelled its root fibers.
    has_cancelled_roots: Cell<bool>,
    is_stopping: Cell<bool>,
    is_stopped: Cell<bool>,
}

impl Lifecycle {
    /// Whether the closure of `run` has returned, as far as the worker knows.
    #[cfg(feature = "sim")]
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// Whether the runtime has ended.
    #[inline(always)]
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }
}

impl Worker {
    /// Acts on the state of the runtime.
    #[cold]
    pub(super) fn follow_state(&self) {
        if self.shared.is_stopping() && !self.lifecycle.is_stopping.replace(true) {
            self.cancel_roots();
        }
        if self.shared.is_cancelled() && !self.lifecycle.has_cancelled_roots.replace(true) {
            self.cancel_roots();
        }
        self.lifecycle.is_stopped.set(self.shared.is_stopped());
    }

    /// Cancels the fibers that belong to no scope, and through their scopes all others. A protected
    /// call keeps a cancel out until it returns.
    fn cancel_roots(&self) {
        for fiber in self.fibers().into_iter().filter(|fiber| fiber.is_root()) {
            self.cancel_fiber(fiber.id(), Reason::Cancelled);
            // A shielded wait: `run` returns only after it.
            if matches!(fiber.state(), RunState::Waiting(_)) && !fiber.is_cancelled() {
                self.watch_at_end(fiber);
            }
        }
    }

    /// Has a wait that no cancel ends reported if `run` waits for it for long.
    pub(crate) fn watch_at_end(&self, fiber: FiberRef) {
        if self.shared.is_stopping() {
            self.watch_for_end(fiber);
        }
    }
}
