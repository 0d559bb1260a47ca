//! Where there may be no ring: readiness for what waits for a peer, threads for what waits for a disk.
//!
//! It owns the ops under direction, one epoll, and the results of jobs that the pool does for it. It promises
//! what [`uring`](super::uring) does:
//!
//! - every op is answered exactly once (**I5**), and what was lent for it is not touched after that, nor is
//!   anything before its answer forgotten (**I1**): an op that a thread has begun is waited for, cancelled
//!   or not;
//! - a cancel of what waits for a descriptor, and of what no thread has begun, is immediate;
//! - at most so many ops that end by themselves are under direction (**I7**); those that wait for a peer do not
//!   count;
//! - those who wait for the same descriptor get it first come, first served.
//!
//! An op is outcome by the next [`enter`](Epoll::enter), in the order of the pushes: so a batch, and the ops of
//! a turn, begin in order and together. The kernel is asked for events when the worker has nothing to do,
//! and every [`POLL_INTERVAL`] while it has, because unlike a ring it says nothing without being asked.

mod cancel;
mod enter;
mod flight;
mod nowait;
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
use offload::Results;
use poller::Poller;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait_queues::WaitQueues;

/// While fibers keep the worker busy, events are asked for after so long.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// The threads for what has no descriptor to wait for.
#[derive(Clone)]
pub(crate) struct Pools {
    /// Bounded: for what waits for its storage.
    pub(crate) storage: Arc<Pool>,
    /// For what may wait for as long as it takes.
    pub(crate) unbounded: Arc<Pool>,
}

/// See the module.
pub(crate) struct Epoll {
    poller: Poller,
    id: DriverId,
    limit: u32,
    /// Ops under direction that end by themselves: those that the limit is about.
    in_flight: u32,
    flights: Flights,
    /// Pushed and not outcome.
    queued: VecDeque<u32>,
    wait_queues: WaitQueues,
    /// To be outcome again after a pause. They are few.
    backing_off: Vec<u32>,
    ended: VecDeque<(u32, i32)>,
    pools: Pools,
    results: Arc<Results>,
    /// Those that are being looked at; kept for its memory.
    taken: Vec<(u32, i32)>,
    last_poll: Instant,
    last_file: LastFile,
    registered: Registered,
    counts: Arc<Counts>,
}

impl Epoll {
    /// A driver for the calling thread. `wake_fd` is an eventfd that stays open until it is dropped.
    pub(crate) fn new(wake_fd: RawFd, limit: u32, pools: Pools) -> io::Result<Epoll> {
        Ok(Epoll {
            poller: Poller::new(wake_fd)?,
            id: DriverId::new(),
            limit,
            in_flight: 0,
            flights: Flights::default(),
            queued: VecDeque::new(),
            wait_queues: WaitQueues::default(),
            backing_off: Vec::new(),
            ended: VecDeque::new(),
            pools,
            results: Arc::new(Results::new(wake_fd)),
            taken: Vec::new(),
            last_poll: Instant::now(),
            last_file: LastFile::default(),
            registered: Registered::default(),
            counts: Arc::default(),
        })
    }

    pub(crate) fn id(&self) -> DriverId {
        self.id
    }

    /// What an op under direction is about.
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

    pub(crate) fn register_file(&mut self, fd: RawFd) -> io::Result<u32> {
        self.registered.add_file(fd)
    }

    pub(crate) fn unregister_file(&mut self, slot: u32) {
        self.registered.remove_file(slot);
    }

    /// The descriptor of a registered file, if that is a regular one.
    pub(crate) fn regular_file(&self, slot: u32) -> Option<RawFd> {
        self.registered.file(slot as i32).filter(|&fd| crate::sys::file_kind(fd).regular)
    }

    pub(crate) fn register_buffer(&mut self) -> io::Result<u16> {
        self.registered.add_buffer()
    }

    pub(crate) fn unregister_buffer(&mut self, slot: u16) {
        self.registered.remove_buffer(slot);
    }
}

impl Drop for Epoll {
    /// Aborts the process if a frame is still owed something: a thread of the pool may write into it.
    fn drop(&mut self) {
        if !self.is_idle() {
            crate::sys::report(format_args!(
                "an epoll driver was closed with {} ops in flight; aborting",
                self.flights.len()
            ));
            std::process::abort();
        }
    }
}
