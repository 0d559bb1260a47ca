//! The few system calls that neither std nor the ring makes for us, as safe functions.

mod cpus;
mod file_kind;
mod report;
mod socket;

pub(crate) use cpus::{allowed_cpus, set_affinity};
pub(crate) use file_kind::{
    FileKind, ReadTiming, Refusals, WaitsFor, direct_alignment, file_kind, file_kind_with,
    read_timing, refusals,
};
pub(crate) use report::report;
#[cfg(feature = "sim")]
pub(crate) use report::set_simulation_seed;
#[cfg(feature = "sim")]
pub(crate) use socket::is_unix_socket;
pub(crate) use socket::{
    describe_socket, is_shut_for_reading, is_stream_socket, make_nonblocking, peer_credentials,
    recv_nowait, send_nowait, socket_number,
};

use std::ffi::c_int;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The most that one read or write moves (`MAX_RW_COUNT` of the kernel, what std also asks for).
pub(crate) const MAX_RW_BYTES: usize = 0x7fff_f000;

/// Slices in one call, at most: the kernel's `IOV_MAX`, as std cuts them.
pub(crate) const MAX_SLICES: usize = 1024;

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

/// `st_mode`; 0 where the descriptor is none.
pub(crate) fn mode(fd: RawFd) -> u32 {
    fstat(fd).map_or(0, |stat| stat.st_mode)
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
