//! The few system calls that neither std nor the ring makes for us, as safe functions.

use std::ffi::c_int;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The most that one read or write moves (`MAX_RW_COUNT` of the kernel, what std also asks for).
pub(crate) const MAX_RW_BYTES: usize = 0x7fff_f000;

/// Slices in one call, at most: the kernel's `IOV_MAX`, as std cuts them.
pub(crate) const MAX_SLICES: usize = 1024;

/// One line on standard error, which may be gone: a report must not panic (`eprintln!` does), least of
/// all on the way to an abort.
pub(crate) fn report(line: std::fmt::Arguments<'_>) {
    #[cfg(feature = "sim")]
    if let Some(seed) = crate::driver::sim::seed_here() {
        let text = format_args!("cringle: (simulation of seed {seed}) {line}\n");
        let _ = std::io::Write::write_fmt(&mut io::stderr(), text);
        return;
    }
    let _ = std::io::Write::write_fmt(&mut io::stderr(), format_args!("cringle: {line}\n"));
}

/// `-errno` as an `io::Error`, a count as itself.
#[inline]
pub(crate) fn result_of(res: i32) -> io::Result<usize> {
    if res < 0 { Err(io::Error::from_raw_os_error(-res)) } else { Ok(res as usize) }
}

/// The `errno` of the last failed call on this thread.
#[inline]
pub(crate) fn errno() -> i32 {
    // SAFETY: the address is this thread's own, valid while it runs.
    unsafe { *libc::__errno_location() }
}

/// Puts it back: what a signal's handler owes to the code that it interrupts.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the address is this thread's own, valid while it runs.
    unsafe { *libc::__errno_location() = errno };
}

fn check(res: c_int) -> io::Result<c_int> {
    if res < 0 { Err(io::Error::last_os_error()) } else { Ok(res) }
}

/// `preadv2(RWF_NOWAIT)`: a count, or `-errno` (`-EAGAIN` where it would have to wait).
/// `offset` −1 reads at the file's cursor and moves it.
#[inline]
pub(crate) fn read_nowait(fd: RawFd, buf: &mut [u8], offset: i64) -> i32 {
    let len = buf.len().min(MAX_RW_BYTES);
    let slice = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: len };
    // SAFETY: `slice` describes `buf`, which is ours to write for the length of the call.
    let n = unsafe { libc::preadv2(fd, &slice, 1, offset, libc::RWF_NOWAIT) };
    if n < 0 { -errno() } else { n as i32 }
}

/// `pwritev2(RWF_NOWAIT)`: a count, or `-errno`.
#[inline]
pub(crate) fn write_nowait(fd: RawFd, buf: &[u8], offset: i64) -> i32 {
    let len = buf.len().min(MAX_RW_BYTES);
    let slice = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: len };
    // SAFETY: `slice` describes `buf`, which the call only reads.
    let n = unsafe { libc::pwritev2(fd, &slice, 1, offset, libc::RWF_NOWAIT) };
    if n < 0 { -errno() } else { n as i32 }
}

/// `recv` of what is there; `-EAGAIN` where nothing is.
pub(crate) fn recv_nowait(fd: RawFd, buf: &mut [u8]) -> i32 {
    let len = buf.len().min(MAX_RW_BYTES);
    // SAFETY: the call writes into `buf`.
    let n = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), len, libc::MSG_DONTWAIT) };
    if n < 0 { -errno() } else { n as i32 }
}

/// `send(MSG_DONTWAIT)`: a count, or `-errno` (`-EAGAIN` where it would have to wait).
#[inline]
pub(crate) fn send_nowait(fd: RawFd, buf: &[u8]) -> i32 {
    let (len, flags) = (buf.len().min(MAX_RW_BYTES), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: the call reads `buf`.
    let n = unsafe { libc::send(fd, buf.as_ptr().cast(), len, flags) };
    if n < 0 { -errno() } else { n as i32 }
}

/// The kernel's number of the calling thread.
pub(crate) fn thread_number() -> c_int {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// The time since the machine was started, to the kernel's last tick.
pub(crate) fn coarse_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

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

/// `st_mode`; 0 where the descriptor is none.
pub(crate) fn mode(fd: RawFd) -> u32 {
    fstat(fd).map_or(0, |stat| stat.st_mode)
}

/// The number of the socket behind a descriptor, by which all its clones are known; `None` where it is no
/// socket.
pub(crate) fn socket_number(fd: RawFd) -> Option<u64> {
    fstat(fd).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).map(|stat| stat.st_ino)
}

/// The number of the file behind a descriptor.
#[cfg(feature = "sim")]
pub(crate) fn inode_number(fd: RawFd) -> Option<u64> {
    fstat(fd).map(|stat| stat.st_ino)
}

/// `fstat`; where it fails, `errno` says why.
pub(crate) fn fstat(fd: RawFd) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `fstat` fills the structure it is given, and it is read only when the call succeeded.
    unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
}

/// A new file that is only memory.
#[cfg(feature = "sim")]
pub(crate) fn memory_file(name: &str) -> io::Result<std::fs::File> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: the name is a C string; the descriptor it returns is new and ours.
    unsafe {
        let fd = check(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC))?;
        Ok(std::fs::File::from_raw_fd(fd))
    }
}

/// `close`, with its error. The descriptor is gone in either case.
pub(crate) fn close(fd: RawFd) -> io::Result<()> {
    // SAFETY: the caller gives the descriptor away.
    check(unsafe { libc::close(fd) }).map(drop)
}

/// `statx`, into a structure that is all-zero before.
pub(crate) fn statx(
    fd: RawFd,
    path: &std::ffi::CStr,
    flags: c_int,
    mask: u32,
    out: &mut std::mem::MaybeUninit<libc::statx>,
) -> io::Result<()> {
    // SAFETY: the path is a C string, and the kernel writes one structure.
    check(unsafe { libc::statx(fd, path.as_ptr(), flags, mask, out.as_mut_ptr()) }).map(drop)
}

/// `preadv`.
pub(crate) fn preadv(fd: RawFd, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    let (slices, count) = (bufs.as_mut_ptr().cast(), bufs.len().min(MAX_SLICES) as c_int);
    // SAFETY: `IoSliceMut` has the layout of `iovec`, and the buffers are borrowed to be written.
    let n = unsafe { libc::preadv(fd, slices, count, offset as libc::off_t) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// `pwritev`.
pub(crate) fn pwritev(fd: RawFd, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    let (slices, count) = (bufs.as_ptr().cast(), bufs.len().min(MAX_SLICES) as c_int);
    // SAFETY: `IoSlice` has the layout of `iovec`, and the buffers are borrowed.
    let n = unsafe { libc::pwritev(fd, slices, count, offset as libc::off_t) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Whether it is a terminal.
pub(crate) fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::isatty(fd) == 1 }
}

/// `fcntl(F_GETFL)`; 0 where it fails.
pub(crate) fn status_flags(fd: RawFd) -> c_int {
    // SAFETY: F_GETFL takes no pointer.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }.max(0)
}

/// Whether it is a pipe.
pub(crate) fn is_fifo(fd: RawFd) -> bool {
    mode(fd) & libc::S_IFMT == libc::S_IFIFO
}

/// `ioctl(FIONBIO)`, which leaves the other flags alone. It fails for no socket.
pub(crate) fn make_nonblocking(fd: RawFd, nonblocking: bool) {
    let mut on = i32::from(nonblocking);
    // SAFETY: the kernel reads the number.
    unsafe { libc::ioctl(fd, libc::FIONBIO, &raw mut on) };
}

/// `fcntl(F_SETFL)`.
pub(crate) fn set_status_flags(fd: RawFd, flags: c_int) -> io::Result<()> {
    // SAFETY: F_SETFL takes no pointer.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }).map(drop)
}

/// What a descriptor is ready for now, as `poll(2)`'s events.
pub(crate) fn poll_now(fd: BorrowedFd<'_>, events: i16) -> io::Result<i16> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one structure is given, and it lives through the call.
    check(unsafe { libc::poll(&mut poll, 1, 0) }).map(|_| poll.revents)
}

/// Whether a socket was shut for reading. A datagram socket then answers `EAGAIN` to a call that may not wait,
/// and 0 to one that may.
pub(crate) fn is_shut_for_reading(fd: RawFd) -> bool {
    // SAFETY: the caller's op borrows the descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    poll_now(fd, libc::POLLRDHUP).is_ok_and(|events| events & libc::POLLRDHUP != 0)
}

/// Nanoseconds since the machine was started, those asleep included.
#[inline]
pub(crate) fn boot_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live structure; every kernel since 2.6.39 has the clock.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The number of the calling thread.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no argument, and it cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// A length of time as the kernel takes it; the longest there is for one that is longer.
pub(crate) fn timespec(duration: std::time::Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Blocks the thread until a descriptor is ready, for so long at most (`None`: for as long as it takes).
pub(crate) fn wait_for(
    fd: BorrowedFd<'_>,
    events: i16,
    limit: Option<std::time::Duration>,
) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let spec = limit.map(timespec);
    let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the structures live through the call.
    match check(unsafe { libc::ppoll(&mut poll, 1, spec, std::ptr::null()) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// `tee`: copies a byte from one pipe to another without taking it, or waiting for it.
pub(crate) fn tee_byte(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<usize> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: no pointers.
    let n = unsafe { libc::tee(from, to, 1, libc::SPLICE_F_NONBLOCK) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// A descriptor of a process; close-on-exec. It is readable when the process has ended.
pub(crate) fn pidfd(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor it returns is new and ours.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, id as libc::pid_t, 0) as c_int)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Whether a child has ended; its status stays to be taken.
pub(crate) fn has_ended(id: u32) -> io::Result<bool> {
    let how = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
    // SAFETY: the call fills the structure it is given; an all-zero one is valid, and says that nothing
    // has ended.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        check(libc::waitid(libc::P_PID, id, &mut info, how))?;
        Ok(info.si_pid() != 0)
    }
}

/// `kill`.
pub(crate) fn kill(id: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::kill(id as libc::pid_t, signal) }).map(drop)
}

/// A new close-on-exec event counter.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor it returns is new and ours.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The same, for who reads it only after it was found readable.
pub(crate) fn eventfd_nonblocking() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor it returns is new and ours.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Sets such a counter back to 0.
pub(crate) fn eventfd_clear(fd: BorrowedFd<'_>) {
    let mut count = [0u8; 8];
    // SAFETY: eight bytes are written to `count`. That it was 0 already is no error here.
    unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// Adds one to the counter, and so wakes who reads it. Cannot fail for an open eventfd short of
/// 2⁶⁴ − 2 unread signals.
pub(crate) fn eventfd_signal(fd: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    loop {
        // SAFETY: eight bytes are read from `one`.
        let n = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if n >= 0 || errno() != libc::EINTR {
            return;
        }
    }
}

/// The cores this thread may run on, in order.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the call writes at most the size given; an all-zero set is a valid one.
    let set = unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
        set.assume_init()
    };
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// A thread's cores, to be put back by [`set_affinity`].
pub(crate) fn affinity_of(cpus: &[usize]) -> libc::cpu_set_t {
    // SAFETY: an all-zero cpu_set_t is the empty set; each index is below CPU_SETSIZE.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(cpu, &mut set);
        }
        set
    }
}

/// Confines the calling thread to these cores.
pub(crate) fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let set = affinity_of(cpus);
    // SAFETY: the call reads the set it is given.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) }).map(drop)
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

/// Whether it is a socket that has a stream of bytes.
pub(crate) fn is_stream_socket(fd: RawFd) -> bool {
    // SAFETY: the caller's op borrows the descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    matches!(socket2::SockRef::from(&fd).r#type(), Ok(socket2::Type::STREAM))
}

/// Whether it is a socket of this machine alone.
#[cfg(feature = "sim")]
pub(crate) fn is_unix_socket(fd: RawFd) -> bool {
    // SAFETY: the caller's op borrows the descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    matches!(socket2::SockRef::from(&fd).domain(), Ok(socket2::Domain::UNIX))
}

/// Who is at the other side of a Unix socket.
pub(crate) fn peer_credentials(fd: RawFd) -> io::Result<libc::ucred> {
    let mut out = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the kernel writes at most `len` bytes of the structure it is given.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut out).cast(), &raw mut len) })?;
    Ok(out)
}

/// The addresses of a socket, as a person writes them; `None` where it is none.
pub(crate) fn describe_socket(fd: RawFd) -> Option<String> {
    let address =
        |call: unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int| {
            // SAFETY: the call fills the storage, and says how much of it. A descriptor that is none is told.
            let result = unsafe {
                socket2::SockAddr::try_init(|storage, len| match call(fd, storage.cast(), len) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                })
            };
            result.ok().map(|((), address)| describe_address(&address))
        };
    let local = address(libc::getsockname)?;
    match address(libc::getpeername) {
        Some(peer) => Some(format!("socket {local}, peer {peer}")),
        None => Some(format!("socket {local}")),
    }
}

fn describe_address(address: &socket2::SockAddr) -> String {
    if let Some(address) = address.as_socket() {
        return address.to_string();
    }
    match address.as_pathname() {
        Some(path) => path.display().to_string(),
        None if address.is_unix() => "unnamed".to_owned(),
        None => "of another family".to_owned(),
    }
}
