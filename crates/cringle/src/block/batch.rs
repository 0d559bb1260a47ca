//! A fiber's batch.
//!
//! `submit` is where the borrows pay: the operations' buffers are borrowed until it returns, and it
//! returns only when the last completion is in (**I1**), also when the fiber is cancelled. A batch
//! that is dropped unsubmitted has never been seen by the kernel.

use super::results::{Outcome, Results, plain_call};
use super::{FixedBuf, FixedFile};
use crate::driver::iopoll::NOT_POLLED;
use crate::driver::{DriverId, Op, OpSlot, Target, blocking};
use crate::fiber;
use crate::fiber::op::{perform_off_ring, perform_to_the_end};
use crate::fs::File;
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::{Here, Worker};
use crate::sys::MAX_RW_BYTES;
use std::cell::Cell;
use std::marker::PhantomData;

/// Operations of one batch that are performed as plain calls at the same time.
const MOST_APART: usize = 32;

/// Reads and writes that are performed together. See the [module](super).
///
/// ```
/// use cringle::{block::Batch, fs::File};
///
/// # let path = std::env::temp_dir().join(format!("cringle-batch-{}", std::process::id()));
/// # std::fs::write(&path, "left right").unwrap();
/// cringle::run(|| {
///     let file = File::open(&path)?;
///     let (mut left, mut right) = ([0; 4], [0; 5]);
///     let mut batch = Batch::new();
///     batch.read(&file, &mut left, 0);
///     let second = batch.read(&file, &mut right, 5);
///     let results = batch.submit();
///     assert_eq!(results.get(second)?, 5);
///     assert_eq!((&left, &right), (b"left", b"right"));
/// #   std::fs::remove_file(&path)?;
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// What it borrows cannot be touched before `submit` has returned:
///
/// ```compile_fail
/// # use cringle::{block::Batch, fs::File};
/// # fn f(file: File) {
/// let mut page = [0; 4096];
/// let mut batch = Batch::new();
/// batch.read(&file, &mut page, 0);
/// page[0] = 1;
/// batch.submit();
/// # }
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing is read or written until it is submitted"]
pub struct Batch<'b> {
    pub(super) slots: Vec<OpSlot>,
    /// Operations that go on until their buffer is through, with its length.
    exact: Vec<(OpId, usize)>,
    /// The ring of the registered files and buffers in it.
    ring: Option<DriverId>,
    /// Whether a ring would perform some of them at the wrong offsets.
    some_off_ring: bool,
    /// Operations that cannot be performed, and why. Their place is held by a `Nop`.
    refused: Vec<(OpId, Outcome)>,
    borrows: PhantomData<&'b mut [u8]>,
}

// SAFETY: the pointers in it are borrows of `File`s, which are `Sync`, and of exclusive or shared
// buffers, which may be used from any thread. Registered files and buffers are not `Send`, but a
// batch holds only their numbers, and `submit` refuses them on another ring.
unsafe impl Send for Batch<'_> {}

/// Names an operation of a [`Batch`], to find its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub(super) u32);

impl<'b> Batch<'b> {
    /// An empty batch.
    pub fn new() -> Batch<'b> {
        Batch::with_capacity(0)
    }

    /// An empty batch with room for so many operations.
    pub fn with_capacity(operations: usize) -> Batch<'b> {
        Batch::reusing(Vec::with_capacity(operations), Vec::new(), Vec::new())
    }

    pub(super) fn reusing(
        mut slots: Vec<OpSlot>,
        mut exact: Vec<(OpId, usize)>,
        mut refused: Vec<(OpId, Outcome)>,
    ) -> Batch<'b> {
        slots.clear();
        exact.clear();
        refused.clear();
        Batch { slots, exact, ring: None, some_off_ring: false, refused, borrows: PhantomData }
    }

    /// How many operations are in it.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Reads from `offset` (in bytes) into `buf`. The result is the number of bytes, fewer at the
    /// end of the file. (`ESPIPE` for what has no positions, as of `read_at`.)
    #[inline]
    pub fn read(&mut self, file: &'b File, buf: &'b mut [u8], offset: u64) -> OpId {
        let (target, len) = (file.target(), op_len(buf.len()));
        let id = self.push(Op::Read { target, buf: buf.as_mut_ptr(), len, offset }, offset);
        if !file.is_batchable_to_read() {
            self.push_special(id, file, file.refuses_read_at());
        }
        id
    }

    /// Reads until `buf` is full. The result is its length, or `UnexpectedEof`.
    pub fn read_exact(&mut self, file: &'b File, buf: &'b mut [u8], offset: u64) -> OpId {
        let len = buf.len();
        let id = self.read(file, buf, offset);
        self.exact.push((id, len));
        id
    }

    /// Writes `buf` at `offset` (in bytes). The result is the number of bytes.
    #[inline]
    pub fn write(&mut self, file: &'b File, buf: &'b [u8], offset: u64) -> OpId {
        let (target, len) = (file.target(), op_len(buf.len()));
        let id = self.push(Op::Write { target, buf: buf.as_ptr(), len, offset }, offset);
        if !file.is_batchable_to_write() {
            self.push_special(id, file, file.refuses_write_at());
        }
        id
    }

    /// Writes until all of `buf` is written. The result is its length.
    pub fn write_all(&mut self, file: &'b File, buf: &'b [u8], offset: u64) -> OpId {
        let id = self.write(file, buf, offset);
        self.exact.push((id, buf.len()));
        id
    }

    /// Reads into a registered buffer from a registered file, both of this worker's ring; on
    /// another the result is `InvalidInput`.
    #[inline]
    pub fn read_fixed(&mut self, file: &'b FixedFile, buf: &'b mut FixedBuf, offset: u64) -> OpId {
        let (target, len) = (Target::fixed(file.slot()), op_len(buf.len()));
        let op = Op::ReadFixed { target, buf: buf.start(), len, offset, index: buf.slot() };
        self.push_fixed(op, offset, file, buf)
    }

    /// Writes a registered buffer to a registered file, both of this worker's ring; on another the
    /// result is `InvalidInput`.
    #[inline]
    pub fn write_fixed(&mut self, file: &'b FixedFile, buf: &'b FixedBuf, offset: u64) -> OpId {
        let (target, len) = (Target::fixed(file.slot()), op_len(buf.len()));
        let op = Op::WriteFixed { target, buf: buf.start(), len, offset, index: buf.slot() };
        self.push_fixed(op, offset, file, buf)
    }

    #[inline]
    fn push(&mut self, op: Op, offset: u64) -> OpId {
        let id = OpId(u32::try_from(self.slots.len()).expect("fewer than 2³² operations"));
        self.slots.push(OpSlot::new(op));
        if offset > i64::MAX as u64 {
            // To the ring the largest of them means "at the cursor" (I11).
            self.refuse(id, Outcome::Errno(libc::EINVAL));
        }
        id
    }

    #[inline]
    fn push_fixed(&mut self, op: Op, offset: u64, file: &FixedFile, buf: &FixedBuf) -> OpId {
        let id = self.push(op, offset);
        let ring = *self.ring.get_or_insert(file.ring());
        if ring != file.ring() || ring != buf.ring() {
            self.refuse(id, Outcome::OtherRing);
        } else if file.is_off_ring() {
            self.keep_off_ring(id);
        }
        id
    }

    /// Refuses what `pread` and `pwrite` refuse: in a file without positions the ring would go on where it is, and
    /// it would wait for one that cannot be read. Keeps a file that a ring would read at the wrong offsets off
    /// the ring.
    #[cold]
    fn push_special(&mut self, id: OpId, file: &File, refused: Option<i32>) {
        match refused {
            Some(errno) => self.refuse(id, Outcome::Errno(errno)),
            None if file.is_off_ring() => self.keep_off_ring(id),
            None => {}
        }
    }

    #[cold]
    fn keep_off_ring(&mut self, id: OpId) {
        let slot = &mut self.slots[id.0 as usize];
        slot.op = slot.op.off_ring();
        self.some_off_ring = true;
    }

    #[cold]
    fn refuse(&mut self, id: OpId, why: Outcome) {
        let slot = &mut self.slots[id.0 as usize];
        // The first reason stands.
        if !matches!(slot.op, Op::Nop) {
            *slot = OpSlot::new(Op::Nop);
            self.refused.push((id, why));
        }
    }

    /// Performs all operations and returns when the last has ended; only the calling fiber waits.
    /// Outside of a fiber they are performed one after the other.
    ///
    /// # Cancellation
    ///
    /// What is in the kernel is given up there, and waited for; what had not been submitted is
    /// not. Both have the result [`Cancelled`](crate::Cancelled). What was done has its result.
    pub fn submit(mut self) -> Results {
        match Worker::current() {
            Some((worker, fiber)) if !worker.is_unwinding(fiber) || self.ring.is_some() => {
                worker.spend(fiber);
                self.refuse_other_rings(Some(worker.driver().borrow().id()));
                self.perform(worker, fiber)
            }
            _ => {
                self.refuse_other_rings(None);
                self.perform_blocking()
            }
        }
    }

    fn refuse_other_rings(&mut self, here: Option<DriverId>) {
        if self.ring.is_none() || self.ring == here {
            return;
        }
        for index in 0..self.slots.len() {
            if matches!(self.slots[index].op, Op::ReadFixed { .. } | Op::WriteFixed { .. }) {
                self.refuse(OpId(index as u32), Outcome::OtherRing);
            }
        }
    }

    fn perform(mut self, worker: Here, fiber: FiberRef) -> Results {
        if worker.refuses(fiber) {
            self.slots.iter().for_each(|slot| slot.completion.refuse(-libc::ECANCELED));
        } else if self.some_off_ring && worker.driver().borrow().is_ring() {
            self.perform_apart(worker, fiber);
        } else {
            self.perform_together(worker, fiber);
        }
        let again = |op: Op| perform_again(worker, fiber, op);
        let cause = || worker.is_interrupted(fiber).then(|| fiber.cause()).flatten();
        let mut results = Results::new(self.slots, self.refused, self.exact);
        results.note_cancelled(cause());
        results.finish(again, |slot| worker.driver().borrow().regular_file(slot));
        results.note_cancelled(cause());
        results
    }

    #[inline]
    fn perform_together(&mut self, worker: Here, fiber: FiberRef) {
        let polled = worker.driver().borrow_mut().mark_polled(&mut self.slots);
        worker.perform(fiber, &self.slots);
        if polled {
            self.end_polling(worker, fiber);
        }
    }

    /// Performs the operations that are kept off the ring on other fibers, as plain calls on threads, while
    /// this fiber performs the rest through the ring.
    #[cold]
    fn perform_apart(&mut self, worker: Here, fiber: FiberRef) {
        let (apart, together): (Vec<usize>, Vec<usize>) =
            (0..self.slots.len()).partition(|&at| self.slots[at].op.is_off_ring());
        let mut others = Batch::with_capacity(together.len());
        others.slots.extend(together.iter().map(|&at| OpSlot::new(self.slots[at].op)));
        let (next, slots) = (Cell::new(0), &self.slots);
        let perform_rest = || {
            while let Some(slot) = apart.get(next.replace(next.get() + 1)).map(|&at| &slots[at]) {
                let (worker, fiber) = Worker::current().expect("called on fibers");
                slot.completion.refuse(perform_again(worker, fiber, slot.op));
            }
        };
        fiber::scope(|s| {
            for _ in 0..apart.len().min(MOST_APART) {
                s.spawn_local(perform_rest);
            }
            others.perform_together(worker, fiber);
        });
        together.into_iter().zip(others.slots).for_each(|(at, slot)| self.slots[at] = slot);
    }

    /// What the kernel would not poll for is done as usual, together; as is what else is to be done.
    #[cold]
    fn end_polling(&mut self, worker: Here, fiber: FiberRef) {
        let refused = |slot: &OpSlot| slot.op.is_polled() && slot.completion.result() == NOT_POLLED;
        let again: Vec<usize> =
            (0..self.slots.len()).filter(|&at| refused(&self.slots[at])).collect();
        self.slots.iter_mut().for_each(|slot| slot.op = slot.op.unpolled());
        if again.is_empty() {
            return;
        }
        let slots: Vec<_> = again.iter().map(|&at| OpSlot::new(self.slots[at].op)).collect();
        if worker.refuses(fiber) {
            slots.iter().for_each(|slot| slot.completion.refuse(-libc::ECANCELED));
        } else {
            worker.perform(fiber, &slots);
        }
        again.into_iter().zip(slots).for_each(|(at, slot)| self.slots[at] = slot);
    }

    fn perform_blocking(self) -> Results {
        // SAFETY: the batch borrows what the ops point to.
        let perform = |op: Op| unsafe { blocking::perform(&op) };
        self.slots.iter().for_each(|slot| slot.completion.refuse(perform(slot.op)));
        let mut results = Results::new(self.slots, self.refused, self.exact);
        results.finish(perform, |_| None);
        results
    }
}

/// Performs one operation of a batch by itself: its result.
fn perform_again(worker: Here, fiber: FiberRef, op: Op) -> i32 {
    if worker.refuses(fiber) {
        return -libc::ECANCELED;
    }
    if !op.is_off_ring() || !worker.driver().borrow().is_ring() {
        return perform_to_the_end(worker, fiber, op);
    }
    let registered = |slot| worker.driver().borrow().regular_file(slot);
    let op = plain_call(&op, &registered).unwrap_or(op);
    // SAFETY: I1. The batch borrows what its ops point to until it has finished.
    unsafe { perform_off_ring(worker, op) }
}

/// What one request to the kernel moves at most; `read` and `write` of a longer buffer come back
/// short, as `pread` and `pwrite` do.
#[inline]
fn op_len(len: usize) -> u32 {
    len.min(MAX_RW_BYTES) as u32
}
