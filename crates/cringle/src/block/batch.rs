//! Batches of a fiber.
//!
//! The operations' buffers are borrowed until `submit` returns, and it returns only after the last
//! completion (**I1**), also if the fiber is cancelled. The kernel never sees a batch that is
//! dropped before it is submitted.

use super::apart::ByFiles;
use super::mapped::MappedRead;
use super::results::{Outcome, Results, plain_call};
use super::{FixedBuf, FixedFile};
use crate::driver::completion::OpState;
use crate::driver::iopoll::NOT_POLLED;
use crate::driver::{DriverId, Op, OpSlot, Target, blocking};
use crate::fiber::op::{perform_off_ring, perform_to_the_end};
use crate::fs::File;
use crate::runtime::worker::Current;
use crate::sys::MAX_RW_BYTES;
use std::marker::PhantomData;

/// Reads and writes that a fiber submits together, and waits for once. See the
/// [module](crate::block).
///
/// ```
/// # fn main() -> std::io::Result<()> {
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
///     Ok(())
/// })
/// # }
/// ```
///
/// The buffers and files are borrowed until `submit` returns:
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
    /// The exact operations (`read_exact`, `write_all`), with the lengths of their buffers.
    pub(super) exact: Vec<(OpId, usize)>,
    /// The ring of the registered files and buffers, if there are any.
    ring: Option<DriverId>,
    /// Whether a ring would perform some of the operations at the wrong offsets.
    some_off_ring: bool,
    /// The operations on files opened with [`Direct::Bounce`](crate::fs::Direct), in order.
    pub(super) by_files: ByFiles<'b>,
    /// The operations that cannot be performed, with the reason. A `Nop` takes the place of each.
    pub(super) refused: Vec<(OpId, Outcome)>,
    /// The reads that are copied if their pages are in memory.
    pub(super) mapped: Vec<MappedRead>,
    borrows: PhantomData<&'b mut [u8]>,
}

// SAFETY: the pointers are borrows of `File`s, which are `Sync`, and of exclusive or shared
// buffers, which any thread may use. Registered files and buffers are not `Send`, but a batch holds
// only their slot numbers, and `submit` refuses them on another ring.
unsafe impl Send for Batch<'_> {}

/// An operation of a [`Batch`], by which its result is found.
///
/// ```
/// use cringle::{block::{Batch, OpId}, fs::File};
///
/// let file = File::open("/proc/self/exe")?;
/// let mut magic = [0; 4];
/// let mut batch = Batch::new();
/// let read: OpId = batch.read(&file, &mut magic, 0);
/// assert_eq!(batch.submit().get(read)?, 4);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub(super) u32);

impl<'b> Batch<'b> {
    /// Returns an empty batch.
    ///
    /// ```
    /// assert!(cringle::block::Batch::new().is_empty());
    /// ```
    pub fn new() -> Batch<'b> {
        Batch::with_capacity(0)
    }

    /// Returns an empty batch with room for this number of operations.
    ///
    /// ```
    /// let batch = cringle::block::Batch::with_capacity(32);
    /// assert_eq!(batch.len(), 0);
    /// ```
    pub fn with_capacity(operations: usize) -> Batch<'b> {
        Batch::reusing(Vec::with_capacity(operations), Vec::new(), Vec::new(), Vec::new())
    }

    pub(super) fn reusing(
        mut slots: Vec<OpSlot>,
        mut exact: Vec<(OpId, usize)>,
        mut refused: Vec<(OpId, Outcome)>,
        mut mapped: Vec<MappedRead>,
    ) -> Batch<'b> {
        slots.clear();
        exact.clear();
        refused.clear();
        mapped.clear();
        let (ring, some_off_ring) = (None, false);
        let (by_files, borrows) = (ByFiles::default(), PhantomData);
        Batch { slots, exact, ring, some_off_ring, by_files, refused, mapped, borrows }
    }

    /// Returns the number of operations.
    ///
    /// ```
    /// assert_eq!(cringle::block::Batch::new().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the batch has no operations.
    ///
    /// ```
    /// assert!(cringle::block::Batch::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a read from `offset` (in bytes) into `buf`. Its result is the number of bytes, which
    /// may be smaller than the buffer, as for `read_at`; for a file without positions it is
    /// `ESPIPE`.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::File};
    ///
    /// let file = File::open("/proc/self/exe")?;
    /// let mut magic = [0; 4];
    /// let mut batch = Batch::new();
    /// let read = batch.read(&file, &mut magic, 0);
    /// assert_eq!(batch.submit().get(read)?, 4);
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn read(&mut self, file: &'b File, buf: &'b mut [u8], offset: u64) -> OpId {
        // SAFETY: the slice is borrowed for as long as the batch.
        unsafe { self.read_raw(file, buf.as_mut_ptr(), buf.len(), offset) }
    }

    /// Adds a read from `offset` (in bytes) that continues until `buf` is full. Its result is the
    /// buffer's length, or `UnexpectedEof`.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::File};
    ///
    /// let file = File::open("/proc/version")?;
    /// let mut text = [0; 1 << 16];
    /// let mut batch = Batch::new();
    /// let read = batch.read_exact(&file, &mut text, 0);
    /// let error = batch.submit().get(read).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn read_exact(&mut self, file: &'b File, buf: &'b mut [u8], offset: u64) -> OpId {
        let len = buf.len();
        let id = self.read(file, buf, offset);
        self.exact.push((id, len));
        id
    }

    /// Adds a write of `buf` at `offset` (in bytes). Its result is the number of bytes. After a
    /// failure of a file with `O_DSYNC`, it is the bare error of that one: see `WriteFlags::DSYNC`.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::File};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// let file = File::create(&path)?;
    /// let mut batch = Batch::new();
    /// let write = batch.write(&file, b"rope", 0);
    /// assert_eq!(batch.submit().get(write)?, 4);
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn write(&mut self, file: &'b File, buf: &'b [u8], offset: u64) -> OpId {
        // SAFETY: the slice is borrowed for as long as the batch.
        unsafe { self.write_raw(file, buf.as_ptr(), buf.len(), offset) }
    }

    /// Adds a write at `offset` (in bytes) that continues until all of `buf` is written. Its result
    /// is the buffer's length.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::{self, File}};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// let file = File::create(&path)?;
    /// let mut batch = Batch::new();
    /// batch.write_all(&file, b"rope ", 0);
    /// batch.write_all(&file, b"strands", 5);
    /// batch.submit();
    /// assert_eq!(fs::read(&path)?, b"rope strands");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn write_all(&mut self, file: &'b File, buf: &'b [u8], offset: u64) -> OpId {
        let id = self.write(file, buf, offset);
        self.exact.push((id, buf.len()));
        id
    }

    /// Adds a read from a registered file into a registered buffer. Its result is the number of
    /// bytes, or `InvalidInput` if one of the two belongs to another ring than the submitting
    /// worker's.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::{block::{Batch, FixedBufs, FixedFile}, fs::File};
    ///
    /// cringle::run(|| {
    ///     let file = FixedFile::register(&File::open("/proc/self/exe")?)?;
    ///     let mut pages = FixedBufs::new(1, 4096)?;
    ///     let mut batch = Batch::new();
    ///     let read = batch.read_fixed(&file, &mut pages[0], 0);
    ///     assert_eq!(batch.submit().get(read)?, 4096);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[inline]
    pub fn read_fixed(&mut self, file: &'b FixedFile, buf: &'b mut FixedBuf, offset: u64) -> OpId {
        let (target, len) = (Target::fixed(file.slot()), op_len(buf.len()));
        let op = Op::ReadFixed { target, buf: buf.start(), len, offset, index: buf.slot() };
        self.push_fixed(op, offset, file, buf)
    }

    /// Adds a write of a registered buffer to a registered file. Its result is the number of bytes,
    /// or `InvalidInput` if one of the two belongs to another ring than the submitting worker's.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::{block::{Batch, FixedBufs, FixedFile}, fs::File};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// cringle::run(|| {
    ///     let file = FixedFile::register(&File::create(&path)?)?;
    ///     let pages = FixedBufs::new(1, 4096)?;
    ///     let mut batch = Batch::new();
    ///     let write = batch.write_fixed(&file, &pages[0], 0);
    ///     assert_eq!(batch.submit().get(write)?, 4096);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[inline]
    pub fn write_fixed(&mut self, file: &'b FixedFile, buf: &'b FixedBuf, offset: u64) -> OpId {
        let (target, len) = (Target::fixed(file.slot()), op_len(buf.len()));
        let op = match file.writer() {
            None => Op::WriteFixed { target, buf: buf.start(), len, offset, index: buf.slot() },
            Some(writer) => Op::Write { target: writer.target(), buf: buf.start(), len, offset },
        };
        let id = self.push_fixed(op, offset, file, buf);
        if let Some(writer) = file.writer() {
            self.push_special(id, writer, None);
        }
        id
    }

    #[inline]
    pub(super) fn push(&mut self, op: Op, offset: u64) -> OpId {
        let id = OpId(u32::try_from(self.slots.len()).expect("fewer than 2³² operations"));
        self.slots.push(OpSlot::new(op));
        if offset > i64::MAX as u64 {
            // The largest offset would mean "at the cursor" to a ring (I11).
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

    /// Refuses what `pread` and `pwrite` refuse: for a file without positions a ring would read at
    /// the cursor, and for a file that cannot be read it would wait. Keeps operations off the ring
    /// that it would perform at the wrong offsets.
    #[cold]
    pub(super) fn push_special(&mut self, id: OpId, file: &'b File, refused: Option<i32>) {
        match refused {
            Some(errno) => self.refuse(id, Outcome::Errno(errno)),
            None if file.may_perform_itself() => self.by_files.0.push((id, file)),
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
    fn refuse(&mut self, id: OpId, outcome: Outcome) {
        let slot = &mut self.slots[id.0 as usize];
        // Keeps the first reason.
        if !matches!(slot.op, Op::Nop) {
            *slot = OpSlot::new(Op::Nop);
            self.refused.push((id, outcome));
        }
    }

    /// Performs all operations and returns when the last has ended. Only the calling fiber waits.
    /// Outside of a fiber the operations are performed one after the other.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::{block::Batch, fs::File};
    ///
    /// cringle::run(|| {
    ///     let file = File::open("/proc/self/exe")?;
    ///     let mut pages = vec![0; 8 * 4096];
    ///     let mut batch = Batch::new();
    ///     for (page, offset) in pages.chunks_mut(4096).zip((0..).step_by(4096)) {
    ///         batch.read(&file, page, offset);
    ///     }
    ///     for count in batch.submit() {
    ///         assert_eq!(count?, 4096);
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Cancellation
    ///
    /// The operations in the kernel are cancelled, and `submit` waits for them; the others are not
    /// submitted. The result of both is [`Cancelled`](crate::Cancelled). An operation that has
    /// completed keeps its result.
    pub fn submit(mut self) -> Results {
        match Current::get() {
            Some(current) if !current.is_unwinding() || self.ring.is_some() => {
                current.spend();
                self.refuse_other_rings(Some(current.worker.driver().borrow().id()));
                self.perform(current)
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

    fn perform(mut self, current: Current) -> Results {
        let is_refused = current.refuses();
        let copied = if is_refused { 0 } else { self.copy_resident(Some(current)) };
        if copied == self.slots.len() && self.exact.is_empty() {
            return Results::new(self.slots, self.refused, self.exact, self.mapped);
        }
        // A copy may yield, and the fiber be cancelled meanwhile.
        if is_refused || copied > 0 && current.refuses() {
            self.left().for_each(|slot| slot.completion.refuse(-libc::ECANCELED));
        } else if copied > 0
            || !self.by_files.0.is_empty()
            || self.some_off_ring && current.worker.driver().borrow().is_ring()
        {
            self.perform_some_apart(current);
        } else {
            self.perform_together(current);
        }
        let by_files = self.by_files;
        let again = |id, op| match by_files.file_of(id, &op) {
            Some(_) if current.refuses() => -libc::ECANCELED,
            // SAFETY: I1. The batch borrows what its ops point to until it has finished.
            Some(file) => unsafe { file.perform_itself(&op) },
            None => perform_again(current, op),
        };
        let cause = || current.is_interrupted().then(|| current.fiber.cause()).flatten();
        let mut results = Results::new(self.slots, self.refused, self.exact, self.mapped);
        results.note_cancelled(cause());
        results.finish(again, |slot| current.worker.driver().borrow().regular_file(slot));
        results.note_cancelled(cause());
        results
    }

    #[inline]
    pub(super) fn perform_together(&mut self, current: Current) {
        let polled = current.worker.driver().borrow_mut().mark_polled(&mut self.slots);
        current.perform(&self.slots);
        if polled {
            self.end_polling(current);
        }
    }

    /// Repeats, together and without polling, the operations for which the kernel refused to poll.
    #[cold]
    fn end_polling(&mut self, current: Current) {
        let refused = |slot: &OpSlot| slot.op.is_polled() && slot.completion.result() == NOT_POLLED;
        let again: Vec<usize> =
            (0..self.slots.len()).filter(|&at| refused(&self.slots[at])).collect();
        self.slots.iter_mut().for_each(|slot| slot.op = slot.op.unpolled());
        if again.is_empty() {
            return;
        }
        let slots: Vec<_> = again.iter().map(|&at| OpSlot::new(self.slots[at].op)).collect();
        if current.refuses() {
            slots.iter().for_each(|slot| slot.completion.refuse(-libc::ECANCELED));
        } else {
            current.perform(&slots);
        }
        again.into_iter().zip(slots).for_each(|(at, slot)| self.slots[at] = slot);
    }

    /// Returns the operations that have not been performed.
    fn left(&self) -> impl Iterator<Item = &OpSlot> {
        self.slots.iter().filter(|slot| slot.completion.state() == OpState::New)
    }

    fn perform_blocking(mut self) -> Results {
        self.copy_resident(Current::get());
        let by_files = self.by_files;
        // SAFETY: I1. The batch borrows what its ops point to until it has finished.
        let perform = |id, op: Op| unsafe {
            match by_files.file_of(id, &op) {
                Some(file) => file.perform_itself(&op),
                None => blocking::perform(&op),
            }
        };
        let numbered = (0..).map(OpId).zip(&self.slots);
        let left = numbered.filter(|(_, slot)| slot.completion.state() == OpState::New);
        left.for_each(|(id, slot)| slot.completion.refuse(perform(id, slot.op)));
        let mut results = Results::new(self.slots, self.refused, self.exact, self.mapped);
        results.finish(perform, |_| None);
        results
    }
}

/// Performs one operation of a batch separately, and returns its result.
pub(super) fn perform_again(current: Current, op: Op) -> i32 {
    if current.refuses() {
        return -libc::ECANCELED;
    }
    if !op.is_off_ring() || !current.worker.driver().borrow().is_ring() {
        return perform_to_the_end(current, op);
    }
    let registered = |slot| current.worker.driver().borrow().regular_file(slot);
    let op = plain_call(&op, &registered).unwrap_or(op);
    // SAFETY: I1. The batch borrows what its ops point to until it has finished.
    unsafe { perform_off_ring(current.worker, op) }
}

/// Limits a length to what one op transfers. For a longer buffer, `read` and `write` return a short
/// count, as `pread` and `pwrite` do.
#[inline]
pub(super) fn op_len(len: usize) -> u32 {
    len.min(MAX_RW_BYTES) as u32
}
