//! Writing ops into the submission queue.

use super::enter::{ENTER_GETEVENTS, ENTER_SQ_WAIT};
use super::{Uring, encode};
use crate::driver::{Completion, Full, Op, OpSlot, Waiter};
use crate::trace::Recorder;
use io_uring::squeue::Entry;

/// Where a disk answers (and not the page cache), requests are submitted in groups of so many while
/// fewer than [`DISK_BUSY`] are under way. Submitting takes the processor about as long as the disk
/// needs to answer; all at once at the end of a turn, the two would take turns. Measured at 32 in
/// flight: 1.2 times the rate. From the page cache a call to the kernel for each group would only
/// cost; whether reads end within the submitting call tells the two apart.
const DISK_GROUP: u32 = 4;
/// Requests under way that keep a disk busy.
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
    pub(crate) unsafe fn push(
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
            // SAFETY: handed on to the caller.
            return unsafe { self.push_polled(op, completion, waiter) };
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
            Op::Recv { fd, buf, len, flags } => {
                let op = Op::Recv { fd, buf, len, flags };
                self.push_entry(|| encode::entry(&op).user_data(user_data))
            }
            Op::Send { fd, buf, len, flags } => {
                let op = Op::Send { fd, buf, len, flags };
                self.push_entry(|| encode::entry(&op).user_data(user_data))
            }
            ref op => self.push_any(op, user_data),
        }?;
        completion.start(op, waiter);
        completion.keep_description(op);
        self.count_in(waits_for_peer);
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
        if self.polled.is_some() {
            // SAFETY: handed on to the caller.
            return unsafe { self.push_each(slots, waiter) };
        }
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
    pub(super) fn space(&mut self) -> usize {
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
    pub(super) unsafe fn push_group(&mut self, slots: &[OpSlot], waiter: &Waiter) {
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
            completion.start(op, waiter);
            let waits_for_peer = op.waits_for_peer();
            self.in_flight += u32::from(!waits_for_peer);
            self.waiting += u32::from(waits_for_peer);
            self.unsubmitted_disk += u32::from(op.is_positioned_transfer());
        }
        drop(queue);
        self.unsubmitted += slots.len() as u32;
    }

    #[inline(always)]
    fn count_in(&mut self, waits_for_peer: bool) {
        match waits_for_peer {
            true => self.waiting += 1,
            false => self.in_flight += 1,
        }
    }

    #[inline(never)]
    pub(super) fn push_any(&mut self, op: &Op, user_data: u64) -> Result<(), Full> {
        self.push_entry(|| encode::entry(op).user_data(user_data))
    }

    /// Queues an entry, after a submission when there is no room for it.
    #[inline(always)]
    pub(super) fn push_entry(&mut self, entry: impl FnOnce() -> Entry) -> Result<(), Full> {
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
    pub(super) fn keep_disk_busy(&mut self) {
        if self.in_flight.saturating_sub(self.unsubmitted) < DISK_BUSY {
            self.enter_amid(Self::submit);
        }
    }

    #[cold]
    pub(super) fn make_space(&mut self) {
        let flags = if self.sqpoll { ENTER_SQ_WAIT } else { ENTER_GETEVENTS };
        self.enter_amid(|uring| uring.call_enter(0, flags, None));
    }

    /// Enters the kernel while a fiber runs: in a trace, within that fiber's slice.
    fn enter_amid(&mut self, enter: impl FnOnce(&mut Self)) {
        Recorder::with(|recorder| recorder.enters(self.queued(), false));
        enter(self);
        Recorder::with(Recorder::entered);
    }
}
