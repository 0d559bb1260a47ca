//! What came of a server's connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a [`Server`](super::Server) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Connections that were taken.
    pub connections: u64,
    /// Those whose handler returned an error.
    pub failed: u64,
    /// Those whose handler panicked.
    pub panicked: u64,
    /// Those that were cancelled: the grace was over.
    pub cut_off: u64,
    /// How often a connection could not be taken, or had to be dropped: no descriptor was left for it, or
    /// no memory.
    pub refused: u64,
}

/// The same while it goes on.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) panicked: AtomicU64,
    pub(super) cut_off: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Counters {
    pub(super) fn snapshot(&self) -> Served {
        let [connections, failed, panicked, cut_off, refused] =
            [&self.connections, &self.failed, &self.panicked, &self.cut_off, &self.refused]
                .map(|count| count.load(Ordering::Relaxed));
        Served { connections, failed, panicked, cut_off, refused }
    }
}

/// One more.
pub(super) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
