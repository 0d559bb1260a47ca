//! Whether a seccomp filter kills a process that makes a ring.
//!
//! Most filters return an error, which setting up a ring reports by itself. Some kill the process,
//! and some allow a ring to be created but not entered. So if this thread has a filter, and only
//! then, a child process makes the three system calls first. Threads inherit filters, so one child
//! is enough for a run. The child makes only those calls and shares no memory with this process. It
//! sends no `SIGCHLD` when it ends, so that a program that waits for its own children does not
//! notice it.

use cringle_sys::{raw, syscall};
use std::io;

/// The result of `prctl(PR_GET_SECCOMP)` for a thread with filters.
const FILTERED: i32 = 2;
/// `IORING_REGISTER_PROBE`.
const REGISTER_PROBE: i32 = 8;

pub(super) fn is_filtered() -> bool {
    // SAFETY: no pointers are passed.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) == FILTERED }
}

/// Fails if this thread's filter would kill the process for making a ring. The error says so.
pub fn check_seccomp() -> io::Result<()> {
    if !is_filtered() {
        return Ok(());
    }
    let status = run_child()?;
    if libc::WIFEXITED(status) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "cannot make an io_uring: a seccomp filter kills the process that tries (a child process \
             got signal {}); use a filter that allows io_uring_setup, io_uring_enter and \
             io_uring_register",
            libc::WTERMSIG(status),
        ),
    ))
}

/// Makes the calls in a child process and returns its exit status.
fn run_child() -> io::Result<i32> {
    // SAFETY: the contract of `fork` in a process with threads is that the child makes only
    // async-signal-safe calls. It runs on a copy of this stack and makes system calls alone.
    let child = unsafe { syscall!(SYS_clone, 0, 0, 0, 0, 0) };
    match child {
        ..0 => Err(io::Error::from_raw_os_error(-child as i32)),
        0 => make_calls(),
        child => {
            let mut status = 0;
            // SAFETY: the kernel writes one integer, which is borrowed for the call. (`__WALL`
            // waits for a child that sends no signal.)
            let mut wait =
                || unsafe { syscall!(SYS_wait4, child, &raw mut status, libc::__WALL, 0) };
            loop {
                match raw::result_of(wait()) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    result => return result.map(|_| status),
                }
            }
        }
    }
}

/// The child: makes the calls, and ends. Their results are ignored: an error recurs when the parent
/// makes its ring.
fn make_calls() -> ! {
    let mut params = [0u64; 15];
    // SAFETY: `io_uring_params` has 120 bytes and may be all-zero; the other calls get no pointer.
    // The child ends by `_exit`, which runs no handler of this process.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        let ring = syscall!(SYS_io_uring_setup, 1, params.as_mut_ptr());
        syscall!(SYS_io_uring_enter, ring, 0, 0, 0, 0, 0);
        syscall!(SYS_io_uring_register, ring, REGISTER_PROBE, 0, 0);
        libc::_exit(0)
    }
}
