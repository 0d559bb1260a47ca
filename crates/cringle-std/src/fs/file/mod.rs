//! An open file.
//!
//! [`File`] holds std's file, the [properties] that decide how each call is performed, and the
//! [`Cursor`] that its clones share. The submodules perform the calls:
//!
//! - [`fresh`]: files whose kind is not looked up yet;
//! - [`inline`]: reads and writes that the page cache answers without waiting;
//! - [`transfer`]: reads and writes through the driver, and when a plain call replaces them;
//! - [`positioned`]: the public calls at an offset;
//! - [`syncs`]: one sync for all callers that wait for it;
//! - [`reports`]: calls to which the kernel may report the same failure.
//!
//! Calls at the cursor are in [`cursor`](super::cursor).

mod fresh;
mod inline;
mod positioned;
mod properties;
mod reports;
mod sync_errors;
mod syncs;
mod transfer;

pub(super) use inline::Inline;

use super::bounce::Bounce;
use super::cursor::Cursor;
use super::perform::perform;
use super::{Metadata, OpenOptions, stat};
use crate::fiber::op::perform_to_the_end;
use crate::fiber::unblock::unblock_or_here;
use cringle_core as runtime;
use cringle_driver::{FileOp, Op, Target};
use cringle_sys::lock::OnceLock;
use cringle_sys::{self as sys, FileKind, Owned, WaitsFor};
pub(super) use properties::BOUNCE;
use properties::{FIFO, LENT, MOVED, ODD_CURSOR, OFF_RING, properties_of};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
pub(super) use syncs::Promises;
use syncs::Syncs;

/// An open file, as `std::fs::File`.
///
/// `File` and `&File` implement `Read`, `Write` and `Seek`; std's
/// [`FileExt`](std::os::unix::fs::FileExt) reads and writes at an offset. Only the calling fiber
/// waits. Outside of a fiber, each call is std's blocking one.
///
/// ```
/// use cringle::fs::File;
/// use std::io::{Read, Write, Seek};
///
/// # let path = std::env::temp_dir().join(format!("cringle-doc-{}", std::process::id()));
/// cringle::run(|| {
///     let mut file = File::create_new(&path)?;
///     file.write_all(b"rope strands")?;
///     file.sync_all()?;
///
///     let mut file = File::open(&path)?;
///     let mut text = String::new();
///     file.read_to_string(&mut text)?;
///     assert_eq!(text, "rope strands");
/// #   std::fs::remove_file(&path)
/// })
/// # ?; std::io::Result::Ok(())
/// ```
///
/// # The cursor
///
/// Clones made by [`try_clone`](File::try_clone) share the cursor, and so may other processes and
/// handles of other types. Each read, write and seek at the cursor is one step for all of them, as
/// std's is: no byte is read twice or overwritten.
///
/// A descriptor that was lent ([`AsFd`](std::os::fd::AsFd), [`AsRawFd`]), converted into another
/// type (`Stdio`, `OwnedFd`, std's `File`), or obtained from one, uses the kernel's cursor: while
/// other fibers are runnable, each call at the cursor runs on a thread of the pool, which costs
/// about ten times as much as a call through the ring, and a cancel does not interrupt it once it
/// has begun. Calls at an offset are not affected.
///
/// # Closing
///
/// Dropping a `File` closes it on the calling thread, as std does, and ignores the error.
/// [`close`](File::close) suspends only the calling fiber and reports the error.
pub struct File {
    std: Owned<std::fs::File>,
    /// The bits of [`properties`], 0 until a call needs them.
    properties: AtomicU32,
    cursor: OnceLock<Arc<Cursor>>,
    /// The syncs of this handle and its clones.
    syncs: OnceLock<Arc<Syncs>>,
    /// Set if the file was opened with [`Direct::Bounce`](super::Direct).
    pub(super) bounce: Option<Arc<Bounce>>,
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`].
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing: creates it if it does not exist, and truncates it if it does.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`].
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file and opens it for reading and writing.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the path exists; otherwise as [`OpenOptions::open`].
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// Returns new [`OpenOptions`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Truncates or extends the file to `size` bytes. The ring performs it on Linux 6.9 and later,
    /// a thread of the pool before.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        if i64::try_from(size).is_err() {
            // Returns std's error, which std makes without a system call.
            return self.std.set_len(size);
        }
        let _blocks = self.hold_all_blocks()?;
        // SAFETY: the op has no pointers.
        unsafe { perform(Op::File(FileOp::SetLen { fd: self.fd(), len: size })) }.map(drop)
    }

    /// Returns the file's metadata (`statx`).
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn metadata(&self) -> io::Result<Metadata> {
        stat::stat_open(&*self.std, stat::ALL)
    }

    /// Returns another handle to the same open file. Both share the cursor.
    ///
    /// # Errors
    ///
    /// As std's: no descriptor is free.
    pub fn try_clone(&self) -> io::Result<File> {
        let mut file = File::of_std(sys::duplicate(self.fd())?.into_std().into());
        let cursor = Arc::clone(self.cursor());
        // Pairs with the fence in `lend`: either `lend` sees the cursor, or this load sees `LENT`.
        fence(Ordering::SeqCst);
        let properties = self.properties.load(Ordering::Relaxed);
        if properties & LENT != 0 {
            cursor.lend();
        }
        file.properties.store(properties, Ordering::Relaxed);
        let _ = file.cursor.set(cursor);
        let _ = file.syncs.set(Arc::clone(self.syncs()));
        file.bounce.clone_from(&self.bounce);
        Ok(file)
    }

    /// Closes the file and reports the error. Only the calling fiber waits. The descriptor is
    /// closed in either case.
    ///
    /// ```
    /// use cringle::fs::File;
    ///
    /// cringle::run(|| File::open("/proc/self/exe")?.close())?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `close(2)`: for example, of the last write on a network file system.
    ///
    /// # Cancellation
    ///
    /// A cancel does not interrupt it: the file is closed.
    pub fn close(self) -> io::Result<()> {
        let ring = self.ring().filter(|current| !current.refuses());
        let fd = self.std.into_fd();
        let Some(current) = ring else { return sys::close(fd) };
        // The ring would make the call on this thread.
        if current.worker.may_bypass() && sys::close_waits(fd) {
            return unblock_or_here(|| sys::close_slowly(fd));
        }
        match perform_to_the_end(current, Op::File(FileOp::Close { fd })) {
            // The op was cancelled before it began, so the descriptor is still open. After any
            // other error it is closed, and its number may belong to another file by now.
            result if result == -libc::ECANCELED && current.fiber.is_cancelled() => sys::close(fd),
            result => sys::result_of(result).map(drop),
        }
    }
}

/// The handle, for the other modules of `fs`.
impl File {
    pub(super) fn of_std(std: std::fs::File) -> File {
        let (cursor, syncs) = (OnceLock::new(), OnceLock::new());
        let properties = AtomicU32::new(0);
        File { std: Owned::new(std), properties, cursor, syncs, bounce: None }
    }

    /// Wraps a descriptor whose kind the caller has looked up.
    pub(super) fn of_kind(fd: Owned, kind: FileKind) -> File {
        let file = File::of_std(fd.into_std().into());
        let fifo = if kind.fifo { FIFO } else { 0 };
        file.properties.store(properties_of(file.fd(), kind) | fifo, Ordering::Relaxed);
        file
    }

    pub(super) fn into_std(self) -> std::fs::File {
        self.std.into_std()
    }

    pub(super) fn std(&self) -> &std::fs::File {
        self.settle();
        &self.std
    }

    /// Returns the descriptor for the library's own calls. Unlike `as_raw_fd`, which the program
    /// calls, it does not mark the cursor as lent.
    #[inline]
    pub(crate) fn fd(&self) -> RawFd {
        self.settle();
        self.std.as_raw_fd()
    }

    /// Returns the target by which an op names the file.
    #[inline]
    pub(crate) fn target(&self) -> Target {
        Target::fd(self.fd())
    }
}

/// Sharing of the cursor.
impl File {
    pub(super) fn cursor(&self) -> &Arc<Cursor> {
        self.cursor.get_or_init(|| {
            let has_moved = self.properties.load(Ordering::Relaxed) & MOVED != 0;
            Arc::new(if has_moved { Cursor::of_moved() } else { Cursor::default() })
        })
    }

    /// Marks the cursor, for this handle and all clones, as shared with handles that the library
    /// does not know. Neither allocates nor waits, except for a thread that settles a file: it may
    /// run between `fork` and `exec`.
    #[inline]
    pub(super) fn lend(&self) {
        self.settle();
        if self.properties.load(Ordering::Relaxed) & LENT == 0 {
            self.properties.fetch_or(LENT, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        if let Some(cursor) = self.cursor.get() {
            cursor.lend();
        }
    }

    /// Whether handles that the library does not know may share the cursor.
    pub(super) fn is_lent(&self) -> bool {
        let lent = || self.cursor.get().is_some_and(|cursor| cursor.is_lent());
        self.properties.load(Ordering::Relaxed) & LENT != 0 || lent()
    }

    /// Whether a call at the cursor must be a single system call: unknown handles may share the
    /// cursor, or only the kernel knows how the call moves it. In a simulation neither is the case.
    #[inline]
    pub(super) fn uses_kernels_cursor(&self) -> bool {
        (self.properties() & ODD_CURSOR != 0 || self.is_lent()) && runtime::may_bypass()
    }

    /// Returns what a call at the cursor may wait for.
    pub(super) fn waits_for(&self) -> WaitsFor {
        match self.properties() & (ODD_CURSOR | OFF_RING) {
            0 => WaitsFor::Disk,
            ODD_CURSOR => WaitsFor::Anything,
            _ => WaitsFor::Server,
        }
    }
}
