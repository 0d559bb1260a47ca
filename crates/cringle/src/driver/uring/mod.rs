//! One `io_uring`, owned and used by one worker.
//!
//! It owns the ring's two queues, the descriptor that foreign threads wake it by, and the cancels
//! under way. It promises:
//!
//! - every sqe is answered exactly once towards its frame (**I5**): entries that a call to
//!   `io_uring_enter` did not consume stay queued and are submitted by the next one; a short
//!   submission, `EINTR`, `EAGAIN` and `EBUSY` are dealt with here; `F_MORE` and `F_NOTIF` keep a
//!   frame until its last entry;
//! - at most `in_flight_limit` ops that end by themselves are in the kernel, and the completion queue
//!   has room for all of them, for cancels and for wake-ups (**I7**). Those that wait for a peer are not
//!   bounded, but by the fibers that wait: should they all end at once, the kernel keeps what the queue
//!   has no room for (`NODROP`), and hands it over when it is next entered, which the ring asks for;
//! - a disk is not left idle while requests for it are being written down: see
//!   `DISK_GROUP`;
//! - a second ring for polled completions, where there is one, is looked at with the first;
//! - it is closed only when nothing is in flight: closing a ring does not wait for disk reads
//!   (**I1**, **I2**).

mod cancel;
mod encode;
mod enter;
mod fixed;
mod iopoll;
mod push;
mod reap;
mod ring_fd;
mod seccomp_probe;
mod setup;
mod setup_error;
#[cfg(test)]
mod tests;

use super::completion::{CancelState, Completion};
use super::counters::Counts;
use super::{DriverId, Feature, Features, Wait};
use cancel::Cancels;
use enter::ENTER_REGISTERED_RING;
use fixed::Fixed;
use io_uring::{IoUring, opcode, types};
use iopoll::PolledRing;
use ring_fd::{register_ring_fd, unregister_ring_fd};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

pub(crate) use seccomp_probe::check_seccomp;
pub(crate) use setup::UringOptions;

/// The low bit of a completion's address: the entry answers its cancel, not the op.
const CANCEL_TAG: u64 = 1;

/// `user_data` of entries that no frame waits for. Addresses of user space never have this bit.
const INTERNAL: u64 = 1 << 63;
/// The read of the wake-up descriptor has ended.
const WAKE_READ: u64 = INTERNAL;
/// Another ring's message has come.
const WAKE_MESSAGE: u64 = INTERNAL | 1;
/// A message of ours was not delivered; the low half is the worker it was for.
const MESSAGE_FAILED: u64 = INTERNAL | 1 << 62;
/// The cancel of the wake-up read has been answered.
const WAKE_CANCELLED: u64 = INTERNAL | 2;
pub(crate) struct Uring {
    ring: IoUring,
    id: DriverId,
    /// What `io_uring_enter` is given for the ring, and the flag that says which.
    enter_fd: RawFd,
    enter_flags: u32,
    features: Features,
    sqpoll: bool,
    /// Ops in flight that end by themselves: those that the limit is about.
    in_flight: u32,
    /// Ops in flight that end when a peer does something.
    waiting: u32,
    limit: u32,
    /// Entries queued since the last submission.
    unsubmitted: u32,
    /// Positioned reads and writes among them.
    unsubmitted_disk: u32,
    /// The last of those did not end within the submitting call: a disk is behind them.
    disk_answers: bool,
    /// The kernel was entered since the queue of completions was last emptied.
    unreaped: bool,
    /// Turns since the last enter, where the ring does not say that work waits.
    turns_unseen: u32,
    cancels: Cancels,
    fixed: Fixed,
    /// For direct reads and writes, if that was asked for.
    polled: Option<Box<PolledRing>>,
    wake: WakeRead,
    /// Workers that a message of ours did not reach.
    undelivered: Vec<u32>,
    counts: Arc<Counts>,
    /// What the next calls of `io_uring_enter` answer, 0 meaning that the kernel is asked.
    #[cfg(test)]
    pub(crate) injected_errors: std::collections::VecDeque<i32>,
}

/// The read that ends when a foreign thread signals the wake-up descriptor. The memory is the
/// driver's until the read's cqe is in (**I4**).
struct WakeRead {
    fd: RawFd,
    count: Box<u64>,
    armed: bool,
    closing: bool,
}

impl Uring {
    /// A ring for the calling thread. `wake_fd` is an eventfd that stays open until it is dropped.
    pub(crate) fn new(options: &UringOptions, wake_fd: RawFd) -> io::Result<Uring> {
        let (ring, mut features) = setup::make(options)?;
        let mut enter_fd = ring.as_raw_fd();
        let mut enter_flags = 0;
        if features.has(Feature::RegisteredRing) {
            match register_ring_fd(ring.as_raw_fd()) {
                Some(index) => {
                    enter_fd = index;
                    enter_flags = ENTER_REGISTERED_RING;
                }
                None => features = features.without(Feature::RegisteredRing),
            }
        }
        if !ring.params().is_feature_no_iowait() {
            features = features.without(Feature::NoIowait);
        }
        let polled = options.iopoll.then(|| PolledRing::make(options)).transpose();
        let polled = polled.map_err(setup_error::explain)?.map(Box::new);
        let mut uring = Uring {
            ring,
            id: DriverId::new(),
            enter_fd,
            enter_flags,
            features,
            sqpoll: options.sqpoll.is_some(),
            in_flight: 0,
            waiting: 0,
            limit: options.in_flight_limit,
            unsubmitted: 0,
            unsubmitted_disk: 0,
            disk_answers: false,
            unreaped: false,
            turns_unseen: 0,
            cancels: Cancels::default(),
            fixed: Fixed::default(),
            polled,
            wake: WakeRead { fd: wake_fd, count: Box::new(0), armed: false, closing: false },
            undelivered: Vec::new(),
            counts: Arc::default(),
            #[cfg(test)]
            injected_errors: Default::default(),
        };
        uring.arm_wake();
        Ok(uring)
    }

    pub(crate) fn features(&self) -> Features {
        self.features
    }

    pub(crate) fn id(&self) -> DriverId {
        self.id
    }

    pub(crate) fn ring_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Ops that may still be given to the driver before the limit is reached.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.limit - self.in_flight
    }

    #[cfg_attr(not(feature = "raw"), allow(dead_code))]
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight + self.waiting
    }

    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Asks the kernel to give up an op. Its completion comes all the same (**I1**).
    pub(crate) fn cancel(&mut self, completion: &Completion) {
        self.cancels.want(completion);
        self.queue_cancels();
    }

    pub(super) fn queue_cancels(&mut self) {
        self.cancels.take_due();
        while self.cancels.in_flight < setup::RESERVED_CQES / 2 {
            let Some(pointer) = self.cancels.next() else { return };
            let entry = opcode::AsyncCancel::new(pointer as u64)
                .build()
                .user_data(pointer as u64 | CANCEL_TAG);
            if self.push_entry(|| entry).is_err() {
                self.cancels.put_back(pointer);
                return;
            }
            // SAFETY: I1. The op's cqe has not been taken from the queue (else the cancel had been
            // withdrawn), so its frame still holds the completion.
            let completion = unsafe { &*pointer };
            completion.waiter_ref().owe();
            completion.cancel.set(CancelState::InFlight);
            self.cancels.in_flight += 1;
        }
    }

    /// Sends another worker's ring a wake-up. False where this ring cannot.
    pub(crate) fn send_wake(&mut self, ring_fd: RawFd, worker: u32) -> bool {
        if !self.features.has(Feature::MsgRing) {
            return false;
        }
        let entry = opcode::MsgRingData::new(types::Fd(ring_fd), 0, WAKE_MESSAGE, None)
            .build()
            .user_data(MESSAGE_FAILED | u64::from(worker))
            .flags(io_uring::squeue::Flags::SKIP_SUCCESS);
        self.push_entry(|| entry).is_ok()
    }

    /// A worker that a message of ours did not reach: to be woken in another way.
    pub(crate) fn take_undelivered(&mut self) -> Option<u32> {
        self.undelivered.pop()
    }

    /// Keeps the read of the wake-up descriptor armed.
    pub(super) fn arm_wake(&mut self) {
        if self.wake.armed || self.wake.closing {
            return;
        }
        let buf = std::ptr::from_mut(&mut *self.wake.count).cast();
        let entry = opcode::Read::new(types::Fd(self.wake.fd), buf, 8).build().user_data(WAKE_READ);
        self.wake.armed = self.push_entry(|| entry).is_ok();
    }

    /// Whether nothing is in the kernel or on the way there.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting == 0 && self.cancels.is_idle()
    }

    /// Whether entries wait for the next submission.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        self.unsubmitted > 0
    }

    pub(crate) fn queued(&self) -> u32 {
        self.unsubmitted
    }

    pub(crate) fn register_file(&mut self, fd: RawFd) -> io::Result<u32> {
        self.fixed.add_file(&self.ring.submitter(), fd)
    }

    pub(crate) fn unregister_file(&mut self, slot: u32) {
        self.fixed.remove_file(&self.ring.submitter(), slot);
    }

    /// The descriptor of a registered file, if that is a regular one.
    pub(crate) fn regular_file(&self, slot: u32) -> Option<RawFd> {
        self.fixed.regular_file(slot)
    }

    /// # Safety
    ///
    /// I4: the memory stays allocated until the slot is given back or the ring is closed.
    pub(crate) unsafe fn register_buffer(&mut self, buf: *mut u8, len: usize) -> io::Result<u16> {
        let slice = libc::iovec { iov_base: buf.cast(), iov_len: len };
        // SAFETY: handed on to the caller.
        unsafe { self.fixed.add_buffer(&self.ring.submitter(), slice) }
    }

    pub(crate) fn unregister_buffer(&mut self, slot: u16) {
        self.fixed.remove_buffer(&self.ring.submitter(), slot);
    }
}

impl Drop for Uring {
    /// Ends the ring: gives up the wake-up read, waits for its last entry, and closes. Aborts the
    /// process if a frame is still owed something: the kernel would write into it later.
    fn drop(&mut self) {
        if !self.is_idle() {
            crate::sys::report(format_args!(
                "a ring was closed with {} ops in flight; aborting",
                self.in_flight + self.waiting
            ));
            std::process::abort();
        }
        self.wake.closing = true;
        if self.wake.armed {
            let entry = || opcode::AsyncCancel::new(WAKE_READ).build().user_data(WAKE_CANCELLED);
            while self.push_entry(entry).is_err() {
                self.reap(|_| {});
            }
        }
        while self.wake.armed {
            // The descriptor's read can always be given up: no io-wq thread runs it.
            self.enter(Wait::Until(None));
            self.reap(|_| {});
        }
        if self.enter_flags & ENTER_REGISTERED_RING != 0 {
            unregister_ring_fd(self.ring.as_raw_fd(), self.enter_fd);
        }
    }
}
