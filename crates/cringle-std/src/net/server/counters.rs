//! The counters of a server's connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of connections that a [`Server`](super::Server) has served, by outcome.
///
/// ```
/// use cringle::net::{Served, Server};
///
/// let served: Served = cringle::run(|| {
///     let server = Server::bind("127.0.0.1:0")?;
///     server.stopper().stop();
///     server.run(|_stream, _peer| Ok(()))
/// })?;
/// assert_eq!(served.connections, 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Connections whose handler was called.
    pub connections: u64,
    /// Connections whose handler returned an error.
    pub failed: u64,
    /// Connections whose handler panicked.
    pub panicked: u64,
    /// Connections that were cancelled, because the grace period was over or the server was
    /// cancelled.
    pub cut_off: u64,
    /// The number of times that a connection could not be accepted, or was dropped, for want of a
    /// descriptor or memory.
    pub refused: u64,
}

/// The counters of a running server.
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

pub(super) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
