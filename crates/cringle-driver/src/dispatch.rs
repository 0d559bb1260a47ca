//! The driver of one worker, as an enum of the three.
//!
//! Each method forwards to the variant, inlined. The branch on the variant always goes the same way
//! while a worker lives, and the ring's code stands in line.

use super::simulation::Simulation;
use super::{
    Completion, Counts, DriverId, Epoll, Features, Full, Op, OpDescription, OpSlot, Token, Uring,
    Wait, Waiter,
};
use cringle_sys as sys;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

/// See the module.
#[expect(clippy::large_enum_variant, reason = "the frequent variant is stored inline")]
pub enum Driver {
    Uring(Uring),
    Epoll(Box<Epoll>),
    Simulated(Box<dyn Simulation>),
}

/// Evaluates the expression with the driver of whichever variant.
macro_rules! on {
    ($self:ident, $driver:ident => $call:expr) => {
        match $self {
            Driver::Uring($driver) => $call,
            Driver::Epoll($driver) => $call,
            Driver::Simulated($driver) => seldom(|| $call),
        }
    };
}

/// Keeps the code for a simulation out of the callers, which are hot.
#[cold]
#[inline(never)]
fn seldom<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl Driver {
    /// Queues one op.
    ///
    /// # Safety
    ///
    /// I1: the completion, the waiter and everything the op points to stay where they are until
    /// nothing is owed to the waiter.
    #[inline(always)]
    pub unsafe fn push(
        &mut self,
        op: &Op,
        completion: &Completion,
        waiter: &Waiter,
    ) -> Result<(), Full> {
        // SAFETY: I1, by this function's contract.
        on!(self, driver => unsafe { driver.push(op, completion, waiter) })
    }

    /// Queues ops from the front while there is room. Returns their number.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), for each.
    #[inline(always)]
    pub unsafe fn push_many(&mut self, slots: &[OpSlot], waiter: &Waiter) -> usize {
        if let Driver::Uring(driver) = self {
            // SAFETY: I1, by this function's contract.
            return unsafe { driver.push_many(slots, waiter) };
        }
        let pushed = slots.iter().take_while(|slot| {
            // SAFETY: I1, by the contract of `push_many`.
            unsafe { self.push(&slot.op, &slot.completion, waiter) }.is_ok()
        });
        pushed.count()
    }

    /// Whether this turn should [`reap`](Self::reap), and whether it should
    /// [`enter`](Self::enter).
    #[inline(always)]
    pub fn attention(&mut self) -> (bool, bool) {
        on!(self, driver => driver.attention())
    }

    /// Submits the queued ops, and waits as `wait` says.
    #[inline(always)]
    pub fn enter(&mut self, wait: Wait) {
        on!(self, driver => driver.enter(wait))
    }

    /// Takes every completion that has arrived. `sink` gets the token of each frame to which
    /// nothing more is owed; it runs no fiber.
    #[inline(always)]
    pub fn reap(&mut self, mut sink: impl FnMut(Token)) {
        match self {
            Driver::Uring(driver) => driver.reap(sink),
            Driver::Epoll(driver) => driver.reap(sink),
            Driver::Simulated(driver) => seldom(|| driver.reap(&mut sink)),
        }
    }

    /// Requests that an op be cancelled. Its completion still arrives (**I1**).
    #[inline]
    pub fn cancel(&mut self, completion: &Completion) {
        on!(self, driver => driver.cancel(completion))
    }

    /// The number of ops that may be pushed before the limit is reached.
    #[inline(always)]
    pub fn room(&self) -> u32 {
        on!(self, driver => driver.room())
    }

    /// Describes an op in flight.
    pub fn describe(&self, completion: &Completion) -> OpDescription {
        match self {
            Driver::Uring(_) => completion.describe(),
            Driver::Epoll(driver) => driver.describe(completion),
            Driver::Simulated(driver) => driver.describe(completion),
        }
    }

    /// The driver's counters.
    pub fn counts(&self) -> &Arc<Counts> {
        on!(self, driver => driver.counts())
    }

    /// Whether no op and no cancel is queued or in flight.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        on!(self, driver => driver.is_idle())
    }

    /// Whether entries wait for the next submission, so that one more costs no extra call.
    #[inline(always)]
    pub fn has_queued(&self) -> bool {
        on!(self, driver => driver.has_queued())
    }

    /// Whether the page cache answered the last reads, as far as is known, so that a plain call
    /// that does not wait is cheaper for the next one than an op.
    #[inline(always)]
    pub fn page_cache_answers(&self) -> bool {
        match self {
            Driver::Uring(driver) => driver.page_cache_answers(),
            Driver::Epoll(driver) => driver.page_cache_answers(),
            // No fault can reach an inline call.
            Driver::Simulated(_) => false,
        }
    }

    /// Records that the page cache did not have the bytes of a read.
    #[inline(always)]
    pub fn note_cache_miss(&mut self) {
        match self {
            Driver::Uring(driver) => driver.note_cache_miss(),
            Driver::Epoll(driver) => driver.note_cache_miss(),
            Driver::Simulated(_) => {}
        }
    }

    /// The number of entries that wait for the next submission.
    pub fn queued(&self) -> u32 {
        on!(self, driver => driver.queued())
    }

    /// Submits every queued entry.
    pub fn flush(&mut self) {
        match self {
            Driver::Uring(driver) => driver.flush(),
            Driver::Epoll(driver) => driver.flush(),
            // Time stands still until the next enter.
            Driver::Simulated(_) => {}
        }
    }

    /// Sends a wake-up to the ring of another worker. Returns false if this driver cannot.
    pub fn send_wake(&mut self, ring_fd: RawFd, worker: u32) -> bool {
        match self {
            Driver::Uring(driver) => driver.send_wake(ring_fd, worker),
            Driver::Epoll(_) | Driver::Simulated(_) => false,
        }
    }

    /// A worker whose wake-up could not be delivered; the caller wakes it in another way.
    #[inline(always)]
    pub fn take_undelivered(&mut self) -> Option<u32> {
        match self {
            Driver::Uring(driver) => driver.take_undelivered(),
            Driver::Epoll(_) | Driver::Simulated(_) => None,
        }
    }

    /// The ring to which other workers send wake-ups; −1 if there is none.
    pub fn ring_fd(&self) -> RawFd {
        match self {
            Driver::Uring(driver) => driver.ring_fd(),
            Driver::Epoll(_) | Driver::Simulated(_) => -1,
        }
    }

    /// The features of the ring; all of them without a ring.
    pub fn features(&self) -> Features {
        match self {
            Driver::Uring(driver) => driver.features(),
            Driver::Epoll(_) | Driver::Simulated(_) => Features::all(),
        }
    }

    /// Whether it performs ops through a ring.
    pub fn is_ring(&self) -> bool {
        matches!(self, Driver::Uring(_))
    }

    pub fn id(&self) -> DriverId {
        on!(self, driver => driver.id())
    }

    pub fn register_file(&mut self, fd: RawFd) -> io::Result<u32> {
        on!(self, driver => driver.register_file(fd))
    }

    pub fn unregister_file(&mut self, slot: u32) {
        on!(self, driver => driver.unregister_file(slot))
    }

    /// The descriptor of a registered file: the driver's duplicate.
    pub fn registered_file(&self, slot: u32) -> Option<RawFd> {
        on!(self, driver => driver.registered_file(slot))
    }

    /// # Safety
    ///
    /// I4: the memory stays allocated until the slot is removed or the driver is dropped.
    pub unsafe fn register_buffer(&mut self, buf: *mut u8, len: usize) -> io::Result<u16> {
        match self {
            // SAFETY: I4, by this function's contract.
            Driver::Uring(driver) => unsafe { driver.register_buffer(buf, len) },
            Driver::Epoll(driver) => driver.register_buffer(),
            Driver::Simulated(driver) => driver.register_buffer(),
        }
    }

    pub fn unregister_buffer(&mut self, slot: u16) {
        on!(self, driver => driver.unregister_buffer(slot))
    }

    /// The clock of timers: the machine's, or the simulation's.
    #[inline(always)]
    pub fn now(&self) -> Instant {
        match self {
            Driver::Uring(_) | Driver::Epoll(_) => sys::now(),
            Driver::Simulated(driver) => seldom(|| driver.now()),
        }
    }

    /// Nanoseconds since the machine, or the simulation, started, with the resolution of the
    /// kernel's tick.
    #[inline]
    pub fn coarse_ns(&self) -> u64 {
        match self {
            Driver::Uring(_) | Driver::Epoll(_) => sys::coarse_ns(),
            Driver::Simulated(driver) => seldom(|| driver.now_ns()),
        }
    }

    /// Whether timers run by the machine's clock, which does not stand still while fibers run.
    pub fn is_in_real_time(&self) -> bool {
        self.simulation().is_none()
    }

    /// Whether a call may reach the kernel without the driver: as a plain call, by an attempt that
    /// does not wait, on another thread. A simulation would neither see it nor inject a fault.
    #[inline(always)]
    pub fn may_bypass(&self) -> bool {
        self.simulation().is_none()
    }

    /// The simulation, if this is one.
    #[inline(always)]
    pub fn simulation(&self) -> Option<&dyn Simulation> {
        match self {
            Driver::Uring(_) | Driver::Epoll(_) => None,
            Driver::Simulated(driver) => Some(&**driver),
        }
    }
}
