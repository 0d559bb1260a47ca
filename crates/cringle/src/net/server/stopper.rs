//! Telling a server to end.

use super::served::{Counts, Served};
use crate::sync::Semaphore;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a [`Server`](super::Server): it takes no more connections, and gives those it has a grace. And
/// tells what it has done so far.
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
}

struct Shared {
    stopped: AtomicBool,
    /// Has permits when it is stopped: one for each who waits.
    gate: Semaphore,
    counts: Counts,
}

/// More than there are workers.
const WAITERS: usize = 1 << 16;

impl Stopper {
    pub(super) fn new() -> Stopper {
        let (stopped, gate, counts) =
            (AtomicBool::new(false), Semaphore::new(0), Counts::default());
        Stopper { shared: Arc::new(Shared { stopped, gate, counts }) }
    }

    /// Ends the server, from any thread or fiber; returns at once. A server that is stopped before it
    /// runs serves nobody.
    pub fn stop(&self) {
        if !self.shared.stopped.swap(true, Ordering::SeqCst) {
            self.shared.gate.add_permits(WAITERS);
        }
    }

    /// Whether it was told to end.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::SeqCst)
    }

    /// What came of its connections so far.
    pub fn served(&self) -> Served {
        self.shared.counts.get()
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Waits until it is stopped.
    pub(super) fn wait(&self) -> io::Result<()> {
        self.shared.gate.acquire_cancellable()?.forget();
        Ok(())
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopper").field("stopped", &self.is_stopped()).finish()
    }
}
