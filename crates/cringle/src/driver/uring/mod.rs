//! One `io_uring`, owned and used by one worker.
//!
//! It owns the ring's two queues, the descriptor that foreign threads wake it by, and the cancels
//! under way. It promises:
//!
//! - every sqe is answered exactly once towards its frame (**I5**): entries that a call to
//!   `io_uring_enter` did not consume stay queued and are submitted by the next one; a short
//!   submission, `EINTR`, `EAGAIN` and `EBUSY` are dealt with here; `F_MORE` and `F_NOTIF` keep a
//!   frame until its last entry;
//! - at most `in_flight_limit` ops are in the kernel, and the completion queue has room for all of
//!   them, for cancels and for wake-ups (**I7**);
//! - a disk is not left idle while requests for it are being written down: see
//!   [`DISK_GROUP`];
//! - it is closed only when nothing is in flight: closing a ring does not wait for disk reads
//!   (**I1**, **I2**).

mod cancel;
mod encode;
mod fixed;
mod setup;
#[cfg(test)]
mod tests;

use super::completion::{CancelState, Completion, OpState};
use super::{Full, Op, OpSlot, Token, Waiter};
use crate::sys;
use cancel::Cancels;
use fixed::Fixed;
use io_uring::squeue::Entry;
use io_uring::{IoUring, cqueue, opcode, types};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) use setup::UringOptions;
pub use setup::{Feature, Features};

const ENTER_GETEVENTS: u32 = 1;
const ENTER_SQ_WAKEUP: u32 = 1 << 1;
const ENTER_SQ_WAIT: u32 = 1 << 2;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// Turns after which the kernel is entered though nothing seems to wait there. (An enter costs as
/// much as some hundred switches between fibers.)
const TURNS_BLIND: u32 = 61;

/// Where a disk answers (and not the page cache), requests are submitted in groups of so many while
/// fewer than [`DISK_BUSY`] are under way. Submitting takes the processor about as long as the disk
/// needs to answer; all at once at the end of a turn, the two would take turns. Measured at 32 in
/// flight: 1.2 times the rate. From the page cache a call to the kernel for each group would only
/// cost; whether reads end within the submitting call tells the two apart.
const DISK_GROUP: u32 = 4;
/// Requests under way that keep a disk busy.
const DISK_BUSY: u32 = 16;

const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;

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
/// The low bit of a completion's address: the entry answers its cancel, not the op.
const CANCEL_TAG: u64 = 1;

/// After a cancel, each of these means cancelled: `ECANCELED`, `EINTR`, and what the kernel keeps
/// to itself for restarts (`ERESTARTSYS` … `ERESTART_RESTARTBLOCK`).
pub(crate) fn means_cancelled(result: i32) -> bool {
    result == -libc::ECANCELED || result == -libc::EINTR || (-516..=-512).contains(&result)
}

/// Whether a call may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    /// Until at least one completion is there, or the time is up (`None`: no limit).
    Until(Option<Instant>),
}

/// Tells one ring from all others of the process, past and future: registered files and buffers
/// mean something in theirs alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingId(u64);

impl RingId {
    fn new() -> RingId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        RingId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

pub(crate) struct Uring {
    ring: IoUring,
    id: RingId,
    /// What `io_uring_enter` is given for the ring, and the flag that says which.
    enter_fd: RawFd,
    enter_flags: u32,
    features: Features,
    sqpoll: bool,
    in_flight: u32,
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
    wake: WakeRead,
    /// Workers that a message of ours did not reach.
    undelivered: Vec<u32>,
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
        let mut uring = Uring {
            ring,
            id: RingId::new(),
            enter_fd,
            enter_flags,
            features,
            sqpoll: options.sqpoll.is_some(),
            in_flight: 0,
            limit: options.in_flight_limit,
            unsubmitted: 0,
            unsubmitted_disk: 0,
            disk_answers: false,
            unreaped: false,
            turns_unseen: 0,
            cancels: Cancels::default(),
            fixed: Fixed::default(),
            wake: WakeRead { fd: wake_fd, count: Box::new(0), armed: false, closing: false },
            undelivered: Vec::new(),
            #[cfg(test)]
            injected_errors: Default::default(),
        };
        uring.arm_wake();
        Ok(uring)
    }

    pub(crate) fn features(&self) -> Features {
        self.features
    }

    pub(crate) fn id(&self) -> RingId {
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
        self.in_flight
    }

    /// Queues one op. It reaches the kernel with the next [`enter`](Self::enter), or here when the
    /// submission queue is full.
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
        if self.in_flight >= self.limit {
            return Err(Full);
        }
        let user_data = std::ptr::from_ref(completion) as u64;
        // The frequent kinds have a path of their own, on which the kind is known.
        match *op {
            Op::Read { target, buf, len, offset } => {
                let op = Op::Read { target, buf, len, offset };
                self.push_entry(|| encode::entry(&op).user_data(user_data))
            }
            Op::ReadFixed { target, buf, len, offset, index } => {
                let op = Op::ReadFixed { target, buf, len, offset, index };
                self.push_entry(|| encode::entry(&op).user_data(user_data))
            }
            ref op => self.push_any(op, user_data),
        }?;
        completion.start(op.name(), waiter);
        self.in_flight += 1;
        if op.is_positioned_transfer() {
            self.unsubmitted_disk += 1;
            if self.disk_answers && self.unsubmitted_disk >= DISK_GROUP {
                self.keep_disk_busy();
            }
        }
        Ok(())
    }

    /// Queues ops from the front as long as there is room; how many. It spares each what
    /// [`push`](Self::push) asks the ring for every time.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), for each.
    pub(crate) unsafe fn push_many(&mut self, slots: &[OpSlot], waiter: &Waiter) -> usize {
        let mut pushed = 0;
        while pushed < slots.len() && self.room() > 0 {
            let space = self.space();
            if space == 0 {
                break;
            }
            // A disk is to have the first ones early.
            let most = if self.disk_answers { DISK_GROUP as usize } else { slots.len() };
            let count = (slots.len() - pushed).min(self.room() as usize).min(space).min(most);
            let group = &slots[pushed..pushed + count];
            // SAFETY: handed on to the caller.
            unsafe { self.push_group(group, waiter) };
            pushed += count;
            if self.disk_answers && self.unsubmitted_disk >= DISK_GROUP {
                self.keep_disk_busy();
            }
        }
        pushed
    }

    /// Free entries of the submission queue, after a submission when there is none.
    fn space(&mut self) -> usize {
        if self.ring.submission().is_full() {
            self.make_space();
        }
        let queue = self.ring.submission();
        queue.capacity() - queue.len()
    }

    /// Queues ops for which there is room.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), for each.
    unsafe fn push_group(&mut self, slots: &[OpSlot], waiter: &Waiter) {
        let mut queue = self.ring.submission();
        for OpSlot { op, completion } in slots {
            let user_data = std::ptr::from_ref(completion) as u64;
            let entry = |op| encode::entry(op).user_data(user_data);
            // SAFETY: I1, by the contract.
            let pushed = unsafe {
                match *op {
                    Op::Read { target, buf, len, offset } => {
                        queue.push(&entry(&Op::Read { target, buf, len, offset }))
                    }
                    Op::ReadFixed { target, buf, len, offset, index } => {
                        queue.push(&entry(&Op::ReadFixed { target, buf, len, offset, index }))
                    }
                    ref op => queue.push(&entry(op)),
                }
            };
            debug_assert!(pushed.is_ok(), "there was room");
            completion.start(op.name(), waiter);
            self.unsubmitted_disk += u32::from(op.is_positioned_transfer());
        }
        drop(queue);
        self.in_flight += slots.len() as u32;
        self.unsubmitted += slots.len() as u32;
    }

    #[inline(never)]
    fn push_any(&mut self, op: &Op, user_data: u64) -> Result<(), Full> {
        self.push_entry(|| encode::entry(op).user_data(user_data))
    }

    /// Queues an entry, after a submission when there is no room for it.
    #[inline(always)]
    fn push_entry(&mut self, entry: impl FnOnce() -> Entry) -> Result<(), Full> {
        if self.ring.submission().is_full() {
            self.make_space();
        }
        // SAFETY: what the entry points to outlives the op: for ops of fibers by `push`'s contract,
        // for those of the driver because they point into the driver's own boxes.
        unsafe { self.ring.submission().push(&entry()) }.map_err(|_| Full)?;
        self.unsubmitted += 1;
        Ok(())
    }

    #[cold]
    fn keep_disk_busy(&mut self) {
        if self.in_flight.saturating_sub(self.unsubmitted) < DISK_BUSY {
            self.submit();
        }
    }

    #[cold]
    fn make_space(&mut self) {
        let (want, flags) = if self.sqpoll { (0, ENTER_SQ_WAIT) } else { (0, ENTER_GETEVENTS) };
        self.call_enter(want, flags, None);
    }

    /// Asks the kernel to give up an op. Its completion comes all the same (**I1**).
    pub(crate) fn cancel(&mut self, completion: &Completion) {
        self.cancels.want(completion);
        self.queue_cancels();
    }

    fn queue_cancels(&mut self) {
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
    fn arm_wake(&mut self) {
        if self.wake.armed || self.wake.closing {
            return;
        }
        let buf = std::ptr::from_mut(&mut *self.wake.count).cast();
        let entry = opcode::Read::new(types::Fd(self.wake.fd), buf, 8).build().user_data(WAKE_READ);
        self.wake.armed = self.push_entry(|| entry).is_ok();
    }

    /// What a turn has to do with the ring: whether [`reap`](Self::reap) may find something, and
    /// whether something waits for [`enter`](Self::enter).
    #[inline]
    pub(crate) fn attention(&mut self) -> (bool, bool) {
        // Where completions are deferred, they come into the queue only while the kernel is
        // entered, and the ring says when it should be.
        let reap = self.unreaped || !self.features.has(Feature::DeferTaskrun);
        if self.unsubmitted > 0 && !self.sqpoll {
            return (reap, true);
        }
        // With nothing in the kernel nothing comes from there but wake-ups, whose messages are seen
        // in the inbox.
        if self.is_idle() && self.unsubmitted == 0 {
            return (reap, false);
        }
        let queue = self.ring.submission();
        let flagged = queue.taskrun() || queue.cq_overflow();
        let asleep = self.sqpoll && self.unsubmitted > 0 && queue.need_wakeup();
        drop(queue);
        (reap, flagged || asleep || self.cancels.wants_enter() || self.is_blind())
    }

    /// Without the flag that says when deferred work waits, the kernel is entered now and then.
    #[inline]
    fn is_blind(&mut self) -> bool {
        if self.features.has(Feature::TaskrunFlag) || !self.features.has(Feature::DeferTaskrun) {
            return false;
        }
        self.turns_unseen += 1;
        self.turns_unseen >= TURNS_BLIND
    }

    /// Whether nothing is in the kernel or on the way there.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.cancels.is_idle()
    }

    /// Whether entries wait for the next submission.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        self.unsubmitted > 0
    }

    /// Has the kernel take everything that is queued: a message for another ring among it must not
    /// be sent when that ring's number may mean another (**I9**).
    pub(crate) fn flush(&mut self) {
        while !self.ring.submission().is_empty() {
            self.call_enter(0, ENTER_GETEVENTS, None);
            self.reap(|_| {});
        }
    }

    /// Submits what is queued, runs the kernel's deferred work, and waits if asked to.
    ///
    /// Submitting and waiting are two calls: what ends within the first needs no second, and while
    /// the second sleeps the disk already works.
    pub(crate) fn enter(&mut self, wait: Wait) {
        self.arm_wake();
        self.queue_cancels();
        if wait == Wait::No || self.unsubmitted > 0 {
            self.submit();
        }
        let Wait::Until(deadline) = wait else { return };
        if !self.ring.completion().is_empty() {
            return;
        }
        let mut deadline = earlier(deadline, self.cancels.next_due());
        let unheard = !self.wake.armed && !self.wake.closing;
        let unasked = self.cancels.has_backlog() && self.cancels.in_flight == 0;
        if unheard || unasked {
            // Nobody could wake a sleeper whose wake-up read is not armed, or whose cancels found no
            // room: it naps instead.
            deadline = earlier(deadline, Some(Instant::now() + Duration::from_millis(1)));
        }
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let mut flags = ENTER_GETEVENTS;
        if self.features.has(Feature::NoIowait) {
            flags |= ENTER_NO_IOWAIT;
        }
        self.call_enter(1, flags, timeout);
    }

    fn submit(&mut self) {
        let transfers = std::mem::take(&mut self.unsubmitted_disk);
        let under_way = self.in_flight.saturating_sub(self.unsubmitted) as usize;
        let ended_before = self.ring.completion().len();
        self.call_enter(0, ENTER_GETEVENTS, None);
        // While others are under way it cannot be told whose completions come now.
        if transfers > 0 && under_way <= ended_before {
            let ended = self.ring.completion().len() - ended_before;
            self.disk_answers = ended < transfers.div_ceil(2) as usize;
        }
    }

    /// `io_uring_enter`, with each of its answers.
    fn call_enter(&mut self, want: u32, flags: u32, timeout: Option<Duration>) {
        let queued = self.ring.submission().len() as u32;
        let mut flags = flags | self.enter_flags;
        if self.sqpoll && self.ring.submission().need_wakeup() {
            flags |= ENTER_SQ_WAKEUP;
        }
        self.unreaped = true;
        self.turns_unseen = 0;
        match self.enter_syscall(queued, want, flags, timeout) {
            // A short count leaves the rest queued, in order: the next call takes them.
            Ok(taken) => {
                self.unsubmitted = queued - taken.min(queued);
            }
            // The time is up, or a signal came: whoever waits looks again.
            Err(libc::ETIME | libc::EINTR) => {}
            // Nothing was taken, everything stays queued. The kernel wants completions to be
            // reaped (EBUSY) or has no memory for requests right now (EAGAIN): the caller reaps
            // after every call, and one that meant to sleep does so, for at most a millisecond.
            Err(libc::EAGAIN | libc::EBUSY) if want > 0 => {
                let pause = Duration::from_millis(1);
                let pause = timeout.map_or(pause, |timeout| timeout.min(pause));
                let _ = self.enter_syscall(0, 1, flags, Some(pause));
            }
            Err(libc::EAGAIN | libc::EBUSY) => {}
            Err(errno) => broken_ring(errno),
        }
    }

    fn enter_syscall(
        &mut self,
        submit: u32,
        want: u32,
        flags: u32,
        timeout: Option<Duration>,
    ) -> Result<u32, i32> {
        #[cfg(test)]
        if let Some(errno @ 1..) = self.injected_errors.pop_front() {
            return Err(errno);
        }
        let spec;
        let arg;
        let (flags, pointer, size) = match timeout {
            None => (flags, std::ptr::null(), 0),
            Some(timeout) => {
                spec = libc::timespec {
                    tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
                    tv_nsec: i64::from(timeout.subsec_nanos()),
                };
                arg = EnterArg {
                    sigmask: 0,
                    sigmask_size: 0,
                    min_wait_us: 0,
                    timespec: &raw const spec as u64,
                };
                (flags | ENTER_EXT_ARG, &raw const arg, size_of::<EnterArg>())
            }
        };
        // SAFETY: the queued entries hold to `push`'s contract, and the argument is a live
        // structure of the size given, as the flag says.
        let res = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                submit,
                want,
                flags,
                pointer,
                size,
            )
        };
        if res < 0 { Err(sys::errno()) } else { Ok(res as u32) }
    }

    /// Takes every completion that is in the queue. `sink` gets the token of each frame to which
    /// nothing more is owed; it runs no fiber.
    #[inline]
    pub(crate) fn reap(&mut self, mut sink: impl FnMut(Token)) {
        self.unreaped = false;
        let mut queue = self.ring.completion();
        let mut next = queue.next();
        while let Some(cqe) = next {
            // Completions lie on the stacks of their fibers, which other fibers' work has pushed
            // out of the cache: the next one is fetched while this one is handled.
            next = queue.next();
            if let Some(next) = &next {
                prefetch(next.user_data());
            }
            let user_data = cqe.user_data();
            if user_data & (INTERNAL | CANCEL_TAG) != 0 {
                let settled = special(
                    user_data,
                    cqe.result(),
                    &mut self.cancels,
                    &mut self.wake,
                    &mut self.undelivered,
                );
                settled.map(&mut sink);
                continue;
            }
            // SAFETY: I1. `push` stored the address of a completion that its frame keeps until
            // nothing is owed to it, and this cqe is owed.
            let completion = unsafe { &*(user_data as *const Completion) };
            if cqueue::more(cqe.flags()) {
                completion.note(cqe.result());
                continue;
            }
            let result = match cqueue::notif(cqe.flags()) {
                true => completion.noted(),
                false => cqe.result(),
            };
            self.in_flight -= 1;
            if completion.cancel.get() != CancelState::No {
                self.cancels.withdraw(completion);
            }
            completion.finish(result);
            if let Some(token) = completion.waiter_ref().settle_one() {
                sink(token);
            }
        }
    }

    pub(crate) fn register_file(&mut self, fd: RawFd) -> io::Result<u32> {
        self.fixed.add_file(&self.ring.submitter(), fd)
    }

    pub(crate) fn unregister_file(&mut self, slot: u32) {
        self.fixed.remove_file(&self.ring.submitter(), slot);
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
        if self.in_flight > 0 || !self.cancels.is_idle() {
            eprintln!("cringle: a ring was closed with {} ops in flight; aborting", self.in_flight);
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

/// Has the processor fetch what lies at this address, which may be none.
#[inline(always)]
fn prefetch(address: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program could see, and faults at no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// An entry that does not end an op.
#[cold]
fn special(
    user_data: u64,
    result: i32,
    cancels: &mut Cancels,
    wake: &mut WakeRead,
    undelivered: &mut Vec<u32>,
) -> Option<Token> {
    match user_data {
        WAKE_READ => wake.armed = false,
        WAKE_MESSAGE | WAKE_CANCELLED => {}
        _ if user_data & INTERNAL != 0 => undelivered.push(user_data as u32),
        _ => {
            // SAFETY: I1. A cancel that was given to the kernel is owed to its op's frame.
            let completion = unsafe { &*((user_data & !CANCEL_TAG) as *const Completion) };
            cancels.in_flight -= 1;
            completion.cancel.set(CancelState::No);
            if completion.state() == OpState::InFlight && result != 0 {
                cancels.retry_later(completion);
            }
            return completion.waiter_ref().settle_one();
        }
    }
    None
}

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct EnterArg {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timespec: u64,
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct RingUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

fn register_ring_fd(ring_fd: RawFd) -> Option<i32> {
    let mut update = RingUpdate { offset: u32::MAX, reserved: 0, data: ring_fd as u64 };
    // SAFETY: the kernel reads and writes the one structure it is given.
    let done = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring_fd, REGISTER_RING_FDS, &raw mut update, 1)
    };
    (done == 1).then_some(update.offset as i32)
}

fn unregister_ring_fd(ring_fd: RawFd, index: i32) {
    let update = RingUpdate { offset: index as u32, reserved: 0, data: 0 };
    // SAFETY: the kernel reads the one structure it is given.
    unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring_fd,
            UNREGISTER_RING_FDS,
            &raw const update,
            1,
        );
    }
}

/// `io_uring_enter` gave an answer that only a bug, or a ring that something else destroyed, can
/// cause. Fibers cannot be unwound: the kernel may still write into their frames.
#[cold]
fn broken_ring(errno: i32) -> ! {
    let error = io::Error::from_raw_os_error(errno);
    eprintln!(
        "cringle: io_uring_enter failed: {error}. The worker's ring is unusable (was its descriptor \
         closed by something else, or a seccomp filter installed after start?); aborting, because \
         the kernel may still write into buffers of waiting fibers"
    );
    std::process::abort()
}
