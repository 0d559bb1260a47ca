//! The driver of one worker, whichever it is.
//!
//! Every call is handed on, inlined: a worker asks a question whose answer never changes while it lives,
//! and the ring's part is where the others' are not.

#[cfg(feature = "sim")]
use super::sim::{Sim, Verdict};
use super::uring::{Features, RingId};
use super::{About, Completion, Counts, Epoll, Full, Op, OpSlot, Token, Uring, Wait, Waiter};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

/// See the module.
#[expect(clippy::large_enum_variant, reason = "the frequent one is here")]
pub(crate) enum Driver {
    Uring(Uring),
    Epoll(Box<Epoll>),
    #[cfg(feature = "sim")]
    Sim(Box<Sim>),
}

/// The same call of whichever driver it is.
macro_rules! on {
    ($self:ident, $driver:ident => $call:expr) => {
        match $self {
            Driver::Uring($driver) => $call,
            Driver::Epoll($driver) => $call,
            #[cfg(feature = "sim")]
            Driver::Sim($driver) => $call,
        }
    };
}

impl Driver {
    /// Queues one op.
    ///
    /// # Safety
    ///
    /// I1: the completion, the waiter and everything the op points to stay where they are until
    /// nothing is owed to the waiter.
    #[inline(always)]
    pub(crate) unsafe fn push(
        &mut self,
        op: &Op,
        completion: &Completion,
        waiter: &Waiter,
    ) -> Result<(), Full> {
        // SAFETY: I1. Handed on to the caller.
        on!(self, driver => unsafe { driver.push(op, completion, waiter) })
    }

    /// Queues ops from the front as long as there is room; how many.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), for each.
    #[inline(always)]
    pub(crate) unsafe fn push_many(&mut self, slots: &[OpSlot], waiter: &Waiter) -> usize {
        if let Driver::Uring(driver) = self {
            // SAFETY: I1. Handed on to the caller.
            return unsafe { driver.push_many(slots, waiter) };
        }
        let pushed = slots.iter().take_while(|slot| {
            // SAFETY: I1. Handed on to the caller.
            unsafe { self.push(&slot.op, &slot.completion, waiter) }.is_ok()
        });
        pushed.count()
    }

    /// What a turn has to do with the driver: reap, enter.
    #[inline(always)]
    pub(crate) fn attention(&mut self) -> (bool, bool) {
        on!(self, driver => driver.attention())
    }

    /// Submits what is queued, and waits if asked to.
    #[inline(always)]
    pub(crate) fn enter(&mut self, wait: Wait) {
        on!(self, driver => driver.enter(wait))
    }

    /// Takes every completion that has come; `sink` gets the token of each settled frame.
    #[inline(always)]
    pub(crate) fn reap(&mut self, sink: impl FnMut(Token)) {
        on!(self, driver => driver.reap(sink))
    }

    /// Asks for an op to be given up. Its completion comes all the same (**I1**).
    #[inline]
    pub(crate) fn cancel(&mut self, completion: &Completion) {
        on!(self, driver => driver.cancel(completion))
    }

    /// Ops that may still be given to the driver before the limit is reached.
    #[inline(always)]
    pub(crate) fn room(&self) -> u32 {
        on!(self, driver => driver.room())
    }

    /// What an op under way is about.
    pub(crate) fn about(&self, completion: &Completion) -> About {
        match self {
            Driver::Uring(_) => completion.about(),
            Driver::Epoll(driver) => driver.about(completion),
            #[cfg(feature = "sim")]
            Driver::Sim(driver) => driver.about(completion),
        }
    }

    /// What it counts.
    pub(crate) fn counts(&self) -> &Arc<Counts> {
        on!(self, driver => driver.counts())
    }

    /// Whether nothing is in the kernel or on the way there.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        on!(self, driver => driver.is_idle())
    }

    /// Whether entries wait for the next submission, which one more would share.
    #[inline(always)]
    pub(crate) fn has_queued(&self) -> bool {
        on!(self, driver => driver.has_queued())
    }

    /// How many entries wait for the next submission.
    pub(crate) fn queued(&self) -> u32 {
        on!(self, driver => driver.queued())
    }

    /// Has the kernel take everything that is queued.
    pub(crate) fn flush(&mut self) {
        on!(self, driver => driver.flush())
    }

    /// Sends another worker's ring a wake-up. False where this driver cannot.
    pub(crate) fn send_wake(&mut self, ring_fd: RawFd, worker: u32) -> bool {
        match self {
            Driver::Uring(driver) => driver.send_wake(ring_fd, worker),
            Driver::Epoll(_) => false,
            #[cfg(feature = "sim")]
            Driver::Sim(_) => false,
        }
    }

    /// A worker that a message of ours did not reach: to be woken in another way.
    #[inline(always)]
    pub(crate) fn take_undelivered(&mut self) -> Option<u32> {
        match self {
            Driver::Uring(driver) => driver.take_undelivered(),
            Driver::Epoll(_) => None,
            #[cfg(feature = "sim")]
            Driver::Sim(_) => None,
        }
    }

    /// The ring that messages of other workers reach; −1 if there is none.
    pub(crate) fn ring_fd(&self) -> RawFd {
        match self {
            Driver::Uring(driver) => driver.ring_fd(),
            Driver::Epoll(_) => -1,
            #[cfg(feature = "sim")]
            Driver::Sim(_) => -1,
        }
    }

    /// What it can do. Without a ring, everything: what has no better way is a plain call of the pool.
    pub(crate) fn features(&self) -> Features {
        match self {
            Driver::Uring(driver) => driver.features(),
            Driver::Epoll(_) => Features::all(),
            #[cfg(feature = "sim")]
            Driver::Sim(_) => Features::all(),
        }
    }

    /// Whether it performs ops through a ring.
    pub(crate) fn is_ring(&self) -> bool {
        matches!(self, Driver::Uring(_))
    }

    pub(crate) fn id(&self) -> RingId {
        on!(self, driver => driver.id())
    }

    pub(crate) fn register_file(&mut self, fd: RawFd) -> io::Result<u32> {
        on!(self, driver => driver.register_file(fd))
    }

    pub(crate) fn unregister_file(&mut self, slot: u32) {
        on!(self, driver => driver.unregister_file(slot))
    }

    /// The descriptor of a registered file, if that is a regular one.
    pub(crate) fn regular_file(&self, slot: u32) -> Option<RawFd> {
        on!(self, driver => driver.regular_file(slot))
    }

    /// # Safety
    ///
    /// I4: the memory stays allocated until the slot is given back or the driver is gone.
    pub(crate) unsafe fn register_buffer(&mut self, buf: *mut u8, len: usize) -> io::Result<u16> {
        match self {
            // SAFETY: I4. Handed on to the caller.
            Driver::Uring(driver) => unsafe { driver.register_buffer(buf, len) },
            Driver::Epoll(driver) => driver.register_buffer(),
            #[cfg(feature = "sim")]
            Driver::Sim(driver) => driver.register_buffer(),
        }
    }

    pub(crate) fn unregister_buffer(&mut self, slot: u16) {
        on!(self, driver => driver.unregister_buffer(slot))
    }

    /// The time by which timers run: the machine's, or the simulation's.
    #[inline(always)]
    pub(crate) fn now(&self) -> Instant {
        match self {
            Driver::Uring(_) | Driver::Epoll(_) => Instant::now(),
            #[cfg(feature = "sim")]
            Driver::Sim(driver) => driver.now(),
        }
    }

    /// The same to the kernel's tick, as a number: the machine's since it was started, or the simulation's.
    #[inline]
    pub(crate) fn coarse_ns(&self) -> u64 {
        match self {
            Driver::Uring(_) | Driver::Epoll(_) => crate::sys::coarse_ns(),
            #[cfg(feature = "sim")]
            Driver::Sim(driver) => driver.now_ns(),
        }
    }

    /// Whether nothing of this worker may leave its thread or take real time.
    #[inline(always)]
    pub(crate) fn is_simulated(&self) -> bool {
        match self {
            Driver::Uring(_) | Driver::Epoll(_) => false,
            #[cfg(feature = "sim")]
            Driver::Sim(_) => true,
        }
    }

    /// What the simulation has found out about the run as a whole, once.
    #[cfg(feature = "sim")]
    pub(crate) fn take_verdict(&mut self) -> Option<Verdict> {
        match self {
            Driver::Uring(_) | Driver::Epoll(_) => None,
            Driver::Sim(driver) => driver.take_verdict(),
        }
    }

    /// The simulation itself, if it is one.
    #[cfg(feature = "sim")]
    pub(crate) fn simulation(&self) -> Option<&Sim> {
        match self {
            Driver::Uring(_) | Driver::Epoll(_) => None,
            Driver::Sim(driver) => Some(driver),
        }
    }
}
