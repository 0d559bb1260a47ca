//! System calls, locks and `fork`: what neither std nor a driver has, as safe functions.
//!
//! It is a part of the crate `cringle`, is published for it alone, and has no stable API.
//!
//! It is the lowest layer: it imports nothing of the library.
//!
//! | module | content |
//! |---|---|
//! | [`raw`] | system calls by the processor's instruction |
//! | [`lock`] | locks that wait by raw calls |
//! | [`owned`], [`plain`] | descriptors that are closed raw; std's rare calls |
//! | [`mod@file_kind`], [`socket`], [`transfer`], [`slow_close`] | what a file is, and calls on files and sockets |
//! | [`mapping`], [`mapped_copy`] | a mapped file, and the only reads of its memory |
//! | [`mod@fork`], [`signal_chain`] | a child's first moments; the handlers of the program |
//! | [`cpus`], [`clock`] | affinity, time |
//! | [`mod@report`], [`mod@explained`], [`misaligned`] | standard error; errors with words of the library's own |
//! | [`debug_info`], [`library_places`], [`library_threads`] | for debuggers and reports |
//! | [`word_choice`], [`simulated`] | choices of the environment; the calls that only a simulation makes |
//! | [`interposed`] | the list of the calls that `cringle-interpose` defines |
//!
//! # No interposed calls (I14)
//!
//! A program may define libc's blocking functions itself, so that a call of them suspends the
//! calling fiber. The library runs on fibers, too, and holds locks, borrows of its worker and lent
//! frames there: a suspension in the middle of it would let other fibers find them held. So nothing
//! that a fiber calls in the library reaches such a definition: these calls are made by [raw]
//! system calls, [owned] descriptors are closed so, and [locks](lock) wait so. Rare calls that std
//! or socket2 make in several steps (starting a process or a thread, binding a socket, reading
//! `/proc`) are made [plainly], without a current fiber: they may block the worker.
//!
//! A thread without a fiber (of the pool, of the trace, of the watchdog) and the scheduler may call
//! libc, because an interposed function passes on a call that no fiber makes. `cargo xtask tidy`
//! refuses the functions and std's locks by name. `crates/cringle-interpose/tests/interposed`
//! defines the functions, uses most of the library on fibers, and fails if one of them is called
//! there.

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]
#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("cringle runs on Linux only: it uses io_uring and epoll");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("cringle needs a 64-bit address space: each fiber maps a stack of 1 MiB");

#[macro_use]
mod macros;

mod clock;
mod cpus;
pub mod debug_info;
mod explained;
mod file_kind;
pub mod fork;
mod interposed;
mod library_places;
mod library_threads;
pub mod lock;
pub mod mapped_copy;
pub mod mapping;
mod misaligned;
mod owned;
mod plain;
pub mod raw;
mod report;
pub mod signal_chain;
pub mod simulated;
mod slow_close;
mod socket;
mod transfer;
pub mod word_choice;

pub use clock::is_own_look;
pub use clock::now;
pub use cpus::{allowed_cpus, set_affinity};
pub use explained::explained;
pub use file_kind::{
    Description, FileKind, ReadTiming, Refusals, WaitsFor, description, direct_alignment,
    file_kind, file_kind_of_described, file_kind_with, read_timing, refusals,
};
pub use library_places::module_of_library;
pub use library_threads::{LibraryThread, is_library_thread, library_thread};
pub use misaligned::{Misaligned, explain as explain_misaligned};
pub use owned::Owned;
pub use plain::set_interposed;
pub use plain::{debug_plainly, is_interposed, plainly, set_beside};
pub use report::{report, with_process_number, write_to_stderr};
pub use slow_close::file_system;
pub use slow_close::{close_slowly, close_waits};
pub use socket::{
    describe_socket, is_shut_for_reading, is_stream_socket, make_nonblocking, peer_credentials,
    recv_nowait, send_nowait, socket_number,
};

pub use transfer::{pread, pwrite, read_nowait, write_nowait};

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The number of bytes that one read or write transfers at most (the kernel's `MAX_RW_COUNT`).
pub const MAX_RW_BYTES: usize = 0x7fff_f000;

/// The number of slices in one call at most (the kernel's `IOV_MAX`).
pub const MAX_SLICES: usize = 1024;

/// The number of slices of a call that has `len`.
pub fn slice_count(len: usize) -> u32 {
    len.min(MAX_SLICES) as u32
}

/// Converts an op's result: `-errno` to an `io::Error`, and a count to itself.
#[inline]
pub fn result_of(res: i32) -> io::Result<usize> {
    if res < 0 { Err(io::Error::from_raw_os_error(-res)) } else { Ok(res as usize) }
}

/// Explains that the system refused a thread, and what to do. `what` is the thread's work.
pub fn cannot_start(what: &str, error: &io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EAGAIN) => "; raise `ulimit -u`, or pids.max of the control group",
        Some(libc::EPERM) => {
            "; a seccomp filter denies clone or clone3: run with one that allows them"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot start {what}: {error}{remedy}"))
}

/// Returns the `errno` of the last failed call on this thread.
#[inline]
pub fn errno() -> i32 {
    // SAFETY: the contract of `__errno_location`: the address is valid while this thread runs.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`. A signal handler restores it for the code that it has interrupted.
pub fn set_errno(errno: i32) {
    // SAFETY: the contract of `__errno_location`: the address is valid while this thread runs.
    unsafe { *libc::__errno_location() = errno };
}

fn check(res: c_int) -> io::Result<c_int> {
    if res < 0 { Err(io::Error::last_os_error()) } else { Ok(res) }
}

/// Returns the kernel's ID of the calling thread.
pub fn thread_number() -> c_int {
    // SAFETY: the call takes no pointer.
    unsafe { libc::gettid() }
}

/// Returns the time for which the calling thread has had a processor.
pub fn thread_ran() -> std::time::Duration {
    std::time::Duration::from_nanos(clock_ns(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Returns the time of the monotonic clock at the kernel's last tick, in nanoseconds.
#[inline]
pub fn coarse_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC_COARSE)
}

/// Returns the time of a clock that every supported kernel has, in nanoseconds.
#[inline(always)]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is borrowed for the call.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns `st_mode`, or 0 for an invalid descriptor.
pub fn mode(fd: RawFd) -> u32 {
    fstat(fd).map_or(0, |stat| stat.st_mode)
}

/// Calls `fstat`. If it fails, `errno` has the reason.
pub fn fstat(fd: RawFd) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is borrowed for the call, and is read only if the call has filled it.
    unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
}

/// Closes a descriptor and returns the error. The descriptor is closed in either case.
pub fn close(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers; the caller gives up the descriptor.
    raw::result_of(unsafe { syscall!(SYS_close, fd) }).map(drop)
}

/// Duplicates a descriptor, as `try_clone` of std's types does.
pub fn duplicate(fd: RawFd) -> io::Result<Owned> {
    // The number of the copy is not one of standard input, output and error.
    let lowest = 3;
    // SAFETY: no pointers; the descriptor is newly opened.
    unsafe {
        let fd = raw::result_of(syscall!(SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, lowest))?;
        Ok(Owned::of_new(fd as RawFd))
    }
}

/// Calls `statx`. The caller has zeroed the structure.
pub fn statx(
    fd: RawFd,
    path: &std::ffi::CStr,
    flags: c_int,
    mask: u32,
    out: &mut std::mem::MaybeUninit<libc::statx>,
) -> io::Result<()> {
    // SAFETY: the path and the structure are borrowed for the call.
    check(unsafe { libc::statx(fd, path.as_ptr(), flags, mask, out.as_mut_ptr()) }).map(drop)
}

/// Whether the descriptor refers to a terminal.
pub fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::isatty(fd) == 1 }
}

/// Whether the user of the process may have no threads at all (`RLIMIT_NPROC`).
pub fn may_have_no_threads() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: the structure is borrowed for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &mut limit) == 0 && limit.rlim_cur == 0 }
}

/// Returns the status flags (`fcntl(F_GETFL)`), or 0 for an invalid descriptor.
pub fn status_flags(fd: RawFd) -> c_int {
    // SAFETY: `F_GETFL` takes no pointer.
    unsafe { syscall!(SYS_fcntl, fd, libc::F_GETFL) }.max(0) as c_int
}

/// Whether the descriptor refers to a pipe.
pub fn is_fifo(fd: RawFd) -> bool {
    mode(fd) & libc::S_IFMT == libc::S_IFIFO
}

/// Whether the descriptor refers to a block device.
pub fn is_block_device(fd: RawFd) -> bool {
    mode(fd) & libc::S_IFMT == libc::S_IFBLK
}

/// Whether the descriptor refers to a FIFO that has a name, and not to an anonymous pipe.
pub fn is_named_fifo(fd: RawFd) -> bool {
    const PIPEFS_MAGIC: u64 = 0x5049_5045;
    let mut out = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the structure is borrowed for the call, and is read only if the call has filled it.
    is_fifo(fd)
        && unsafe {
            libc::fstatfs(fd, out.as_mut_ptr()) == 0
                && out.assume_init().f_type as u64 != PIPEFS_MAGIC
        }
}

/// Returns the inode's write-life hint (`fcntl(F_GET_RW_HINT)`).
pub fn write_life(fd: RawFd) -> io::Result<u64> {
    const F_GET_RW_HINT: c_int = 1035;
    let mut life = 0_u64;
    // SAFETY: the call writes a `u64`, which is borrowed for it.
    raw::result_of(unsafe { syscall!(SYS_fcntl, fd, F_GET_RW_HINT, &raw mut life) })?;
    Ok(life)
}

/// Sets the status flags (`fcntl(F_SETFL)`).
pub fn set_status_flags(fd: RawFd, flags: c_int) -> io::Result<()> {
    // SAFETY: `F_SETFL` takes no pointer.
    raw::result_of(unsafe { syscall!(SYS_fcntl, fd, libc::F_SETFL, flags) }).map(drop)
}

/// Where the cursor is. `None` if the file has none, as pipes, sockets, terminals and some files of
/// the kernel.
pub fn cursor(fd: RawFd) -> Option<u64> {
    // SAFETY: no pointers. The call does not move the cursor.
    u64::try_from(unsafe { syscall!(SYS_lseek, fd, 0, libc::SEEK_CUR) }).ok()
}

/// Returns the events for which a descriptor is ready now, as `poll(2)` defines them.
pub fn poll_now(fd: BorrowedFd<'_>, events: i16) -> io::Result<i16> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    raw::result_of(poll_once(&mut poll, Some(&NOW))).map(|_| poll.revents)
}

/// Calls `ppoll` for one descriptor, up to the limit; `None` means without one. Returns the number
/// of ready descriptors, or `-errno`.
pub fn poll_once(poll: &mut libc::pollfd, limit: Option<&libc::timespec>) -> isize {
    // The kernel writes the remaining time back.
    let mut limit = limit.copied();
    let limit = limit.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let no_mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the structures are borrowed for the call.
    unsafe { syscall!(SYS_ppoll, std::ptr::from_mut(poll), 1, limit, no_mask, KERNEL_SIGSET_BYTES) }
}

/// The size of the kernel's signal set.
const KERNEL_SIGSET_BYTES: usize = 8;

/// No time: the limit of a call that does not wait.
pub const NOW: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// Returns the nanoseconds since boot, including the time in suspend.
#[inline]
pub fn boot_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// Returns the kernel's ID of the calling thread as the trace stores it.
pub fn thread_id() -> u32 {
    thread_number() as u32
}

/// Converts a duration to the kernel's type, and limits it to the largest value.
pub fn timespec(duration: std::time::Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Blocks the thread until a descriptor is ready, or the time limit is over.
pub fn wait_for(
    fd: BorrowedFd<'_>,
    events: i16,
    limit: Option<std::time::Duration>,
) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let spec = limit.map(timespec);
    match raw::result_of(poll_once(&mut poll, spec.as_ref())) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// Copies a byte from one pipe to another without consuming it and without waiting (`tee`).
pub fn tee_byte(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<usize> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: no pointers.
    let n = unsafe { libc::tee(from, to, 1, libc::SPLICE_F_NONBLOCK) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Opens a close-on-exec descriptor of a process, which becomes readable when the process ends.
pub fn pidfd(id: u32) -> io::Result<Owned> {
    // SAFETY: no pointers; the descriptor is newly opened.
    unsafe {
        let fd = raw::result_of(syscall!(SYS_pidfd_open, id, 0))?;
        Ok(Owned::of_new(fd as RawFd))
    }
}

/// Whether a child has ended. Its status is not consumed.
pub fn has_ended(id: u32) -> io::Result<bool> {
    let how = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
    // SAFETY: an all-zero structure is valid, and means that no child has ended; it is borrowed for
    // the call.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let no_usage = std::ptr::null::<libc::rusage>();
        let result = syscall!(SYS_waitid, libc::P_PID, id, &raw mut info, how, no_usage);
        raw::result_of(result)?;
        Ok(info.si_pid() != 0)
    }
}

/// Sends a signal (`kill`).
pub fn kill(id: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::kill(id as libc::pid_t, signal) }).map(drop)
}

/// Opens a close-on-exec event counter.
pub fn eventfd() -> io::Result<Owned> {
    // SAFETY: no pointers; the descriptor is newly opened.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC))?;
        Ok(Owned::of_new(fd))
    }
}

/// Opens a close-on-exec, non-blocking event counter.
pub fn eventfd_nonblocking() -> io::Result<Owned> {
    // SAFETY: no pointers; the descriptor is newly opened.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
        Ok(Owned::of_new(fd))
    }
}

/// Creates a close-on-exec pipe: its reading and its writing end.
pub fn pipe() -> io::Result<(Owned, Owned)> {
    let mut ends = [0; 2];
    // SAFETY: the array is borrowed for the call; the descriptors are newly opened.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((Owned::of_new(ends[0]), Owned::of_new(ends[1])))
    }
}

/// Lets other threads of the processor run (`sched_yield`).
pub fn yield_thread() {
    // SAFETY: no pointers.
    unsafe { syscall!(SYS_sched_yield) };
}

/// Resets an event counter to 0.
pub fn eventfd_clear(fd: BorrowedFd<'_>) {
    let mut count = [0u8; 8];
    // SAFETY: `count` is borrowed for the call, which writes its eight bytes. `EAGAIN` means that
    // the counter is 0 already.
    unsafe { syscall!(SYS_read, fd.as_raw_fd(), count.as_mut_ptr(), count.len()) };
}

/// Adds one to an event counter, which wakes its reader. It fails only after 2⁶⁴ − 2 unread
/// signals.
pub fn eventfd_signal(fd: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    loop {
        // SAFETY: `one` is borrowed for the call, which reads its eight bytes.
        let n = unsafe { syscall!(SYS_write, fd.as_raw_fd(), one.as_ptr(), one.len()) };
        if n != -(libc::EINTR as isize) {
            return;
        }
    }
}
