//! How the worker follows the state of its runtime: running, cancelled, stopping, stopped.
//!
//! The state itself is in [`Shared`](crate::shared::Shared), whose page explains the end
//! of a runtime. Every change nudges the worker's inbox, and the worker looks at the state after it
//! has read its mail.

use super::Worker;
use crate::cancelled::Reason;
use crate::fiber::{FiberRef, RunState};
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
        let Lifecycle { has_cancelled_roots, is_stopping, is_stopped } = &self.lifecycle;
        let stops = self.shared.is_stopping() && !is_stopping.replace(true);
        let cancels = self.shared.is_cancelled() && !has_cancelled_roots.replace(true);
        if stops || cancels {
            self.table.fibers().into_iter().for_each(|fiber| self.cancel_root(fiber));
        }
        is_stopped.set(self.shared.is_stopped());
    }

    /// Cancels a fiber that belongs to no scope, and through its scopes others. A protected call
    /// keeps a cancel out until it returns.
    pub(super) fn cancel_root(&self, fiber: FiberRef) {
        if !fiber.is_root() {
            return;
        }
        self.cancel_region(fiber, fiber.regions().body(), Reason::Cancelled);
        // A shielded wait: `run` returns only after it.
        if matches!(fiber.state(), RunState::Waiting(_)) && !fiber.is_cancelled() {
            self.watch_at_end(fiber);
        }
    }

    /// Has a wait that no cancel ends reported if `run` waits for it for long.
    pub fn watch_at_end(&self, fiber: FiberRef) {
        if self.shared.is_stopping() {
            self.watch_for_end(fiber);
        }
    }
}
