//! Ops into the submission queue.
//!
//! # The release of a file
//!
//! A kernel thread performs what would block in the ring's call: buffered writes of many file
//! systems, syncs, `fallocate`. It posts the completion first, and drops its reference to the file
//! afterwards. A `close` in between closes nothing yet: `flock`s and leases of the file last, a
//! program that was just written cannot be run (`ETXTBSY`), and its file system cannot be
//! unmounted.
//!
//! So such an op ([`Op::may_keep_file`]) is two entries: the op, and a no-op that is linked to it
//! (`IOSQE_IO_HARDLINK`). The kernel starts the no-op when it has freed the op's request, so the op
//! has ended when both completions have arrived. One call submits both entries, because a link ends
//! with the submission. Reads have no second entry. So on file systems without `RWF_NOWAIT` (vfat,
//! `/proc`), a file that was only read may outlast its `close` by microseconds.

use super::enter::{ENTER_GETEVENTS, ENTER_SQ_WAIT};
use super::{Uring, encode};
use crate::op::MemoryKind::{Bytes, Registered};
use crate::op::SocketMemoryKind;
use crate::trace::Recorder;
use crate::{Completion, Full, Op, OpSlot, Transfer, Waiter, Way::Read};
use io_uring::squeue::{Entry, SubmissionQueue};

/// While a disk answers (and not the page cache), requests are submitted in groups of this size
/// until [`DISK_BUSY`] of them are in flight. Submitting a request takes the processor about as
/// long as the disk takes to answer it. If all were submitted at the end of a turn, processor and
/// disk would wait for each other. With the page cache, a call for each group would only add cost.
/// The two are told apart by whether reads end within the submitting call.
const DISK_GROUP: u32 = 4;
/// The number of requests in flight that keeps a disk busy.
const DISK_BUSY: u32 = 16;

impl Uring {
    /// Queues one op. It reaches the kernel with the next [`enter`](Self::enter), or here when the
    /// submission queue is full.
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
        let waits_for_peer = op.waits_for_peer();
        if !waits_for_peer && self.in_flight >= self.limit {
            return Err(Full);
        }
        if self.polled.is_some() && op.is_polled() {
            // SAFETY: I1, by this function's contract.
            return unsafe { self.push_polled(op, completion, waiter) };
        }
        let user_data = std::ptr::from_ref(completion) as u64;
        // The frequent ops have a branch each, so that the encoder is compiled for that op alone.
        match *op {
            Op::Transfer(it @ Transfer { way: Read, kind: Bytes, .. }) => {
                let op = it.known(Read, Bytes);
                self.push_entry(|| encode::entry(&op).user_data(user_data))
            }
            Op::Transfer(it @ Transfer { way: Read, kind: Registered, .. }) => {
                let op = it.known(Read, Registered);
                self.push_entry(|| encode::entry(&op).user_data(user_data))
            }
            Op::Socket(bytes) if bytes.kind == SocketMemoryKind::Bytes => {
                self.push_entry(|| encode::of_socket(bytes).user_data(user_data))
            }
            ref op if op.may_keep_file() => self.push_with_release(op, user_data),
            ref op => self.push_any(op, user_data),
        }?;
        completion.start(op, waiter);
        completion.keep_description(op);
        if op.may_keep_file() {
            completion.await_release();
        }
        self.count_in(waits_for_peer);
        if op.is_positioned_transfer() {
            self.unsubmitted_disk += 1;
            if self.disk_answers && self.unsubmitted_disk >= DISK_GROUP {
                self.keep_disk_busy();
            }
        }
        Ok(())
    }

    /// Queues ops from the front while there is room, and returns their number. The queue is read
    /// once for a group of ops, where [`push`](Self::push) reads it for each.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), for each.
    pub(crate) unsafe fn push_many(&mut self, slots: &[OpSlot], waiter: &Waiter) -> usize {
        if self.polled.is_some() {
            // SAFETY: I1, by this function's contract.
            return unsafe { self.push_each(slots, waiter) };
        }
        let mut pushed = 0;
        while pushed < slots.len() && self.room() > 0 {
            let space = self.space();
            // A disk gets the first group early.
            let most = if self.disk_answers { DISK_GROUP as usize } else { slots.len() };
            let most = (slots.len() - pushed).min(self.room() as usize).min(most);
            let most = most.min(self.capacity);
            let group = fitting(&slots[pushed..pushed + most], space);
            if group.is_empty() {
                break;
            }
            // SAFETY: I1, by this function's contract.
            unsafe { self.push_group(group, waiter) };
            pushed += group.len();
            if self.disk_answers && self.unsubmitted_disk >= DISK_GROUP {
                self.keep_disk_busy();
            }
        }
        pushed
    }

    /// The number of free entries in the submission queue. Submits first if they are too few for
    /// an op with its release.
    pub(super) fn space(&mut self) -> usize {
        if self.free_entries() < 2 {
            self.make_space();
        }
        self.free_entries()
    }

    fn free_entries(&mut self) -> usize {
        let queue = self.ring.submission();
        if queue.len() < self.capacity { queue.capacity() - queue.len() } else { 0 }
    }

    /// Queues ops for which the caller has checked the room and the space.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), for each.
    pub(super) unsafe fn push_group(&mut self, slots: &[OpSlot], waiter: &Waiter) {
        let mut tally = Tally::default();
        let mut queue = self.ring.submission();
        for OpSlot { op, completion } in slots {
            // As in `push`.
            // SAFETY: I1, by this function's contract.
            unsafe {
                match *op {
                    Op::Transfer(it @ Transfer { way: Read, kind: Bytes, .. }) => {
                        fill(&mut queue, &it.known(Read, Bytes), completion, waiter, &mut tally);
                    }
                    Op::Transfer(it @ Transfer { way: Read, kind: Registered, .. }) => {
                        let op = it.known(Read, Registered);
                        fill(&mut queue, &op, completion, waiter, &mut tally);
                    }
                    ref op => fill(&mut queue, op, completion, waiter, &mut tally),
                }
            }
        }
        drop(queue);
        self.in_flight += slots.len() as u32 - tally.waiting;
        self.waiting += tally.waiting;
        self.unsubmitted_disk += tally.positioned;
        debug_assert!(self.in_flight <= self.limit, "I7: more ops in flight than the limit");
        self.unsubmitted += slots.len() as u32 + tally.releases;
        self.unsubmitted_releases += tally.releases;
    }

    #[inline(always)]
    fn count_in(&mut self, waits_for_peer: bool) {
        if waits_for_peer {
            self.waiting += 1;
        } else {
            self.in_flight += 1;
        }
    }

    #[inline(never)]
    pub(super) fn push_any(&mut self, op: &Op, user_data: u64) -> Result<(), Full> {
        self.push_entry(|| encode::entry(op).user_data(user_data))
    }

    /// Queues an op and its release in one submission: a link does not reach from one into the
    /// next.
    #[inline(never)]
    fn push_with_release(&mut self, op: &Op, user_data: u64) -> Result<(), Full> {
        debug_assert!(self.ring.submission().capacity() >= 2, "the queue cannot hold a link");
        self.space();
        let entries = encode::with_release(op, user_data);
        // SAFETY: I1, by the contract of `push`; the release points to nothing.
        unsafe { self.ring.submission().push_multiple(&entries) }.map_err(|_| Full)?;
        self.unsubmitted += 2;
        self.unsubmitted_releases += 1;
        Ok(())
    }

    /// Queues an entry. Submits first if the queue is full.
    #[inline(always)]
    pub(super) fn push_entry(&mut self, entry: impl FnOnce() -> Entry) -> Result<(), Full> {
        if self.ring.submission().len() >= self.capacity {
            self.make_space();
            if self.free_entries() == 0 {
                return Err(Full);
            }
        }
        // SAFETY: what the entry points to outlives its last cqe. For an op of a fiber that is I1,
        // by `push`'s contract. For the driver's own read it is I4: the buffer is a box of the
        // driver, which waits for the read's cqe before it is dropped.
        unsafe { self.ring.submission().push(&entry()) }.map_err(|_| Full)?;
        self.unsubmitted += 1;
        Ok(())
    }

    #[cold]
    pub(super) fn keep_disk_busy(&mut self) {
        let ops = self.unsubmitted.saturating_sub(self.unsubmitted_releases);
        if self.in_flight.saturating_sub(ops) < DISK_BUSY {
            self.enter_amid(Self::submit);
        }
    }

    #[cold]
    pub(super) fn make_space(&mut self) {
        let flags = if self.sqpoll { ENTER_SQ_WAIT } else { ENTER_GETEVENTS };
        self.enter_amid(|uring| uring.call_enter(0, flags, None));
    }

    /// Enters the kernel while a fiber runs. A trace shows the call within that fiber's slice.
    fn enter_amid(&mut self, enter: impl FnOnce(&mut Self)) {
        Recorder::with(|recorder| recorder.enters(self.queued(), false));
        enter(self);
        Recorder::with(Recorder::entered);
    }
}

/// The numbers of ops of each sort in a group.
#[derive(Default)]
struct Tally {
    /// Ops that wait for a peer.
    waiting: u32,
    positioned: u32,
    releases: u32,
}

/// Queues one op of a group. Everything that depends on the op is computed here, inlined: where
/// the caller knows which op it is, little is left to compute.
///
/// # Safety
///
/// As for [`Uring::push_group`].
#[inline(always)]
unsafe fn fill(
    queue: &mut SubmissionQueue<'_>,
    op: &Op,
    completion: &Completion,
    waiter: &Waiter,
    tally: &mut Tally,
) {
    let user_data = std::ptr::from_ref(completion) as u64;
    let keeps_file = op.may_keep_file();
    // SAFETY: I1, by this function's contract: everything the entry points to stays in place.
    let pushed = unsafe {
        if keeps_file {
            queue.push_multiple(&encode::with_release(op, user_data))
        } else {
            queue.push(&encode::entry(op).user_data(user_data))
        }
    };
    debug_assert!(pushed.is_ok(), "I5: an op was started without an entry");
    completion.start(op, waiter);
    if keeps_file {
        completion.await_release();
    }
    tally.releases += u32::from(keeps_file);
    tally.waiting += u32::from(op.waits_for_peer());
    tally.positioned += u32::from(op.is_positioned_transfer());
}

/// The ops from the front whose entries fit into this much space of the submission queue.
fn fitting(slots: &[OpSlot], space: usize) -> &[OpSlot] {
    let mut used = 0;
    let fits = |slot: &&OpSlot| {
        used += 1 + usize::from(slot.op.may_keep_file());
        used <= space
    };
    &slots[..slots.iter().take_while(fits).count()]
}
