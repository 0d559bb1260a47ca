//! The classification of files: the properties that decide how the library performs a call.

use super::{errno, mode, status_flags, statx, syscall};
use std::ffi::c_int;
use std::os::fd::RawFd;

/// The properties of an open file that decide how a call on it is performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKind {
    /// Reads and writes wait only for storage.
    pub regular: bool,
    /// A pipe, also one with a name.
    pub fifo: bool,
    /// The file has a cursor, at which reads and writes must be serialised (**I11**).
    pub seekable: bool,
    /// The file has no positions: a pipe or a terminal. Calls at an offset are refused.
    pub stream: bool,
    /// A blocking write returns when all bytes are written, or the reader has closed.
    pub pipe_or_socket: bool,
    /// The file is a device, or one of the kernel's anonymous files: see [`refusals`].
    pub odd: bool,
    /// `pwrite` is refused: the file is opened read-only, or is one of the files of `/proc` that
    /// can be written only at the cursor.
    pub no_pwrite: bool,
    /// The file is opened for direct I/O (`O_DIRECT`).
    pub direct: bool,
    /// Each write goes to the end of the file (`O_APPEND`).
    pub append: bool,
    /// Each write returns when its bytes are durable (`O_DSYNC`, which `O_SYNC` contains).
    pub durable: bool,
    /// A ring would read or write the file at the wrong offsets: see [`lies_on_fuse`].
    pub off_ring: bool,
    /// The file is on a file system, such as `/proc`, whose calls may move the cursor in their own
    /// way.
    pub odd_cursor: bool,
    /// The file is a device whose calls may wait although `poll` reports it ready: see
    /// [`is_slow_device`].
    pub slow_device: bool,
}

/// The resource that a call at a file's cursor may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Storage.
    Disk,
    /// The source of a file of `/proc` or similar: the kernel's log, or a trace.
    Anything,
    /// The server of a FUSE file system, which may be a fiber of this worker.
    Server,
}

impl FileKind {
    /// Returns what a call at the file's cursor may wait for.
    pub fn waits_for(&self) -> WaitsFor {
        match (self.off_ring, self.odd_cursor) {
            (true, _) => WaitsFor::Server,
            (false, true) => WaitsFor::Anything,
            (false, false) => WaitsFor::Disk,
        }
    }
}

/// What one `statx` reports of an open file.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// `st_mode`, 0 for an invalid descriptor.
    mode: u32,
    /// Whether the file system reports attributes such as "immutable".
    describes_attributes: bool,
    /// The major number of a device.
    major: u32,
}

impl Description {
    /// A regular file of an ordinary file system.
    pub const ORDINARY: Description =
        Description { mode: libc::S_IFREG, describes_attributes: true, major: 0 };

    /// Whether it is a regular file of a file system on a disk or in memory, which a ring reads as
    /// `pread` does. (It reads neither pipes and devices so, nor files on FUSE.)
    pub fn is_ordinary(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG && self.describes_attributes
    }
}

/// Classifies an open file.
pub fn file_kind(fd: RawFd) -> FileKind {
    file_kind_with(fd, status_flags(fd))
}

/// Classifies a file that is described already.
pub fn file_kind_of_described(fd: RawFd, description: Description) -> FileKind {
    file_kind_of(fd, status_flags(fd), description)
}

/// Classifies a file whose status flags the caller knows.
pub fn file_kind_with(fd: RawFd, flags: c_int) -> FileKind {
    file_kind_of(fd, flags, description(fd))
}

fn file_kind_of(fd: RawFd, flags: c_int, description: Description) -> FileKind {
    let Description { mode, describes_attributes, major } = description;
    let ordinary = description.is_ordinary();
    let mode = mode & libc::S_IFMT;
    let read_only = flags & libc::O_ACCMODE == libc::O_RDONLY;
    let on_fuse = mode == libc::S_IFREG && !ordinary && lies_on_fuse(fd);
    let stream = match (ordinary, on_fuse) {
        (true, _) => false,
        // `lseek` would wait for a concurrent read at the cursor, which may wait for a FUSE server
        // that is a fiber of this worker.
        (_, true) => refuses_pread(fd),
        // SAFETY: no pointers. The call does not move the cursor.
        _ => unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) < 0 && errno() == libc::ESPIPE },
    };
    FileKind {
        regular: mode == libc::S_IFREG && !stream,
        fifo: mode == libc::S_IFIFO,
        seekable: (mode == libc::S_IFREG || mode == libc::S_IFBLK) && !stream,
        stream,
        pipe_or_socket: mode == libc::S_IFIFO || mode == libc::S_IFSOCK,
        odd: mode == libc::S_IFCHR || mode == 0,
        // `/proc` does not report attributes either.
        no_pwrite: mode == libc::S_IFREG
            && (read_only || !describes_attributes && refuses_pwrite(fd)),
        direct: flags & libc::O_DIRECT != 0,
        append: flags & libc::O_APPEND != 0,
        durable: flags & libc::O_DSYNC != 0,
        off_ring: on_fuse,
        odd_cursor: mode == libc::S_IFREG && !ordinary,
        slow_device: mode == libc::S_IFCHR && is_slow_device(major),
    }
}

/// Attributes that file systems on disks and in memory report, and file systems of servers do not.
pub(super) const DESCRIBED: u64 =
    libc::STATX_ATTR_IMMUTABLE as u64 | libc::STATX_ATTR_APPEND as u64;

/// Describes a file.
///
/// File systems on disks and in memory report attributes, and FUSE does not. So one `statx`, at the
/// cost of an `fstat`, shows that an ordinary file is not on FUSE.
pub fn description(fd: RawFd) -> Description {
    let mut out = std::mem::MaybeUninit::<libc::statx>::zeroed();
    match statx(fd, c"", libc::AT_EMPTY_PATH, libc::STATX_TYPE | libc::STATX_MODE, &mut out) {
        Ok(()) => {
            // SAFETY: an all-zero structure is valid, and the call has filled it.
            let out = unsafe { out.assume_init() };
            let describes = out.stx_attributes_mask & DESCRIBED != 0;
            Description {
                mode: out.stx_mode.into(),
                describes_attributes: describes,
                major: out.stx_rdev_major,
            }
        }
        // A seccomp filter may refuse the call.
        Err(_) => Description { mode: mode(fd), describes_attributes: false, major: 0 },
    }
}

/// Whether calls on a character device may wait although it is ready. It excludes memory devices
/// (`/dev/null`) and miscellaneous devices (`/dev/net/tun`), whose writes do not wait.
///
/// For a device that does not support `RWF_NOWAIT`, a ring polls and then makes the call on the
/// worker's thread. A terminal is ready as soon as it has room for a few bytes, but a write returns
/// only when all bytes are written.
fn is_slow_device(major: u32) -> bool {
    const MEMORY: u32 = 1;
    const MISCELLANEOUS: u32 = 10;
    !matches!(major, MEMORY | MISCELLANEOUS)
}

/// Whether a file is on a FUSE file system.
///
/// A FUSE server that opens a file with `FOPEN_DIRECT_IO` may transfer fewer bytes than requested.
/// The ring then requests the rest, and relies on the file system to have advanced the request's
/// position. FUSE does not advance it for a ring's requests (Linux 6.18), so the ring reads the
/// first bytes again, or overwrites them with the rest. No call reports whether a file was opened
/// that way.
#[cold]
fn lies_on_fuse(fd: RawFd) -> bool {
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
    let mut out = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the structure is borrowed for the call, and is read only if the call has filled it.
    let kind = unsafe {
        (libc::fstatfs(fd, out.as_mut_ptr()) == 0).then(|| out.assume_init().f_type as u64)
    };
    kind.is_some_and(|kind| kind & 0xffff_ffff == FUSE_SUPER_MAGIC)
}

/// The conditions under which a read of a terminal in raw mode returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTiming {
    /// The number of bytes (`VMIN`).
    pub bytes: u8,
    /// The time without a further byte (`VTIME`).
    pub pause: std::time::Duration,
}

/// Returns the conditions under which a read returns, or `None` if it returns as soon as `poll`
/// reports data. (`poll` waits for `VMIN` bytes if `VTIME` is 0, and otherwise for one byte.)
pub fn read_timing(fd: RawFd) -> Option<ReadTiming> {
    let (mut settings, mut number) = (std::mem::MaybeUninit::<libc::termios>::uninit(), 0 as c_int);
    // SAFETY: the variables are borrowed for the calls, and the settings are read only if the call
    // has filled them.
    let settings = unsafe {
        if libc::tcgetattr(fd, settings.as_mut_ptr()) != 0 {
            return None;
        }
        // The master of a pseudoterminal reports the settings of the other end, so they do not
        // apply.
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

/// The calls that a file always refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// The file has no positions (`ESPIPE`), although it may have a cursor: an event counter.
    pub positions: bool,
    /// The file cannot be read (`EINVAL`, `EBADF`): an epoll or a pidfd. A ring would poll it for
    /// ever.
    pub reads: bool,
    /// The file cannot be written: an inotify or a timer.
    pub writes: bool,
}

/// An address that is never mapped in a process. The kernel refuses a call that the file does not
/// support before it checks the address, and otherwise fails with `EFAULT` before it calls the
/// file.
const NOWHERE: *mut libc::c_void = std::ptr::without_provenance_mut(usize::MAX & !4095);

fn refuses_pread(fd: RawFd) -> bool {
    // SAFETY: the address is not mapped, so no memory is written.
    unsafe { syscall!(SYS_pread64, fd, NOWHERE, 1, 0) == -(libc::ESPIPE as isize) }
}

fn refuses_pwrite(fd: RawFd) -> bool {
    // SAFETY: the address is not mapped, so no memory is read.
    unsafe { syscall!(SYS_pwrite64, fd, NOWHERE, 1, 0) == -(libc::ESPIPE as isize) }
}

/// Finds the refused calls by transfers to and from [`NOWHERE`].
pub fn refusals(fd: RawFd) -> Refusals {
    // SAFETY: the address is not mapped, so no memory is read or written.
    unsafe {
        Refusals {
            positions: syscall!(SYS_pread64, fd, NOWHERE, 1, 0) == -(libc::ESPIPE as isize),
            reads: syscall!(SYS_read, fd, NOWHERE, 1) != -(libc::EFAULT as isize),
            writes: syscall!(SYS_write, fd, NOWHERE, 1) != -(libc::EFAULT as isize),
        }
    }
}

/// Returns the alignment `(memory, offset)` of direct I/O in bytes (`statx`); `None` if the kernel
/// (before 6.1) or the file system does not report it.
pub fn direct_alignment(fd: RawFd) -> Option<(u32, u32)> {
    let mut out = std::mem::MaybeUninit::<libc::statx>::zeroed();
    statx(fd, c"", libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut out).ok()?;
    // SAFETY: an all-zero structure is valid, and the call has filled it.
    let out = unsafe { out.assume_init() };
    let known = out.stx_mask & libc::STATX_DIOALIGN != 0 && out.stx_dio_offset_align > 0;
    known.then_some((out.stx_dio_mem_align, out.stx_dio_offset_align))
}
