//! One `io_uring`, owned and used by one worker.
//!
//! It owns the ring's two queues, the read of the eventfd by which other threads wake it, and the
//! cancels in flight. It promises:
//!
//! - Every sqe is answered exactly once towards its frame (**I5**). Entries that `io_uring_enter`
//!   did not consume stay queued for the next call; this covers short submissions, `EINTR`,
//!   `EAGAIN` and `EBUSY`. A cqe with `F_MORE` does not end its op; the cqe with `F_NOTIF` does.
//! - An op that a kernel thread may perform ends when the kernel has released its file, so that a
//!   `close` afterwards closes it. A linked no-op shows that: see `push.rs`.
//! - At most `limit` ops that end by themselves are in the kernel, and the completion queue has
//!   room for all of them, for cancels and for wake-ups (**I7**). Ops that wait for a peer are
//!   bounded only by the fibers that wait for them. If they all end at once, the kernel keeps the
//!   cqes that do not fit (`NODROP`), sets a flag, and delivers them when it is next entered.
//! - A disk does not idle while requests for it are queued: see `DISK_GROUP`.
//! - A second ring with polled completions, if there is one, is reaped with the first.
//! - The ring is closed only when nothing is in flight, because closing a ring does not wait for
//!   disk reads (**I1**, **I2**).

mod cancel;
mod encode;
mod enter;
mod fixed;
mod iopoll;
mod push;
mod reap;
mod restrict;
mod ring_fd;
mod seccomp_probe;
mod setup;
mod setup_error;
#[cfg(test)]
mod tests;

use super::completion::{CancelState, Completion, OpState};
use super::counters::Counts;
use super::registered::Registered;
use super::{DriverId, Feature, Features, Wait};
use crate::kept::Own;
use crate::ring_use::{flag, opcode};
use cancel::Cancels;
use enter::ENTER_REGISTERED_RING;
use io_uring::{IoUring, types};
use iopoll::PolledRing;
use ring_fd::{register_ring_fd, unregister_ring_fd};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

pub use seccomp_probe::check_seccomp;
pub use setup::UringOptions;

/// The low bit of `user_data`: the entry answers the op's cancel, not the op.
const CANCEL_TAG: u64 = 1;

/// The second bit of `user_data`: the kernel has released the op's file. See
/// [`Op::may_keep_file`](super::Op::may_keep_file).
const RELEASE_TAG: u64 = 2;

/// The bit of `user_data` that marks entries without a frame. No address of user space has it.
const INTERNAL: u64 = 1 << 63;
/// The read of the eventfd has ended.
const WAKE_READ: u64 = INTERNAL;
/// A message of another ring has arrived.
const WAKE_MESSAGE: u64 = INTERNAL | 1;
/// A message to another ring was not delivered; the low half is the worker it was for.
const MESSAGE_FAILED: u64 = INTERNAL | 1 << 62;
/// The cancel of the read of the eventfd has been answered.
const WAKE_CANCELLED: u64 = INTERNAL | 2;
pub struct Uring {
    _own: Own,
    ring: IoUring,
    id: DriverId,
    /// The ring as `io_uring_enter` takes it, a descriptor or a registered index, and the flag that
    /// says which.
    enter_fd: RawFd,
    enter_flags: u32,
    features: Features,
    sqpoll: bool,
    /// Ops in flight that end by themselves and count against the limit.
    in_flight: u32,
    /// Ops in flight that wait for a peer.
    waiting: u32,
    limit: u32,
    /// The most entries that a submission takes; 1 admits one op, also if it has a release.
    capacity: usize,
    /// Entries queued since the last submission.
    unsubmitted: u32,
    /// Positioned reads and writes among them.
    unsubmitted_disk: u32,
    /// Releases among them, each linked to an op.
    unsubmitted_releases: u32,
    /// Whether the last of those did not end within the submitting call, or a later plain call
    /// found that it would wait: a disk answers them, not the page cache.
    disk_answers: bool,
    /// Whether the kernel was entered since the last reap.
    unreaped: bool,
    /// Turns since the last enter, on kernels whose ring has no flag for deferred work.
    turns_unseen: u32,
    cancels: Cancels,
    registered: Registered,
    /// The ring for direct reads and writes, if polling was requested.
    polled: Option<Box<PolledRing>>,
    wake: WakeRead,
    /// Workers that a message did not reach.
    undelivered: Vec<u32>,
    counts: Arc<Counts>,
    /// The errors of the next calls of `io_uring_enter`; 0 makes the call.
    #[cfg(test)]
    pub(crate) injected_errors: std::collections::VecDeque<i32>,
}

/// The read that ends when another thread signals the eventfd. The driver owns its buffer until the
/// read's cqe has arrived (**I4**).
struct WakeRead {
    fd: RawFd,
    count: Box<u64>,
    armed: bool,
    closing: bool,
}

impl Uring {
    /// Makes a ring for the calling thread. `wake_fd` is an eventfd that outlives the ring.
    pub fn new(options: &UringOptions, wake_fd: RawFd) -> io::Result<Uring> {
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
        let capacity = match options.entries {
            1 => 1,
            _ => ring.params().sq_entries() as usize,
        };
        let mut uring = Uring {
            _own: Own::new(ring.as_raw_fd()),
            ring,
            id: DriverId::new(),
            enter_fd,
            enter_flags,
            features,
            sqpoll: options.sqpoll.is_some(),
            in_flight: 0,
            waiting: 0,
            limit: options.in_flight_limit,
            capacity,
            unsubmitted: 0,
            unsubmitted_disk: 0,
            unsubmitted_releases: 0,
            disk_answers: false,
            unreaped: false,
            turns_unseen: 0,
            cancels: Cancels::default(),
            registered: Registered::default(),
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

    /// The number of ops that may be pushed before the limit is reached.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        debug_assert!(self.in_flight <= self.limit, "I7: more ops in flight than the limit");
        self.limit - self.in_flight
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight + self.waiting
    }

    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Requests that the kernel cancel an op. The op's cqe still arrives (**I1**).
    pub(crate) fn cancel(&mut self, completion: &Completion) {
        self.cancels.request(completion);
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
            // SAFETY: I1. The op's cqe has not been reaped: reaping withdraws the op's cancel from
            // the backlog, and this one was still there. So the frame still holds the completion.
            let completion = unsafe { &*pointer };
            debug_assert_eq!(completion.state(), OpState::InFlight, "I9: a cancel of an ended op");
            completion.waiter_ref().owe();
            completion.cancel.set(CancelState::InFlight);
            self.cancels.in_flight += 1;
        }
    }

    /// Queues a wake-up for the ring of another worker. Returns false if this ring cannot send one.
    pub(crate) fn send_wake(&mut self, ring_fd: RawFd, worker: u32) -> bool {
        if !self.features.has(Feature::MsgRing) {
            return false;
        }
        let entry = opcode::MsgRingData::new(types::Fd(ring_fd), 0, WAKE_MESSAGE, None)
            .build()
            .user_data(MESSAGE_FAILED | u64::from(worker))
            .flags(flag::SKIP_SUCCESS);
        self.push_entry(|| entry).is_ok()
    }

    /// A worker that a message did not reach; the caller wakes it in another way.
    pub(crate) fn take_undelivered(&mut self) -> Option<u32> {
        self.undelivered.pop()
    }

    /// Queues the read of the eventfd unless it is queued or in flight.
    pub(super) fn arm_wake(&mut self) {
        if self.wake.armed || self.wake.closing {
            return;
        }
        let buf = std::ptr::from_mut(&mut *self.wake.count).cast();
        let entry = opcode::Read::new(types::Fd(self.wake.fd), buf, 8).build().user_data(WAKE_READ);
        self.wake.armed = self.push_entry(|| entry).is_ok();
    }

    /// Whether no op and no cancel is queued or in flight.
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

    /// Whether the page cache answered the last transfers. A polling kernel thread spares this
    /// thread the work of a read, so there is no plain call then.
    #[inline]
    pub(crate) fn page_cache_answers(&self) -> bool {
        !self.disk_answers && !self.sqpoll
    }

    #[inline]
    pub(crate) fn note_cache_miss(&mut self) {
        self.disk_answers = true;
    }
}

impl Drop for Uring {
    /// Cancels the read of the eventfd, waits for its cqe, and closes the ring. Aborts the process
    /// if an op is in flight: the kernel could write into its frame later.
    fn drop(&mut self) {
        if !self.is_idle() {
            cringle_sys::report(format_args!(
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
            // A read of an eventfd can always be cancelled: no io-wq thread runs it.
            self.enter(Wait::Until(None));
            self.reap(|_| {});
        }
        debug_assert!(!self.wake.armed, "I4: the kernel may write into memory of the driver");
        if self.enter_flags & ENTER_REGISTERED_RING != 0 {
            unregister_ring_fd(self.ring.as_raw_fd(), self.enter_fd);
        }
    }
}
