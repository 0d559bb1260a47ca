//! Direct I/O at any offset, with any length and buffer ([`Direct::Bounce`]).
//!
//! The kernel transfers whole blocks between the disk and aligned memory. A request is cut into the
//! blocks that lie whole in it and the blocks at its edges:
//!
//! ```text
//! request          ├───────────────────────────────┤
//! blocks      │▒▒▒▒▒▒▒│       │       │       │▒▒▒▒▒▒▒│
//!              edge: through a buffer of the pool   edge
//!                      └ the caller's memory, if it is aligned ┘
//! ```
//!
//! [`read`] and [`write`] do so. A file's length is exact at any time: a write that ends within the
//! last block of the file does not write the rest of that block.
//!
//! # Writes of the same block
//!
//! A write of a part of a block reads the block, changes it and writes it back. Another write of
//! that block meanwhile would be lost. So each write holds its blocks in a [`RangeLock`], which all
//! handles of this process to the file share ([`locks`]). Calls that change the length hold all
//! blocks. So does a write that ends within the file's last block: it writes the bytes of that
//! block through the page cache, so that the kernel sets the exact length. Other processes, and
//! handles without a [`Bounce`], are not excluded.

mod locks;
mod pool;
mod read;
mod write;

use super::File;
use super::file::BOUNCE;
use crate::sync::range_lock::{RangeGuard, RangeLock};
use cringle_sys as sys;
use std::io;
use std::sync::Arc;

/// How a file is read and written past the page cache (`O_DIRECT`): see
/// [`OpenOptions::direct`](super::OpenOptions::direct).
///
/// ```
/// use cringle::fs::{Direct, OpenOptions};
/// use std::os::unix::fs::FileExt;
///
/// # let directory = tempfile::tempdir_in(".")?;
/// # let path = directory.path().join("index");
/// # std::fs::write(&path, vec![7; 10_000])?;
/// cringle::run(|| match OpenOptions::new().read(true).direct(Direct::Bounce).open(&path) {
///     Ok(file) => {
///         let mut record = vec![0; 100];
///         file.read_exact_at(&mut record, 4321)
///     }
///     Err(e) => Ok(println!("no direct I/O here: {e}")),
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Direct {
    /// Every request must be aligned: the buffer's address, the length and the offset are multiples
    /// of what the device requires, often 512 or 4096. The kernel refuses others. It is the same as
    /// `custom_flags(libc::O_DIRECT)`.
    Aligned,
    /// Any request. The blocks at its edges, and all blocks if the buffer is not aligned, go
    /// through aligned buffers of the library, which are copied.
    ///
    /// - A read that reaches the end of the file may fill the rest of the buffer with zeros, as the
    ///   kernel does in any direct read.
    /// - A write of a part of a block reads the block first, so a file that is opened for writing
    ///   is opened for reading, too, which needs the permission to read it.
    /// - Writes by handles of this process that were opened so may overlap or touch the same block:
    ///   none is lost. A write by another process, or by a handle that was opened otherwise, to the
    ///   same block at the same time may be lost.
    /// - Code that runs beside a fiber, as a panic hook does, cannot wait for another write of the
    ///   same blocks: its write fails with `Deadlock`.
    /// - A write that ends beyond the end of the file and within a block puts the bytes of that
    ///   block into the page cache. [`sync_data`](super::File::sync_data) makes them durable, as
    ///   all others.
    /// - A file in append mode cannot be opened so: write at an offset.
    /// - Registered files and buffers, and descriptors that are lent, follow the rules of
    ///   [`Aligned`](Direct::Aligned).
    Bounce,
}

/// What a file that was opened with [`Direct::Bounce`] knows about its blocks.
pub(super) struct Bounce {
    /// The number of bytes that the address of a buffer must be a multiple of.
    memory: usize,
    /// The number of bytes of a block: a power of two.
    block: usize,
    /// A device has a fixed length of whole blocks.
    is_device: bool,
    /// Reads are refused, because the program has asked for write access only.
    refuses_reads: bool,
    /// Held by writes, each for its blocks.
    writes: Arc<RangeLock>,
}

/// The alignment `(memory, block)` that is assumed where the kernel does not report one (before
/// Linux 6.1, and on some file systems): the largest of common disks.
const MAX_ALIGNMENT: (u32, u32) = (4096, 4096);

impl Bounce {
    fn of(file: &File, refuses_reads: bool) -> io::Result<Bounce> {
        let (memory, block) = sys::direct_alignment(file.fd()).unwrap_or(MAX_ALIGNMENT);
        let metadata = file.std().metadata()?;
        Ok(Bounce {
            memory: (memory as usize).next_power_of_two(),
            block: (block as usize).next_power_of_two(),
            is_device: !metadata.is_file(),
            refuses_reads,
            writes: locks::of(&metadata),
        })
    }

    /// Returns the start of the block that contains the offset.
    fn floor(&self, offset: u64) -> u64 {
        offset & !(self.block as u64 - 1)
    }

    /// Returns the end of the block that ends at the offset, or contains it.
    fn ceil(&self, offset: u64) -> u64 {
        self.floor(offset + (self.block as u64 - 1))
    }

    /// Returns the number of bytes between the start of its block and the offset.
    fn within(&self, offset: u64) -> usize {
        (offset - self.floor(offset)) as usize
    }

    /// Returns where the file ends now.
    fn end_of(&self, file: &File) -> io::Result<u64> {
        if self.is_device {
            return Ok(u64::MAX);
        }
        // The server of a FUSE file system may be a fiber of this worker.
        let is_served = file.is_off_ring();
        if is_served {
            file.metadata().map(|m| m.len())
        } else {
            file.std().metadata().map(|m| m.len())
        }
    }

    /// Returns the end of a request. The kernel refuses a request that ends beyond its offsets.
    fn end_of_request(offset: u64, len: usize) -> io::Result<u64> {
        let end = offset.checked_add(len as u64).filter(|&end| i64::try_from(end).is_ok());
        end.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// Performs a request as a plain one, if the kernel has refused it as a direct one. Whole
    /// blocks may exceed a limit that the request does not: of the file's size (`RLIMIT_FSIZE`), or
    /// of the kernel's offsets.
    fn plainly_if_refused(
        &self,
        file: &File,
        result: io::Result<usize>,
        request: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let is_refused = |e: &io::Error| e.raw_os_error() == Some(libc::EINVAL);
        if !result.as_ref().is_err_and(is_refused) {
            return result;
        }
        let _all = self.writes.lock(0..u64::MAX)?;
        let _buffered = Buffered::begin(file)?;
        request()
    }

    /// Whether a batch has to perform a read of these bytes by [`read`](Bounce::read).
    pub(super) fn helps_to_read(&self, address: usize, len: usize, offset: u64) -> bool {
        self.refuses_reads || !self.accepts(address, len, offset)
    }

    fn accepts_memory(&self, address: usize) -> bool {
        address.is_multiple_of(self.memory)
    }

    /// Whether the kernel accepts a direct request of these bytes.
    fn accepts(&self, address: usize, len: usize, offset: u64) -> bool {
        self.accepts_memory(address) && self.within(offset) == 0 && len.is_multiple_of(self.block)
    }
}

impl File {
    /// Prepares a file that was opened with `O_DIRECT` for any request.
    pub(super) fn with_bounce(mut self, refuses_reads: bool) -> io::Result<File> {
        if !self.is_seekable() {
            let text = "Direct::Bounce is for regular files and block devices: open the file \
                        without it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.bounce = Some(Arc::new(Bounce::of(&self, refuses_reads)?));
        self.add_property(BOUNCE);
        Ok(self)
    }

    /// Does what `O_TRUNC` does, which a device ignores, while no write is under way.
    pub(super) fn empty_blocks(&self) -> io::Result<()> {
        let is_device = self.bounce.as_ref().is_some_and(|bounce| bounce.is_device);
        if is_device { Ok(()) } else { self.set_len(0) }
    }

    /// Keeps writes to any block, and changes of the length, of a file that bounces from happening
    /// until the guard is dropped.
    pub(super) fn hold_all_blocks(&self) -> io::Result<Option<RangeGuard<'_>>> {
        self.bounce.as_ref().map(|bounce| bounce.writes.lock(0..u64::MAX)).transpose()
    }

    pub(crate) fn bounces(&self) -> bool {
        self.bounce.is_some()
    }
}

/// Explains a refused `open` with `O_DIRECT`.
#[cold]
pub(super) fn explain_open(e: io::Error) -> io::Error {
    if e.raw_os_error() != Some(libc::EINVAL) {
        return e;
    }
    let text = "the file refuses O_DIRECT (EINVAL), as pipes, devices without blocks, and some file \
                systems do: open it without OpenOptions::direct";
    io::Error::new(e.kind(), text)
}

/// Lets the page cache serve the calls on an open file while it lives.
struct Buffered<'a> {
    file: &'a File,
    flags: i32,
}

impl Buffered<'_> {
    /// The caller holds all blocks.
    fn begin(file: &File) -> io::Result<Buffered<'_>> {
        let flags = sys::status_flags(file.fd());
        sys::set_status_flags(file.fd(), flags & !libc::O_DIRECT)?;
        Ok(Buffered { file, flags })
    }
}

impl Drop for Buffered<'_> {
    fn drop(&mut self) {
        // The kernel has accepted the same flags when the file was opened.
        let _ = sys::set_status_flags(self.file.fd(), self.flags);
    }
}
