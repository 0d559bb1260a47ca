//! The driver without io_uring: readiness for ops that wait for a peer, threads for ops that wait
//! for a disk.
//!
//! It owns the ops in flight, one epoll instance, and the results of its jobs in the pool. It
//! promises what [`uring`](super::uring) promises:
//!
//! - Every op is answered exactly once (**I5**). The memory of an op is not touched after its
//!   answer, and an op that a thread has started is waited for, cancelled or not (**I1**).
//! - A cancel takes effect at once if the op waits for a descriptor or no thread has started it.
//! - At most `limit` ops that end by themselves are in flight (**I7**). Ops that wait for a peer do
//!   not count.
//! - Ops that wait for the same descriptor are served first come, first served.
//!
//! The next [`enter`](Epoll::enter) attempts the pushed ops in the order of their pushes, so that
//! the ops of a batch or a turn begin in order and together. The kernel is polled for events when
//! the worker is idle, and every [`POLL_INTERVAL`] while it is busy, because unlike a ring an epoll
//! has no flag in shared memory.

mod cancel;
mod enter;
mod flight;
mod nowait;
mod nowait_sockets;
mod offload;
mod partial;
mod poller;
mod push;
mod reap;
#[cfg(test)]
mod tests;
mod wait_queues;

use super::DriverId;
use super::OpDescription;
use super::completion::Completion;
use super::counters::Counts;
use super::pool::Pool;
use super::registered::Registered;
use flight::Flights;
use nowait::LastFile;
pub(super) use offload::Results;
use poller::Poller;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait_queues::WaitQueues;

/// The interval between polls for events while fibers keep the worker busy.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// The threads for ops without a descriptor to wait for.
#[derive(Clone)]
pub struct Pools {
    /// Bounded: for ops that wait for storage.
    pub storage: Arc<Pool>,
    /// For ops that may wait for any length of time.
    pub unbounded: Arc<Pool>,
}

/// See the module.
pub struct Epoll {
    poller: Poller,
    id: DriverId,
    limit: u32,
    /// Ops in flight that count against the limit.
    in_flight: u32,
    flights: Flights,
    /// Pushed and not attempted yet.
    queued: VecDeque<u32>,
    wait_queues: WaitQueues,
    /// Attempted again after a pause. There are few of them.
    backing_off: Vec<u32>,
    ended: VecDeque<(u32, i32)>,
    pools: Pools,
    results: Arc<Results>,
    /// Whether the program [announces](crate::kept) the descriptors that it closes.
    has_closing: bool,
    /// An empty list, kept for its allocation.
    taken: Vec<(u32, i32)>,
    last_poll: Instant,
    last_file: LastFile,
    registered: Registered,
    counts: Arc<Counts>,
}

impl Epoll {
    /// Makes a driver for the calling thread. `wake_fd` is an eventfd that outlives it.
    pub fn new(wake_fd: RawFd, limit: u32, pools: Pools) -> io::Result<Epoll> {
        let results = Arc::new(Results::new(wake_fd));
        let poller = Poller::new(wake_fd)?;
        Ok(Epoll {
            poller,
            id: DriverId::new(),
            limit,
            in_flight: 0,
            flights: Flights::default(),
            queued: VecDeque::new(),
            wait_queues: WaitQueues::default(),
            backing_off: Vec::new(),
            ended: VecDeque::new(),
            pools,
            results,
            has_closing: cringle_sys::is_interposed(),
            taken: Vec::new(),
            last_poll: cringle_sys::now(),
            last_file: LastFile::default(),
            registered: Registered::default(),
            counts: Arc::default(),
        })
    }

    pub(crate) fn id(&self) -> DriverId {
        self.id
    }

    /// Describes an op in flight.
    pub(crate) fn describe(&self, completion: &Completion) -> OpDescription {
        self.flights.get(completion.cancel_place.get() as u32).op.describe()
    }

    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.limit - self.in_flight
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    pub(crate) fn queued(&self) -> u32 {
        self.queued.len() as u32
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Always false: each op is tried by a plain call when it is submitted.
    pub(crate) fn page_cache_answers(&self) -> bool {
        false
    }

    pub(crate) fn note_cache_miss(&mut self) {}

    pub(crate) fn register_file(&mut self, fd: RawFd) -> io::Result<u32> {
        self.registered.add_file(cringle_sys::duplicate(fd)?)
    }

    pub(crate) fn unregister_file(&mut self, slot: u32) {
        self.registered.remove_file(slot);
    }

    pub(crate) fn registered_file(&self, slot: u32) -> Option<RawFd> {
        self.registered.file(slot as i32)
    }

    pub(crate) fn register_buffer(&mut self) -> io::Result<u16> {
        self.registered.add_buffer()
    }

    pub(crate) fn unregister_buffer(&mut self, slot: u16) {
        self.registered.remove_buffer(slot);
    }
}

impl Drop for Epoll {
    /// Aborts the process if an op is in flight: a thread of the pool could write into its frame.
    fn drop(&mut self) {
        if !self.is_idle() {
            cringle_sys::report(format_args!(
                "an epoll driver was closed with {} ops in flight; aborting",
                self.flights.len()
            ));
            std::process::abort();
        }
    }
}
