//! Where there may be no ring: readiness for what waits for a peer, threads for what waits for a disk.
//!
//! It owns the ops under way, one epoll, and the results of jobs that the pool does for it. It promises
//! what [`uring`](super::uring) does:
//!
//! - every op is answered exactly once (**I5**), and what was lent for it is not touched after that, nor is
//!   anything before its answer forgotten (**I1**): an op that a thread has begun is waited for, cancelled
//!   or not;
//! - a cancel of what waits for a descriptor, and of what no thread has begun, is immediate;
//! - at most so many ops that end by themselves are under way (**I7**); those that wait for a peer do not
//!   count;
//! - those who wait for the same descriptor get it first come, first served.
//!
//! An op is tried by the next [`enter`](Epoll::enter), in the order of the pushes: so a batch, and the ops of
//! a turn, begin in order and together. The kernel is asked for events when the worker has nothing to do,
//! and every [`LOOK_EVERY`] while it has, because unlike a ring it says nothing without being asked.

mod aside;
mod attempt;
mod cancel;
mod enter;
mod flight;
mod partial;
mod poller;
mod push;
mod reap;
#[cfg(test)]
mod tests;
mod waits;

use super::about::About;
use super::completion::Completion;
use super::counts::Counts;
use super::pool::Pool;
use super::slots::Slots;
use super::uring::RingId;
use aside::Results;
use attempt::LastFile;
use flight::Flights;
use poller::Poller;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use waits::Table;

/// While fibers keep the worker busy, events are asked for after so long.
const LOOK_EVERY: Duration = Duration::from_micros(20);

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
    id: RingId,
    limit: u32,
    /// Ops under way that end by themselves: those that the limit is about.
    in_flight: u32,
    flights: Flights,
    /// Pushed and not tried.
    queued: VecDeque<u32>,
    waits: Table,
    /// To be tried again after a pause. They are few.
    later: Vec<u32>,
    ended: VecDeque<(u32, i32)>,
    pools: Pools,
    results: Arc<Results>,
    /// Those that are being looked at; kept for its memory.
    taken: Vec<(u32, i32)>,
    looked: Instant,
    last_file: LastFile,
    slots: Slots,
    counts: Arc<Counts>,
}

impl Epoll {
    /// A driver for the calling thread. `bell` is an eventfd that stays open until it is dropped.
    pub(crate) fn new(bell: RawFd, limit: u32, pools: Pools) -> io::Result<Epoll> {
        Ok(Epoll {
            poller: Poller::new(bell)?,
            id: RingId::new(),
            limit,
            in_flight: 0,
            flights: Flights::default(),
            queued: VecDeque::new(),
            waits: Table::default(),
            later: Vec::new(),
            ended: VecDeque::new(),
            pools,
            results: Arc::new(Results::new(bell)),
            taken: Vec::new(),
            looked: Instant::now(),
            last_file: LastFile::default(),
            slots: Slots::default(),
            counts: Arc::default(),
        })
    }

    pub(crate) fn id(&self) -> RingId {
        self.id
    }

    /// What an op under way is about.
    pub(crate) fn about(&self, completion: &Completion) -> About {
        self.flights.get(completion.cancel_place.get() as u32).op.about()
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
        self.slots.add_file(fd)
    }

    pub(crate) fn unregister_file(&mut self, slot: u32) {
        self.slots.remove_file(slot);
    }

    /// The descriptor of a registered file, if that is a regular one.
    pub(crate) fn regular_file(&self, slot: u32) -> Option<RawFd> {
        self.slots.file(slot as i32).filter(|&fd| crate::sys::file_kind(fd).regular)
    }

    pub(crate) fn register_buffer(&mut self) -> io::Result<u16> {
        self.slots.add_buffer()
    }

    pub(crate) fn unregister_buffer(&mut self, slot: u16) {
        self.slots.remove_buffer(slot);
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
