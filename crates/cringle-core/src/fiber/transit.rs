//! Where a fiber is, if fibers move, and the messages that wait for its arrival.
//!
//! # The host
//!
//! One worker, the *host*, owns a fiber's block, and it alone touches the block (**I3**). Only the
//! host gives a fiber away, between two turns of its fibers: it packs the fiber, marks it as on the
//! way, and publishes it. One worker takes it, and becomes the host. So a worker that reads its own
//! number here owns the block, for as long as it does not give the fiber away itself.
//!
//! # Messages
//!
//! Each message goes first to the fiber's *home*, the worker that has started it, or to any later
//! host. A worker that is not the host sends it on to the one that is. If the fiber is on the way,
//! the message is left here, and the new host reads it on arrival.
//!
//! The sender that leaves a message and the worker that takes the fiber use one lock:
//!
//! - The sender first: the new host finds the message.
//! - The new host first: the sender reads the number of that host, and sends the message there.
//!
//! A wake-up of a ready fiber is not left: the fiber runs anyway. Its sender takes the lock all the
//! same. So everything that the sender did before happens before the fiber runs, and the fiber sees
//! it when it next checks its condition. For a fiber that waits, a wake-up is left as any message:
//! it ends the wait on arrival, or the sender sends it to the new host. So the state says whether a
//! fiber on the way is ready or waits. That does not change on the way: only a host ends a wait.
//!
//! # Families
//!
//! A family of several fibers is given away by one publication. The host packs the members and
//! marks them one by one, and the new host makes itself known to them one by one. In between, some
//! are marked and others are not. No protocol spans two fibers: a message is for one of them, and
//! finds its host, or is left. Until the publication the old host alone touches the blocks, and
//! after it the new one. Neither handles a message meanwhile: the new host first takes the messages
//! of all members, and then handles them.

use super::{Fiber, FiberRef, RunState};
use crate::shared::Mail;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// In place of a host's number: the fiber is on the way, and ready.
const READY: usize = usize::MAX;
/// In place of a host's number: the fiber is on the way, and waits.
const WAITING: usize = usize::MAX - 1;

/// See the module. `M` is a message.
pub(crate) struct Transit<M> {
    host: AtomicUsize,
    held: Mutex<Vec<M>>,
}

impl<M> Transit<M> {
    /// The offset of the host's number, for debuggers.
    pub(super) const HOST: usize = std::mem::offset_of!(Transit<M>, host);

    pub(crate) fn new(host: usize) -> Transit<M> {
        Transit { host: AtomicUsize::new(host), held: Mutex::new(Vec::new()) }
    }

    /// For any worker: whether it is the host.
    #[inline]
    pub(crate) fn is_at(&self, worker: usize) -> bool {
        self.host.load(Ordering::Acquire) == worker
    }

    /// For the host: gives the fiber away, which is ready or waits.
    pub(crate) fn depart(&self, waits: bool) {
        self.host.store(if waits { WAITING } else { READY }, Ordering::Release);
    }

    /// For the one worker that has taken the fiber: becomes the host. Returns the messages that
    /// were left.
    pub(crate) fn arrive(&self, worker: usize) -> Vec<M> {
        let mut held = self.held.lock();
        debug_assert!(self.host.load(Ordering::Relaxed) >= WAITING, "I3: it was given away");
        self.host.store(worker, Ordering::Release);
        std::mem::take(&mut held)
    }

    /// For the host: hands the block of a fiber that has ended back to its home.
    pub(crate) fn go_home(&self, home: usize) {
        self.host.store(home, Ordering::Release);
    }

    /// For a worker that is not the host: leaves a message for the next host, or returns it with
    /// the number of the host. A ready fiber ignores a wake-up.
    pub(crate) fn leave(&self, message: M, is_wake: bool) -> Option<(usize, M)> {
        let mut held = self.held.lock();
        match self.host.load(Ordering::Acquire) {
            READY if is_wake => {}
            READY | WAITING => held.push(message),
            host => return Some((host, message)),
        }
        None
    }
}

// Where it is. For any worker of the runtime.
impl FiberRef {
    /// # Safety
    ///
    /// I2: the block exists.
    pub(crate) unsafe fn transit<'a>(block: NonNull<Fiber>) -> &'a Transit<Mail> {
        // SAFETY: by the contract. Only this part is touched, which any thread may use.
        unsafe { &(*block.as_ptr()).cold.transit }
    }
}

// Moving to another worker.
impl Fiber {
    pub(crate) fn as_transit(&self) -> &Transit<Mail> {
        &self.cold.transit
    }

    pub(crate) fn set_arrived(&self, arrived: bool) {
        self.cold.arrived.set(arrived);
    }

    /// Whether it is ready, has moved to its worker, and has not run there yet.
    pub(crate) fn awaits_first_run(&self) -> bool {
        self.cold.arrived.get() && self.state.get() == RunState::Runnable
    }

    /// Leaves the flow of its departure for the next host that records the trace of this epoch.
    pub(crate) fn set_departure(&self, epoch: u32, flow: u64) {
        self.cold.departure.set(Some((epoch, flow)));
    }

    pub(crate) fn take_departure(&self, epoch: u32) -> Option<u64> {
        let (of, flow) = self.cold.departure.take()?;
        (of == epoch).then_some(flow)
    }

    /// Counts the wake-ups that come from one worker in a row, each `soon` after the one before.
    pub(crate) fn count_wakes_from(&self, worker: u32, now: Instant, soon: Duration) -> u32 {
        let count = match self.cold.wakes.get() {
            Some((by, count, at)) if by == worker && now - at <= soon => count + 1,
            _ => 1,
        };
        self.cold.wakes.set(Some((worker, count, now)));
        count
    }

    /// Notes a run of the fiber that was measured.
    pub(crate) fn note_run(&self, was_long: bool) {
        let before = self.cold.long_runs.get();
        self.cold.long_runs.set(if was_long { before.saturating_add(1) } else { 0 });
    }

    /// Whether it computes for long in each run. (In one run it may have been interrupted.)
    pub(crate) fn computes(&self) -> bool {
        self.cold.long_runs.get() >= 2
    }

    pub(crate) fn waits_for_fibers(&self) -> bool {
        self.cold.waits_for_fibers.get()
    }

    pub(crate) fn set_waits_for_fibers(&self, waits: bool) {
        self.cold.waits_for_fibers.set(waits);
    }
}
