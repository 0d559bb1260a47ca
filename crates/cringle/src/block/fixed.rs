//! Registered files and buffers: the kernel looks them up and pins them once, not for each
//! operation. They belong to one ring and are used in [`Batch`](super::Batch)es of its worker.

use super::AlignedBuf;
use crate::driver::DriverId;
use crate::fs::File;
use crate::runtime::worker::Worker;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// The largest buffer the kernel registers, in bytes.
const MAX_REGISTERED_BYTES: usize = 1 << 30;
/// Buffers of a page and more begin at one, so that direct I/O accepts them.
const PAGE_BYTES: usize = 4096;

fn no_ring() -> io::Error {
    let text =
        "files and buffers are registered with a worker's ring: do it inside of cringle::run";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// A file registered with the ring of the calling fiber's worker. The file itself may be closed
/// meanwhile: the registration keeps it open.
///
/// ```compile_fail
/// // It stays on its worker.
/// fn sent(file: cringle::block::FixedFile) {
///     cringle::fiber::spawn(move || drop(file));
/// }
/// ```
#[derive(Debug)]
pub struct FixedFile {
    ring: DriverId,
    slot: u32,
    off_ring: bool,
    not_send: PhantomData<*const ()>,
}

impl FixedFile {
    /// Registers the file; dropping the value takes it back.
    ///
    /// # Errors
    ///
    /// `Unsupported` outside of [`run`](crate::run); else what the kernel refused, with the remedy:
    /// a ring holds 1024 files.
    pub fn register(file: &File) -> io::Result<FixedFile> {
        let worker = Worker::here().ok_or_else(no_ring)?;
        let mut driver = worker.driver().borrow_mut();
        let slot = driver.register_file(file.fd())?;
        let (ring, off_ring) = (driver.id(), file.is_off_ring());
        Ok(FixedFile { ring, slot, off_ring, not_send: PhantomData })
    }

    /// Whether a ring would read and write it at the wrong offsets.
    pub(super) fn is_off_ring(&self) -> bool {
        self.off_ring
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
        // A ring that is gone has taken its table with it.
        with_ring(self.ring, |driver| driver.unregister_file(self.slot));
    }
}

fn with_ring(ring: DriverId, f: impl FnOnce(&mut crate::driver::Driver)) {
    Worker::with(|worker| {
        let Some(worker) = worker else { return };
        let mut driver = worker.driver().borrow_mut();
        if driver.id() == ring {
            f(&mut driver);
        }
    });
}

/// Buffers registered with the ring of the calling fiber's worker.
///
/// ```
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
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FixedBufs(Vec<FixedBuf>);

/// One buffer of a [`FixedBufs`]: a `[u8]`.
#[derive(Debug)]
pub struct FixedBuf {
    /// Shared by the buffers of one registration, so that one that was swapped out of its
    /// `FixedBufs` keeps the memory.
    region: Rc<Region>,
    offset: usize,
    len: usize,
}

#[derive(Debug)]
struct Region {
    memory: AlignedBuf,
    ring: DriverId,
    slot: u16,
}

impl FixedBufs {
    /// `count` buffers of `bytes` zero bytes each. From 4096 bytes up they begin at multiples of
    /// 4096, for direct I/O.
    ///
    /// # Errors
    ///
    /// `Unsupported` outside of [`run`](crate::run); `InvalidInput` for more than 1 GiB together;
    /// else what the kernel refused, with the remedy (registered memory counts as locked).
    pub fn new(count: usize, bytes: usize) -> io::Result<FixedBufs> {
        let worker = Worker::here().ok_or_else(no_ring)?;
        let granule = if bytes >= PAGE_BYTES { PAGE_BYTES } else { 64 };
        let stride = bytes.max(1).checked_next_multiple_of(granule);
        let total = stride.and_then(|stride| stride.checked_mul(count));
        let fits = |total: &usize| *total <= MAX_REGISTERED_BYTES;
        let (Some(stride), Some(total)) = (stride, total.filter(fits)) else {
            let text = format!("{count} buffers of {bytes} bytes: at most 1 GiB is registered");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        if count == 0 {
            return Ok(FixedBufs(Vec::new()));
        }
        let memory = AlignedBuf::new(total);
        let mut driver = worker.driver().borrow_mut();
        // SAFETY: I4. The memory is the region's, which gives the slot back before it frees it; if
        // its ring is gone by then, so is the registration.
        let slot = unsafe { driver.register_buffer(memory.as_non_null().as_ptr(), total) }?;
        let region = Rc::new(Region { memory, ring: driver.id(), slot });
        let buf =
            |index| FixedBuf { region: Rc::clone(&region), offset: index * stride, len: bytes };
        Ok(FixedBufs((0..count).map(buf).collect()))
    }
}

impl Deref for FixedBufs {
    type Target = [FixedBuf];

    fn deref(&self) -> &[FixedBuf] {
        &self.0
    }
}

impl DerefMut for FixedBufs {
    fn deref_mut(&mut self) -> &mut [FixedBuf] {
        &mut self.0
    }
}

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
        // SAFETY: the offset lies within the region's memory.
        unsafe { self.region.memory.as_non_null().as_ptr().add(self.offset) }
    }
}

impl Deref for FixedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is this buffer's own part of the region, initialised and alive.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for FixedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; no other buffer has this part, and this one is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}
