//! Batches of a fiber.
//!
//! The operations' buffers are borrowed until `submit` returns, and it returns only after the last
//! completion (**I1**), also if the fiber is cancelled. The kernel never sees a batch that is
//! dropped before it is submitted.

use super::notes::{Note, Notes};
use super::results::{OTHER_RING, Results};
use super::{FixedBuf, FixedFile};
use cringle_core::worker::Current;
use cringle_driver::{DriverId, Op, OpSlot, Target, Way};
use cringle_std::fs::File;
use cringle_std::internal::{InternalFile, Route};
use cringle_sys::MAX_RW_BYTES;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Reads and writes that a fiber submits together, and waits for once. See the
/// [module](crate).
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
    /// The first op of each operation, and its result. The state of a slot is the operation's kind:
    /// `New` for the driver, `Apart` for a fiber, `Done` if it has ended already.
    pub(super) slots: Vec<OpSlot>,
    pub(super) notes: Notes,
    /// The ring of the registered files and buffers, if there are any.
    ring: Option<DriverId>,
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
        Batch::reusing(Vec::with_capacity(operations), Vec::new())
    }

    pub(super) fn reusing(mut slots: Vec<OpSlot>, mut notes: Notes) -> Batch<'b> {
        slots.clear();
        notes.clear();
        Batch { slots, notes, ring: None, borrows: PhantomData }
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
        self.make_exact(id, len)
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
        self.make_exact(id, buf.len())
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
        let op = Op::registered(Way::Read, target, buf.start(), len, offset, buf.slot());
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
        let op = Op::registered(Way::Write, target, buf.start(), len, offset, buf.slot());
        self.push_fixed(op, offset, file, buf)
    }

    #[inline]
    pub(super) fn push(&mut self, op: Op, offset: u64) -> OpId {
        let id = OpId(u32::try_from(self.slots.len()).expect("fewer than 2³² operations"));
        self.slots.push(OpSlot::new(op));
        if offset > i64::MAX as u64 {
            // The largest offset would mean "at the cursor" to a ring (I11).
            self.refuse(id, -libc::EINVAL);
        }
        id
    }

    #[inline]
    fn push_fixed(&mut self, op: Op, offset: u64, file: &'b FixedFile, buf: &FixedBuf) -> OpId {
        let id = self.push(op, offset);
        let ring = *self.ring.get_or_insert(file.ring());
        if ring != file.ring() || ring != buf.ring() {
            self.refuse(id, OTHER_RING);
        } else if let Some(file) = file.handle_for(&op) {
            self.admit(id, file);
        }
        id
    }

    /// Has an operation continue until this many bytes are transferred.
    #[inline]
    fn make_exact(&mut self, id: OpId, len: usize) -> OpId {
        let slot = &mut self.slots[id.0 as usize];
        slot.op = slot.op.exact();
        if len > MAX_RW_BYTES {
            self.notes.push((id, Note::Long(len)));
        }
        id
    }

    /// Admits an operation on a file that is not simply batchable.
    #[cold]
    pub(super) fn admit(&mut self, id: OpId, file: &'b File) {
        let slot = &mut self.slots[id.0 as usize];
        if matches!(slot.op, Op::Nop) {
            return;
        }
        slot.op = slot.op.on_descriptor(file.fd());
        match file.route(&slot.op) {
            Route::Plain => {}
            Route::Whole => slot.completion.set_apart(),
            Route::Refused(errno) => return self.refuse(id, -errno),
        }
        self.notes.push((id, Note::File(NonNull::from(file))));
    }

    /// Ends an operation before it is submitted. Keeps the first reason.
    #[cold]
    fn refuse(&mut self, id: OpId, result: i32) {
        let slot = &mut self.slots[id.0 as usize];
        if !matches!(slot.op, Op::Nop) {
            *slot = OpSlot::new(Op::Nop);
            slot.completion.refuse(result);
            self.notes.push((id, Note::Refused));
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
    /// submitted. The result of both is [`Cancelled`](cringle_core::cancelled::Cancelled). An
    /// operation that has completed keeps its result.
    pub fn submit(mut self) -> Results {
        let here = Current::get();
        // I8: a fiber that unwinds makes plain calls, which registered files do not have.
        let current = here.filter(|current| !current.is_unwinding() || self.ring.is_some());
        if let Some(current) = current {
            current.spend();
        }
        self.refuse_other_rings(current);
        let is_refused = current.is_some_and(Current::refuses);
        if !is_refused && self.copy_resident(here) {
            return Results::new(self, None);
        }
        // A copy may yield, and the fiber be cancelled meanwhile.
        if let Some(current) = current.filter(|it| !is_refused && !it.is_interrupted()) {
            self.perform(current);
        }
        self.settle(current)
    }

    /// Performs the batch without a system call, if all of its operations are reads of mapped files
    /// whose pages are in memory, or if it has none. Otherwise returns the batch, to be submitted;
    /// the reads that were copied keep their results and are not repeated.
    ///
    /// A thread that calls it before [`BlockIo::submit`](super::BlockIo::submit) saves the way to
    /// the worker and back. On a fiber [`submit`](Batch::submit) does the same by itself.
    ///
    /// ```
    /// use cringle::block::{Batch, BlockIo, MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let io = BlockIo::builder().build()?;
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// let mut pages = vec![0; 4 * 4096];
    /// let mut batch = Batch::new();
    /// for (page, offset) in pages.chunks_mut(4096).zip((0..).step_by(4096)) {
    ///     batch.read_mapped(&program, page, offset);
    /// }
    /// let results = match batch.try_submit() {
    ///     Ok(results) => results,
    ///     Err(batch) => io.submit(batch)?,
    /// };
    /// assert!(results.iter().all(|count| matches!(count, Ok(4096))));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The batch, if an operation is left. The batch of a cancelled fiber is returned as it was.
    #[allow(clippy::result_large_err, reason = "it returns the batch, as `Arc::try_unwrap` does")]
    pub fn try_submit(mut self) -> Result<Results, Batch<'b>> {
        let current = Current::get();
        let is_refused = !self.is_empty() && current.is_some_and(Current::refuses);
        if !is_refused && self.copy_resident(current) {
            return Ok(Results::new(self, None));
        }
        Err(self)
    }

    fn refuse_other_rings(&mut self, current: Option<Current>) {
        if self.ring.is_none()
            || self.ring == current.map(|current| current.worker.driver().borrow().id())
        {
            return;
        }
        for index in 0..self.slots.len() {
            if self.slots[index].op.is_registered() {
                self.refuse(OpId(index as u32), OTHER_RING);
            }
        }
        self.notes.sort_by_key(|&(id, _)| id);
    }
}

/// Limits a length to what one op transfers. For a longer buffer, `read` and `write` return a short
/// count, as `pread` and `pwrite` do.
#[inline]
pub(super) fn op_len(len: usize) -> u32 {
    len.min(MAX_RW_BYTES) as u32
}
