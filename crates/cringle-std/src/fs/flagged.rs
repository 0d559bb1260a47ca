//! Reads and writes with flags of the kernel (`RWF_…` of `preadv2(2)`).

use super::File;
use crate::fiber::op::perform_on_pool;
use cringle_core as runtime;
use cringle_core::worker::Current;
use cringle_driver::{Op, Way};
use cringle_sys as sys;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

/// Flags of one read: see [`File::read_at_with`]. They are combined by `|`.
///
/// ```
/// use cringle::fs::ReadFlags;
///
/// let flags = ReadFlags::DONTCACHE | ReadFlags::HIPRI;
/// assert_ne!(flags, ReadFlags::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadFlags(i32);

impl ReadFlags {
    /// The read does not wait (`RWF_NOWAIT`, Linux 4.14): it returns what the page cache holds, or
    /// `WouldBlock`. In a simulation it waits.
    pub const NOWAIT: ReadFlags = ReadFlags(libc::RWF_NOWAIT);
    /// The kernel polls the device for the completion (`RWF_HIPRI`, Linux 4.6), if the file is
    /// opened for direct I/O and the device has polled queues. A thread of the pool makes the call.
    /// For many reads, see `block::BlockIoBuilder::iopoll`.
    pub const HIPRI: ReadFlags = ReadFlags(libc::RWF_HIPRI);
    /// The pages that the read brings into the page cache are dropped from it afterwards
    /// (`RWF_DONTCACHE`, Linux 6.14). Pages that are there already stay.
    pub const DONTCACHE: ReadFlags = ReadFlags(libc::RWF_DONTCACHE);
}

flags_or!(ReadFlags);

/// Flags of one write: see [`File::write_at_with`]. They are combined by `|`.
///
/// ```
/// use cringle::fs::WriteFlags;
///
/// let flags = WriteFlags::APPEND | WriteFlags::DSYNC;
/// assert_ne!(flags, WriteFlags::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WriteFlags(i32);

impl WriteFlags {
    /// The write returns when its bytes are durable (`RWF_DSYNC`, Linux 4.7), as after
    /// [`sync_data`](File::sync_data), but only these bytes. A disk that knows FUA needs no flush
    /// for a direct write.
    ///
    /// A failure makes every later sync through this handle and its clones fail, as a failure of
    /// [`sync_data`](File::sync_data) does: the kernel has reported it, would not report it again,
    /// and may have dropped other bytes, too. For the same reason it fails the syncs, and the
    /// writes with this flag, that are under way. So a write returns only when those have ended
    /// that were under way at its end. That holds for direct I/O, too, because some file systems
    /// perform some direct writes through the page cache (ext4 without extents, into holes).
    ///
    /// Unless space was lacking, later writes with this flag fail, too: on ext4 a write to the same
    /// pages may not reach the disk. After a lack of space later writes may succeed, but every
    /// later [`sync_all`](File::sync_all) and [`sync_data`](File::sync_data) fails with
    /// `StorageFull` until the file is opened again: the kernel may have found no space for bytes
    /// of earlier writes without the flag.
    ///
    /// All of this holds for every write of a file that was opened with `O_DSYNC` or `O_SYNC`, but
    /// after a lack of space its syncs do not fail: no bytes of others depend on them. The
    /// operations of a `block::Batch` have the bare error of the first failure.
    pub const DSYNC: WriteFlags = WriteFlags(libc::RWF_DSYNC);
    /// As [`DSYNC`](WriteFlags::DSYNC), with all of the file's metadata (`RWF_SYNC`, Linux 4.7).
    pub const SYNC: WriteFlags = WriteFlags(libc::RWF_SYNC);
    /// The write goes to the end of the file; the offset is ignored (`RWF_APPEND`, Linux 4.16).
    pub const APPEND: WriteFlags = WriteFlags(libc::RWF_APPEND);
    /// The write goes to the offset, though the file is opened in append mode (`RWF_NOAPPEND`,
    /// Linux 6.9).
    pub const NOAPPEND: WriteFlags = WriteFlags(libc::RWF_NOAPPEND);
    /// The write does not wait (`RWF_NOWAIT`, Linux 4.14): `WouldBlock` if it had to. Few file
    /// systems support it for buffered writes. In a simulation it waits.
    pub const NOWAIT: WriteFlags = WriteFlags(libc::RWF_NOWAIT);
    /// As [`ReadFlags::HIPRI`].
    pub const HIPRI: WriteFlags = WriteFlags(libc::RWF_HIPRI);
    /// The written pages are dropped from the page cache as soon as they are on the disk
    /// (`RWF_DONTCACHE`, Linux 6.14).
    pub const DONTCACHE: WriteFlags = WriteFlags(libc::RWF_DONTCACHE);
    /// After a loss of power the file has all of the bytes or none (`RWF_ATOMIC`, Linux 6.11). The
    /// file is opened for direct I/O, and [`File::atomic_write_limits`] returns the lengths that
    /// are allowed.
    pub const ATOMIC: WriteFlags = WriteFlags(libc::RWF_ATOMIC);
}

flags_or!(WriteFlags);

/// The lengths of writes with [`WriteFlags::ATOMIC`] that a file accepts: powers of two between
/// `least` and `most` bytes, at offsets that are multiples of the length.
///
/// ```no_run
/// use cringle::fs::File;
///
/// match File::open("data")?.atomic_write_limits()? {
///     Some(limits) => println!("{} to {} bytes", limits.least, limits.most),
///     None => println!("no write of this file is atomic"),
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AtomicWriteLimits {
    /// The length of the shortest write, in bytes.
    pub least: u32,
    /// The length of the longest write, in bytes.
    pub most: u32,
    /// The largest number of buffers of a vectored write.
    pub segments: u32,
}

impl File {
    /// Reads at an offset (in bytes) with flags of the kernel, and returns the number of bytes. The
    /// cursor does not move. Without flags it is [`read_at`](std::os::unix::fs::FileExt::read_at).
    ///
    /// ```
    /// use cringle::fs::{File, ReadFlags};
    ///
    /// let mut magic = [0; 4];
    /// match File::open("/proc/self/exe")?.read_at_with(&mut magic, 0, ReadFlags::NOWAIT) {
    ///     Ok(count) => assert_eq!(&magic[..count], &b"\x7fELF"[..count]),
    ///     Err(e) => println!("it would have waited, or cannot tell: {e}"),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_at`](std::os::unix::fs::FileExt::read_at); `Unsupported` if the kernel or the file
    /// system does not know a flag, or the file was opened with
    /// [`Direct::Bounce`](super::Direct::Bounce); `WouldBlock` with [`ReadFlags::NOWAIT`]; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn read_at_with(&self, buf: &mut [u8], offset: u64, flags: ReadFlags) -> io::Result<usize> {
        self.read_vectored_at_with(&mut [IoSliceMut::new(buf)], offset, flags)
    }

    /// Reads as [`read_at_with`](File::read_at_with) does, into several buffers.
    ///
    /// ```
    /// use cringle::fs::{File, ReadFlags};
    /// use std::io::IoSliceMut;
    ///
    /// let (mut magic, mut class) = ([0; 4], [0; 1]);
    /// let mut bufs = [IoSliceMut::new(&mut magic), IoSliceMut::new(&mut class)];
    /// let file = File::open("/proc/self/exe")?;
    /// assert_eq!(file.read_vectored_at_with(&mut bufs, 0, ReadFlags::default())?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_at_with`](File::read_at_with).
    pub fn read_vectored_at_with(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
        flags: ReadFlags,
    ) -> io::Result<usize> {
        if flags == ReadFlags::default() {
            return self.read_vectored_at(bufs, offset);
        }
        self.check_flagged(offset)?;
        let (slices, count) = (bufs.as_ptr().cast(), sys::slice_count(bufs.len()));
        let op = Op::slices(Way::Read, self.fd(), slices, count, offset, flags.0);
        let result = match How::of(flags.0) {
            How::Ring(flags) => self.read_vectored_through(bufs, offset, flags),
            // SAFETY: I1. The caller's buffers are borrowed until this returns.
            how => unsafe { how.perform(op) },
        };
        result.map_err(|e| self.explain_flagged(e, "read", bufs, offset))
    }

    /// Writes at an offset (in bytes) with flags of the kernel, and returns the number of bytes.
    /// The cursor does not move. Without flags it is
    /// [`write_at`](std::os::unix::fs::FileExt::write_at).
    ///
    /// ```
    /// use cringle::fs::{File, WriteFlags};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = File::create(&path)?;
    /// log.write_at_with(b"durable when this returns", 0, WriteFlags::DSYNC)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write_at`](std::os::unix::fs::FileExt::write_at); `Unsupported` if the kernel or the
    /// file system does not know a flag, or the file was opened with
    /// [`Direct::Bounce`](super::Direct::Bounce); `InvalidInput` for a length or an offset that
    /// [`WriteFlags::ATOMIC`] does not allow; `WouldBlock` with [`WriteFlags::NOWAIT`]; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn write_at_with(&self, buf: &[u8], offset: u64, flags: WriteFlags) -> io::Result<usize> {
        self.write_vectored_at_with(&[IoSlice::new(buf)], offset, flags)
    }

    /// Writes as [`write_at_with`](File::write_at_with) does, several buffers.
    ///
    /// ```
    /// use cringle::fs::{self, File, WriteFlags};
    /// use std::io::IoSlice;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = File::create(&path)?;
    /// let bufs = [IoSlice::new(b"rope "), IoSlice::new(b"strands")];
    /// log.write_vectored_at_with(&bufs, 0, WriteFlags::APPEND | WriteFlags::DSYNC)?;
    /// assert_eq!(fs::read(&path)?, b"rope strands");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write_at_with`](File::write_at_with).
    pub fn write_vectored_at_with(
        &self,
        bufs: &[IoSlice<'_>],
        offset: u64,
        flags: WriteFlags,
    ) -> io::Result<usize> {
        if flags == WriteFlags::default() {
            return self.write_vectored_at(bufs, offset);
        }
        self.check_flagged(offset)?;
        let (slices, count) = (bufs.as_ptr().cast(), sys::slice_count(bufs.len()));
        let op = Op::slices(Way::Write, self.fd(), slices, count, offset, flags.0);
        let write = || match How::of(flags.0) {
            How::Ring(flags) => self.write_vectored_flagged(bufs, offset, flags),
            // SAFETY: I1. The caller's buffers are borrowed until this returns.
            how => unsafe { how.perform(op) },
        };
        let syncs = flags.0 & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
        let result = if syncs { self.write_durably(write) } else { self.write_as_opened(write) };
        result.map_err(|e| {
            if let Some(limits) = self.refuses_atomic(&e, flags) {
                return refused_atomic(limits);
            }
            self.explain_flagged(e, "write", bufs, offset)
        })
    }

    /// Returns which writes with [`WriteFlags::ATOMIC`] the file accepts; `None` if none: the disk,
    /// the file system or the kernel (before Linux 6.11) does not support them, or the file is not
    /// opened for direct I/O. The call does not wait for the disk.
    ///
    /// ```
    /// use cringle::fs::File;
    ///
    /// assert_eq!(File::open("/proc/version")?.atomic_write_limits()?, None);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `statx(2)`.
    pub fn atomic_write_limits(&self) -> io::Result<Option<AtomicWriteLimits>> {
        if sys::status_flags(self.fd()) & libc::O_DIRECT == 0 {
            return Ok(None);
        }
        let mut out = std::mem::MaybeUninit::<libc::statx>::zeroed();
        let mask = libc::STATX_WRITE_ATOMIC;
        sys::statx(self.fd(), c"", libc::AT_EMPTY_PATH, mask, &mut out)?;
        // SAFETY: an all-zero structure is valid, and the call has filled it.
        let out = unsafe { out.assume_init() };
        let limits = AtomicWriteLimits {
            least: out.stx_atomic_write_unit_min,
            most: out.stx_atomic_write_unit_max,
            segments: out.stx_atomic_write_segments_max,
        };
        Ok((out.stx_mask & mask != 0 && limits.most > 0).then_some(limits))
    }

    fn check_flagged(&self, offset: u64) -> io::Result<()> {
        self.check_offset(offset)?;
        if self.bounces() {
            let text = "a file that was opened with Direct::Bounce takes no flags for a single read \
                        or write: open it with Direct::Aligned";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        if let Some(current) = Current::get()
            && current.refuses()
        {
            return Err(current.fiber.cancel_error());
        }
        Ok(())
    }

    /// Returns the limits of atomic writes, if the write was one, and was refused by them.
    #[cold]
    fn refuses_atomic(
        &self,
        e: &io::Error,
        flags: WriteFlags,
    ) -> Option<Option<AtomicWriteLimits>> {
        let refusals = [libc::EINVAL, libc::EOPNOTSUPP];
        let refused = e.raw_os_error().is_some_and(|code| refusals.contains(&code));
        let is_atomic = flags.0 & libc::RWF_ATOMIC != 0;
        (is_atomic && refused).then(|| self.atomic_write_limits().unwrap_or(None))
    }

    #[cold]
    fn explain_flagged<S: std::ops::Deref<Target = [u8]>>(
        &self,
        e: io::Error,
        what: &str,
        bufs: &[S],
        offset: u64,
    ) -> io::Error {
        if e.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return self.explain(bufs, offset, e);
        }
        let text = format!(
            "this kernel or the file system of the file does not support a {what} with these \
             flags: {what} without them"
        );
        io::Error::new(io::ErrorKind::Unsupported, text)
    }
}

/// The way to perform a call with flags.
enum How {
    /// As an op, with these flags.
    Ring(i32),
    /// By this thread: the call does not wait.
    Here,
    /// By a thread of the pool: a ring refuses to poll, unless it only polls.
    Pool,
}

impl How {
    fn of(flags: i32) -> How {
        if !runtime::may_bypass() {
            // The simulation decides what waits.
            return How::Ring(flags & !(libc::RWF_NOWAIT | libc::RWF_HIPRI));
        }
        match flags {
            flags if flags & libc::RWF_NOWAIT != 0 => How::Here,
            flags if flags & libc::RWF_HIPRI != 0 => How::Pool,
            flags => How::Ring(flags),
        }
    }

    /// # Safety
    ///
    /// The op's buffers are valid until this returns.
    unsafe fn perform(self, op: Op) -> io::Result<usize> {
        // SAFETY: by the contract.
        sys::result_of(unsafe {
            match self {
                How::Pool if Current::get().is_some() => perform_on_pool(op),
                _ => cringle_driver::blocking::perform(&op),
            }
        })
    }
}

/// The error of an atomic write that breaks the rules.
#[cold]
fn refused_atomic(limits: Option<AtomicWriteLimits>) -> io::Error {
    match limits {
        Some(limits) => io::Error::new(io::ErrorKind::InvalidInput, limits.to_string()),
        None => io::Error::new(
            io::ErrorKind::Unsupported,
            "no write of this file is atomic: the file must be opened with O_DIRECT, and the disk, \
             the file system and the kernel (6.11) must support it; File::atomic_write_limits tells",
        ),
    }
}

impl fmt::Display for AtomicWriteLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AtomicWriteLimits { least, most, segments } = self;
        write!(
            f,
            "an atomic write has a power of two from {least} to {most} bytes, an offset that is a \
             multiple of it, and at most {segments} buffers"
        )
    }
}
