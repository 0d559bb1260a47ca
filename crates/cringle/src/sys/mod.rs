//! The system calls that neither std nor the driver makes, as safe functions.
//!
//! It is the lowest layer: it imports nothing of the library. Submodules hold the calls on
//! [sockets](socket) and [CPUs](cpus), the [classification of files](file_kind), and
//! [reports](report) on standard error.

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

/// The number of bytes that one read or write transfers at most (the kernel's `MAX_RW_COUNT`).
pub(crate) const MAX_RW_BYTES: usize = 0x7fff_f000;

/// The number of slices in one call at most (the kernel's `IOV_MAX`).
pub(crate) const MAX_SLICES: usize = 1024;

/// Converts an op's result: `-errno` to an `io::Error`, and a count to itself.
#[inline]
pub(crate) fn result_of(res: i32) -> io::Result<usize> {
    if res < 0 { Err(io::Error::from_raw_os_error(-res)) } else { Ok(res as usize) }
}

/// Returns the `errno` of the last failed call on this thread.
#[inline]
pub(crate) fn errno() -> i32 {
    // SAFETY: the contract of `__errno_location`: the address is valid while this thread runs.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`. A signal handler restores it for the code that it has interrupted.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the contract of `__errno_location`: the address is valid while this thread runs.
    unsafe { *libc::__errno_location() = errno };
}

fn check(res: c_int) -> io::Result<c_int> {
    if res < 0 { Err(io::Error::last_os_error()) } else { Ok(res) }
}

/// Calls `preadv2(RWF_NOWAIT)`, and returns a count or `-errno` (`-EAGAIN` if it would wait). An
/// `offset` of −1 reads at the cursor and moves it.
#[inline]
pub(crate) fn read_nowait(fd: RawFd, buf: &mut [u8], offset: i64) -> i32 {
    let len = buf.len().min(MAX_RW_BYTES);
    let slice = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: len };
    // SAFETY: `slice` describes `buf`, which is borrowed exclusively for the call.
    let n = unsafe { libc::preadv2(fd, &slice, 1, offset, libc::RWF_NOWAIT) };
    if n < 0 { -errno() } else { n as i32 }
}

/// Calls `pwritev2(RWF_NOWAIT)`, and returns a count or `-errno`.
#[inline]
pub(crate) fn write_nowait(fd: RawFd, buf: &[u8], offset: i64) -> i32 {
    let len = buf.len().min(MAX_RW_BYTES);
    let slice = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: len };
    // SAFETY: `slice` describes `buf`, which is borrowed for the call and only read.
    let n = unsafe { libc::pwritev2(fd, &slice, 1, offset, libc::RWF_NOWAIT) };
    if n < 0 { -errno() } else { n as i32 }
}

/// Returns the kernel's ID of the calling thread.
pub(crate) fn thread_number() -> c_int {
    // SAFETY: the call takes no pointer.
    unsafe { libc::gettid() }
}

/// Returns the time of the monotonic clock at the kernel's last tick, in nanoseconds.
pub(crate) fn coarse_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is borrowed for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns `st_mode`, or 0 for an invalid descriptor.
pub(crate) fn mode(fd: RawFd) -> u32 {
    fstat(fd).map_or(0, |stat| stat.st_mode)
}

/// Returns the inode number of a file.
#[cfg(feature = "sim")]
pub(crate) fn inode_number(fd: RawFd) -> Option<u64> {
    fstat(fd).map(|stat| stat.st_ino)
}

/// Calls `fstat`. If it fails, `errno` has the reason.
pub(crate) fn fstat(fd: RawFd) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is borrowed for the call, and is read only if the call has filled it.
    unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
}

/// Creates a file in memory (`memfd_create`).
#[cfg(feature = "sim")]
pub(crate) fn memory_file(name: &str) -> io::Result<std::fs::File> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: the C string is borrowed for the call; the descriptor is newly opened.
    unsafe {
        let fd = check(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC))?;
        Ok(std::fs::File::from_raw_fd(fd))
    }
}

/// Closes a descriptor and returns the error. The descriptor is closed in either case.
pub(crate) fn close(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers; the caller gives up the descriptor.
    check(unsafe { libc::close(fd) }).map(drop)
}

/// Calls `statx`. The caller has zeroed the structure.
pub(crate) fn statx(
    fd: RawFd,
    path: &std::ffi::CStr,
    flags: c_int,
    mask: u32,
    out: &mut std::mem::MaybeUninit<libc::statx>,
) -> io::Result<()> {
    // SAFETY: the path and the structure are borrowed for the call.
    check(unsafe { libc::statx(fd, path.as_ptr(), flags, mask, out.as_mut_ptr()) }).map(drop)
}

/// Calls `preadv`.
pub(crate) fn preadv(fd: RawFd, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    let (slices, count) = (bufs.as_mut_ptr().cast(), bufs.len().min(MAX_SLICES) as c_int);
    // SAFETY: `IoSliceMut` has the layout of `iovec`, and the buffers are borrowed exclusively.
    let n = unsafe { libc::preadv(fd, slices, count, offset as libc::off_t) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Calls `pwritev`.
pub(crate) fn pwritev(fd: RawFd, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    let (slices, count) = (bufs.as_ptr().cast(), bufs.len().min(MAX_SLICES) as c_int);
    // SAFETY: `IoSlice` has the layout of `iovec`, and the buffers are borrowed.
    let n = unsafe { libc::pwritev(fd, slices, count, offset as libc::off_t) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Whether the descriptor refers to a terminal.
pub(crate) fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::isatty(fd) == 1 }
}

/// Returns the status flags (`fcntl(F_GETFL)`), or 0 for an invalid descriptor.
pub(crate) fn status_flags(fd: RawFd) -> c_int {
    // SAFETY: `F_GETFL` takes no pointer.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }.max(0)
}

/// Whether the descriptor refers to a pipe.
pub(crate) fn is_fifo(fd: RawFd) -> bool {
    mode(fd) & libc::S_IFMT == libc::S_IFIFO
}

/// Sets the status flags (`fcntl(F_SETFL)`).
pub(crate) fn set_status_flags(fd: RawFd, flags: c_int) -> io::Result<()> {
    // SAFETY: `F_SETFL` takes no pointer.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }).map(drop)
}

/// Returns the events for which a descriptor is ready now, as `poll(2)` defines them.
pub(crate) fn poll_now(fd: BorrowedFd<'_>, events: i16) -> io::Result<i16> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one structure is passed, and is borrowed for the call.
    check(unsafe { libc::poll(&mut poll, 1, 0) }).map(|_| poll.revents)
}

/// Returns the nanoseconds since boot, including the time in suspend.
#[inline]
pub(crate) fn boot_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is borrowed for the call; every supported kernel has the clock.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the kernel's ID of the calling thread as the trace stores it.
pub(crate) fn thread_id() -> u32 {
    thread_number() as u32
}

/// Converts a duration to the kernel's type, and limits it to the largest value.
pub(crate) fn timespec(duration: std::time::Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Blocks the thread until a descriptor is ready, or the time limit is over.
pub(crate) fn wait_for(
    fd: BorrowedFd<'_>,
    events: i16,
    limit: Option<std::time::Duration>,
) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let spec = limit.map(timespec);
    let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the structures are borrowed for the call.
    match check(unsafe { libc::ppoll(&mut poll, 1, spec, std::ptr::null()) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// Copies a byte from one pipe to another without consuming it and without waiting (`tee`).
pub(crate) fn tee_byte(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<usize> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: no pointers.
    let n = unsafe { libc::tee(from, to, 1, libc::SPLICE_F_NONBLOCK) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Opens a close-on-exec descriptor of a process, which becomes readable when the process ends.
pub(crate) fn pidfd(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is newly opened.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, id as libc::pid_t, 0) as c_int)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Whether a child has ended. Its status is not consumed.
pub(crate) fn has_ended(id: u32) -> io::Result<bool> {
    let how = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
    // SAFETY: an all-zero structure is valid, and means that no child has ended; it is borrowed for
    // the call.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        check(libc::waitid(libc::P_PID, id, &mut info, how))?;
        Ok(info.si_pid() != 0)
    }
}

/// Sends a signal (`kill`).
pub(crate) fn kill(id: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::kill(id as libc::pid_t, signal) }).map(drop)
}

/// Opens a close-on-exec event counter.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is newly opened.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Opens a close-on-exec, non-blocking event counter.
pub(crate) fn eventfd_nonblocking() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is newly opened.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Resets an event counter to 0.
pub(crate) fn eventfd_clear(fd: BorrowedFd<'_>) {
    let mut count = [0u8; 8];
    // SAFETY: `count` is borrowed for the call, which writes its eight bytes. `EAGAIN` means that
    // the counter is 0 already.
    unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// Adds one to an event counter, which wakes its reader. It fails only after 2⁶⁴ − 2 unread
/// signals.
pub(crate) fn eventfd_signal(fd: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    loop {
        // SAFETY: `one` is borrowed for the call, which reads its eight bytes.
        let n = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if n >= 0 || errno() != libc::EINTR {
            return;
        }
    }
}
