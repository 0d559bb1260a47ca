//! Registered files and buffers, which the kernel looks up and pins once instead of for each
//! operation. They belong to one ring, and are used in [`Batch`](super::Batch)es of its worker.

use super::AlignedBuf;
use cringle_core::worker::Worker;
use cringle_driver::{DriverId, Op};
use cringle_std::fiber::{Pin, pin};
use cringle_std::fs::File;
use cringle_std::internal::InternalFile;
use std::io;
use std::rc::Rc;

/// The size of the largest buffer that the kernel registers, in bytes.
const MAX_REGISTERED_BYTES: usize = 1 << 30;
/// Buffers of at least this size start at a multiple of it, so that direct I/O accepts them.
const PAGE_BYTES: usize = 4096;

fn no_ring() -> io::Error {
    let text =
        "files and buffers are registered with a worker's ring: register them in cringle::run";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// A file registered with the ring of the calling fiber's worker. The registration keeps the file
/// open, so the [`File`] may be closed.
///
/// ```
/// use cringle::{block::FixedFile, fs::File};
///
/// cringle::run(|| FixedFile::register(&File::open("/proc/self/exe")?).map(drop))?;
/// # std::io::Result::Ok(())
/// ```
///
/// After a failed write to a file that was opened with `O_DSYNC` or `O_SYNC`, later writes have the
/// bare error of that write (`EIO`): see [`WriteFlags::DSYNC`](cringle_std::fs::WriteFlags::DSYNC).
///
/// It stays on its worker:
///
/// ```compile_fail
/// fn sent(file: cringle::block::FixedFile) {
///     cringle::fiber::spawn(move || drop(file));
/// }
/// ```
#[derive(Debug)]
pub struct FixedFile {
    ring: DriverId,
    slot: u32,
    /// Performs what is not plain: writes that are durable when they return (`O_DSYNC`), and all
    /// operations that a ring would perform at the wrong offsets.
    handle: Option<File>,
    /// The slot is one of a single ring. Dropped after it was released there.
    _pin: Pin,
}

impl FixedFile {
    /// Registers the file. Dropping the value unregisters it.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::{block::FixedFile, fs::File};
    ///
    /// cringle::run(|| {
    ///     let file = FixedFile::register(&File::open("/proc/self/exe")?)?;
    ///     drop(file);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` outside of `run`; otherwise the kernel's error, with the remedy. A ring holds
    /// 1024 files.
    pub fn register(file: &File) -> io::Result<FixedFile> {
        let worker = Worker::here().ok_or_else(no_ring)?;
        let is_plain = !file.writes_durably() && !file.is_off_ring();
        let handle = (!is_plain).then(|| file.try_clone()).transpose()?;
        let mut driver = worker.driver().borrow_mut();
        let slot = driver.register_file(file.fd())?;
        Ok(FixedFile { ring: driver.id(), slot, handle, _pin: pin() })
    }

    /// Returns the handle that performs an op itself, if it is not plain.
    #[inline]
    pub(super) fn handle_for(&self, op: &Op) -> Option<&File> {
        self.handle.as_ref().filter(|file| op.is_write() || file.is_off_ring())
    }

    pub(super) fn ring(&self) -> DriverId {
        self.ring
    }

    pub(super) fn slot(&self) -> u32 {
        self.slot
    }
}

impl Drop for FixedFile {
    fn drop(&mut self) {
        // If the ring is closed, so is its table of files.
        with_ring(self.ring, |driver| driver.unregister_file(self.slot));
    }
}

/// Calls `f` with the driver of this thread's worker, if it is the ring with this ID.
fn with_ring(ring: DriverId, f: impl FnOnce(&mut cringle_driver::Driver)) {
    let Some(worker) = Worker::here() else { return };
    let mut driver = worker.driver().borrow_mut();
    if driver.id() == ring {
        f(&mut driver);
    }
}

/// Buffers registered with the ring of the calling fiber's worker.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::{block::{Batch, FixedBufs, FixedFile}, fs::File};
///
/// cringle::run(|| {
///     let file = FixedFile::register(&File::open("/proc/self/exe")?)?;
///     let mut pages = FixedBufs::new(2, 4096)?;
///     let mut batch = Batch::new();
///     for (page, offset) in pages.iter_mut().zip([0, 4096]) {
///         batch.read_fixed(&file, page, offset);
///     }
///     for count in batch.submit() {
///         assert_eq!(count?, 4096);
///     }
///     assert_eq!(&pages[0][..4], b"\x7fELF");
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct FixedBufs(Vec<FixedBuf>);

/// One buffer of a [`FixedBufs`], which dereferences to `[u8]`.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::block::FixedBufs;
///
/// cringle::run(|| {
///     let mut bufs = FixedBufs::new(1, 16)?;
///     bufs[0][..4].copy_from_slice(b"rope");
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct FixedBuf {
    /// The memory, shared by the buffers of one registration, so that a buffer that was moved out
    /// of its `FixedBufs` keeps it alive.
    region: Rc<Region>,
    offset: usize,
    len: usize,
}

#[derive(Debug)]
struct Region {
    memory: AlignedBuf,
    ring: DriverId,
    slot: u16,
    /// As in [`FixedFile`].
    _pin: Pin,
}

impl FixedBufs {
    /// Allocates and registers `count` buffers of `bytes` zero bytes each. Buffers of at least 4096
    /// bytes start at a multiple of 4096, for direct I/O.
    ///
    /// ```
    /// use cringle::block::FixedBufs;
    ///
    /// let bytes = cringle::run(|| FixedBufs::new(2, 4096).map(|bufs| bufs[1].len()))?;
    /// assert_eq!(bytes, 4096);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` outside of `run`; `InvalidInput` for more than 1 GiB in total; otherwise the
    /// kernel's error, with the remedy (registered memory counts as locked).
    pub fn new(count: usize, bytes: usize) -> io::Result<FixedBufs> {
        let worker = Worker::here().ok_or_else(no_ring)?;
        let granule = if bytes >= PAGE_BYTES { PAGE_BYTES } else { 64 };
        let stride = bytes.max(1).checked_next_multiple_of(granule);
        let total = stride.and_then(|stride| stride.checked_mul(count));
        let fits = |total: &usize| *total <= MAX_REGISTERED_BYTES;
        let (Some(stride), Some(total)) = (stride, total.filter(fits)) else {
            let text = format!(
                "{count} buffers of {bytes} bytes exceed 1 GiB, which is the limit of one registration"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        if count == 0 {
            return Ok(FixedBufs(Vec::new()));
        }
        let memory = AlignedBuf::new(total);
        let mut driver = worker.driver().borrow_mut();
        // SAFETY: I4. The region owns the memory, and unregisters the slot before it frees the
        // memory. If the ring is closed by then, the registration has ended with it.
        let slot = unsafe { driver.register_buffer(memory.as_non_null().as_ptr(), total) }?;
        let region = Rc::new(Region { memory, ring: driver.id(), slot, _pin: pin() });
        let buf =
            |index| FixedBuf { region: Rc::clone(&region), offset: index * stride, len: bytes };
        Ok(FixedBufs((0..count).map(buf).collect()))
    }
}

derefs!([] FixedBufs => [FixedBuf], |it| &it.0, mut &mut it.0);

impl Drop for Region {
    fn drop(&mut self) {
        with_ring(self.ring, |driver| driver.unregister_buffer(self.slot));
    }
}

impl FixedBuf {
    pub(super) fn ring(&self) -> DriverId {
        self.region.ring
    }

    pub(super) fn slot(&self) -> u16 {
        self.region.slot
    }

    pub(super) fn start(&self) -> *mut u8 {
        // SAFETY: the contract of `add`: the offset lies within the region's memory.
        unsafe { self.region.memory.as_non_null().as_ptr().add(self.offset) }
    }
}

derefs! {
    [] FixedBuf => [u8],
    // SAFETY: the range is this buffer's own part of the region, which is initialised, and
    // borrowed with `it`.
    |it| unsafe { std::slice::from_raw_parts(it.start(), it.len) },
    // SAFETY: as above; no other buffer contains this part, and `it` is borrowed exclusively.
    mut unsafe { std::slice::from_raw_parts_mut(it.start(), it.len) }
}
