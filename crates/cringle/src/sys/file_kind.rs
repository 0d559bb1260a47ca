//! What kind of file a descriptor refers to.

use super::{errno, mode, status_flags, statx};
use std::ffi::c_int;
use std::os::fd::RawFd;

/// What kind of file this is, as far as the library's choices care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileKind {
    /// It waits for nothing but its storage.
    pub(crate) regular: bool,
    pub(crate) fifo: bool,
    /// It has a cursor: reads at the cursor must be serialised (**I11**).
    pub(crate) seekable: bool,
    /// It has no positions at all: a pipe, a terminal. What names one is refused.
    pub(crate) stream: bool,
    /// It takes all of a write that waits, or as much as it can take before its reader goes.
    pub(crate) pipe_or_socket: bool,
    /// A device, or one of the kernel's anonymous files: see [`refusals`].
    pub(crate) odd: bool,
    /// It takes no `pwrite`: it is read only, or one of the many files of `/proc` that are written to at their
    /// cursor alone.
    pub(crate) no_pwrite: bool,
    pub(crate) direct: bool,
    pub(crate) append: bool,
    /// A ring would read or write it at the wrong offsets: see [`lies_on_fuse`].
    pub(crate) off_ring: bool,
    /// A regular file of a file system that is none for disks or memory, such as `/proc`: what a call does to
    /// the cursor is its own affair.
    pub(crate) odd_cursor: bool,
    /// A device whose calls may wait though `poll` reports it ready: see [`is_slow_device`].
    pub(crate) slow_device: bool,
}

/// What a call at a file's cursor may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    Disk,
    /// Whatever a file of `/proc` or its like stands for: the kernel's log, a trace.
    Anything,
    /// The server of a FUSE file system, which may be a fiber of this worker.
    Server,
}

impl FileKind {
    pub(crate) fn waits_for(&self) -> WaitsFor {
        match (self.off_ring, self.odd_cursor) {
            (true, _) => WaitsFor::Server,
            (false, true) => WaitsFor::Anything,
            (false, false) => WaitsFor::Disk,
        }
    }
}

pub(crate) fn file_kind(fd: RawFd) -> FileKind {
    file_kind_with(fd, status_flags(fd))
}

/// The same for who knows the file's status flags.
pub(crate) fn file_kind_with(fd: RawFd, flags: c_int) -> FileKind {
    let (mode, describes_attributes, major) = mode_and_attributes(fd);
    let mode = mode & libc::S_IFMT;
    let read_only = flags & libc::O_ACCMODE == libc::O_RDONLY;
    let ordinary = mode == libc::S_IFREG && describes_attributes;
    let on_fuse = mode == libc::S_IFREG && !ordinary && lies_on_fuse(fd);
    let stream = match (ordinary, on_fuse) {
        (true, _) => false,
        // `lseek` waits for a read at the cursor, which may wait for a server that is a fiber of this worker.
        (_, true) => refuses_pread(fd),
        // SAFETY: no pointers; asking where the cursor is does not move it.
        _ => unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) < 0 && errno() == libc::ESPIPE },
    };
    FileKind {
        regular: mode == libc::S_IFREG && !stream,
        fifo: mode == libc::S_IFIFO,
        seekable: (mode == libc::S_IFREG || mode == libc::S_IFBLK) && !stream,
        stream,
        pipe_or_socket: mode == libc::S_IFIFO || mode == libc::S_IFSOCK,
        odd: mode == libc::S_IFCHR || mode == 0,
        // Of `/proc` no attributes are reported either.
        no_pwrite: mode == libc::S_IFREG
            && (read_only || !describes_attributes && refuses_pwrite(fd)),
        direct: flags & libc::O_DIRECT != 0,
        append: flags & libc::O_APPEND != 0,
        off_ring: on_fuse,
        odd_cursor: mode == libc::S_IFREG && !ordinary,
        slow_device: mode == libc::S_IFCHR && is_slow_device(major),
    }
}

/// `st_mode` (0 for an invalid descriptor); whether the file system reports attributes such as
/// "immutable"; and the major number of a device. Disk and memory file systems report them; FUSE does not. So one
/// `statx`, at the cost of `fstat`, shows that an ordinary file is not on FUSE.
fn mode_and_attributes(fd: RawFd) -> (u32, bool, u32) {
    let described = libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND;
    let mut out = std::mem::MaybeUninit::<libc::statx>::zeroed();
    match statx(fd, c"", libc::AT_EMPTY_PATH, libc::STATX_TYPE | libc::STATX_MODE, &mut out) {
        Ok(()) => {
            // SAFETY: the call succeeded, so the structure is filled (all-zero before).
            let out = unsafe { out.assume_init() };
            let describes = out.stx_attributes_mask & described as u64 != 0;
            (out.stx_mode.into(), describes, out.stx_rdev_major)
        }
        // A filter may refuse the call.
        Err(_) => (mode(fd), false, 0),
    }
}

/// Whether a character device is none of memory (`/dev/null`) and none of the miscellaneous (`/dev/net/tun`), whose
/// writes do not wait.
///
/// A ring asks a device that knows no `RWF_NOWAIT` whether it is ready, and then makes the call, in the worker's
/// thread. A terminal is ready as soon as it has room for a few bytes, but a write to it returns when all are written.
fn is_slow_device(major: u32) -> bool {
    const MEMORY: u32 = 1;
    const MISCELLANEOUS: u32 = 10;
    !matches!(major, MEMORY | MISCELLANEOUS)
}

/// Whether a file is on a FUSE file system.
///
/// Where a FUSE server opens a file with `FOPEN_DIRECT_IO`, it may answer a read or a write with fewer bytes
/// than requested. The ring then requests the rest and relies on the file system having advanced the
/// request's position. FUSE does not advance it for a ring's requests (Linux 6.18), so the ring reads the
/// first bytes again, or overwrites them with the rest. No call reports whether a file was opened that way.
#[cold]
fn lies_on_fuse(fd: RawFd) -> bool {
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
    let mut out = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `fstatfs` fills the structure it is given, and it is read only when the call succeeded.
    let kind = unsafe {
        (libc::fstatfs(fd, out.as_mut_ptr()) == 0).then(|| out.assume_init().f_type as u64)
    };
    kind.is_some_and(|kind| kind & 0xffff_ffff == FUSE_SUPER_MAGIC)
}

/// When a read of a terminal in raw mode returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadTiming {
    /// `VMIN`: after this many bytes.
    pub(crate) bytes: u8,
    /// `VTIME`: after this time without one.
    pub(crate) pause: std::time::Duration,
}

/// The timing of reads, where it is another than "as soon as `poll` reports data". (`poll` waits for `VMIN` bytes
/// where `VTIME` is 0, and for one byte otherwise.)
pub(crate) fn read_timing(fd: RawFd) -> Option<ReadTiming> {
    let (mut settings, mut number) = (std::mem::MaybeUninit::<libc::termios>::uninit(), 0 as c_int);
    // SAFETY: both calls fill what they are given; the settings are read only where the call succeeded.
    let settings = unsafe {
        if libc::tcgetattr(fd, settings.as_mut_ptr()) != 0 {
            return None;
        }
        // The master's end reports the settings of the other.
        if libc::ioctl(fd, libc::TIOCGPTN, &raw mut number) == 0 {
            return None;
        }
        settings.assume_init()
    };
    let (bytes, tenths) = (settings.c_cc[libc::VMIN], settings.c_cc[libc::VTIME]);
    let is_odd = settings.c_lflag & libc::ICANON == 0 && (bytes == 0 || tenths > 0);
    let pause = std::time::Duration::from_millis(100 * u64::from(tenths));
    is_odd.then_some(ReadTiming { bytes, pause })
}

/// The calls that a file refuses, whatever it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusals {
    /// It has no positions (`ESPIPE`), though it may have a cursor: an event counter.
    pub(crate) positions: bool,
    /// It cannot be read (`EINVAL`, `EBADF`): an epoll, a `pidfd`. A ring would poll it first, for ever.
    pub(crate) reads: bool,
    /// It cannot be written to: an inotify, a timer.
    pub(crate) writes: bool,
}

/// An address that no process has. The kernel refuses a call that a file does not have before it looks at
/// the address, and answers `EFAULT` before it asks the file.
const NOWHERE: *mut libc::c_void = std::ptr::without_provenance_mut(usize::MAX & !4095);

fn refuses_pread(fd: RawFd) -> bool {
    // SAFETY: nothing is written at that address.
    unsafe { libc::pread(fd, NOWHERE, 1, 0) < 0 && errno() == libc::ESPIPE }
}

fn refuses_pwrite(fd: RawFd) -> bool {
    // SAFETY: nothing is read at that address.
    unsafe { libc::pwrite(fd, NOWHERE, 1, 0) < 0 && errno() == libc::ESPIPE }
}

/// Asks by transfers to and from [`NOWHERE`].
pub(crate) fn refusals(fd: RawFd) -> Refusals {
    let nowhere = NOWHERE;
    let errno_of = |result: isize| if result < 0 { errno() } else { 0 };
    // SAFETY: the address is the kernel's own, so nothing is read or written there.
    unsafe {
        Refusals {
            positions: errno_of(libc::pread(fd, nowhere, 1, 0)) == libc::ESPIPE,
            reads: errno_of(libc::read(fd, nowhere, 1)) != libc::EFAULT,
            writes: errno_of(libc::write(fd, nowhere, 1)) != libc::EFAULT,
        }
    }
}

/// `statx` alignment of direct I/O on this file, `(memory, offset)` in bytes; `None` where the
/// kernel (before 6.1) or the file system does not say.
pub(crate) fn direct_alignment(fd: RawFd) -> Option<(u32, u32)> {
    let mut out = std::mem::MaybeUninit::<libc::statx>::zeroed();
    statx(fd, c"", libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut out).ok()?;
    // SAFETY: the call succeeded, so the structure is filled (all-zero before).
    let out = unsafe { out.assume_init() };
    let known = out.stx_mask & libc::STATX_DIOALIGN != 0 && out.stx_dio_offset_align > 0;
    known.then_some((out.stx_dio_mem_align, out.stx_dio_offset_align))
}
