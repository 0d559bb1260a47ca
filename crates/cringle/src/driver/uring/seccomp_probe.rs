//! Whether a seccomp filter ends who asks for a ring.
//!
//! Most filters answer with an error, which making a ring meets by itself. Some end the process instead, and
//! some let a ring be made and not be entered. So where this thread has a filter, and only there, a child
//! process tries all three calls first, once for a run: threads inherit their filters. It shares nothing with this one, makes only those calls, and no
//! `SIGCHLD` tells of its end, so that the program, which may wait for children of its own, does not notice.

use crate::sys;
use std::io;

/// What `prctl(PR_GET_SECCOMP)` says of a thread that has filters.
const FILTERED: i32 = 2;
/// `IORING_REGISTER_PROBE`.
const REGISTER_PROBE: i32 = 8;

pub(super) fn is_filtered() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) == FILTERED }
}

/// Fails where a ring is denied by this thread's filter: says how.
pub(crate) fn check_seccomp() -> io::Result<()> {
    if !is_filtered() {
        return Ok(());
    }
    let status = try_in_child()?;
    if libc::WIFEXITED(status) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "cannot make an io_uring: a seccomp filter ends whoever asks for one (a child process that \
             tried got signal {}); use a filter that allows io_uring_setup, io_uring_enter and \
             io_uring_register",
            libc::WTERMSIG(status),
        ),
    ))
}

/// How the child ended.
fn try_in_child() -> io::Result<i32> {
    // SAFETY: as `fork`, but without a signal when the child ends. It runs on a copy of this stack, and makes
    // only system calls: no lock of another thread matters to it.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => ask(),
        child => {
            let mut status = 0;
            // SAFETY: the kernel writes the number it is given. A child without a signal is waited for by
            // `__WALL`.
            while unsafe { libc::waitpid(child as i32, &mut status, libc::__WALL) } < 0 {
                if sys::errno() != libc::EINTR {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(status)
        }
    }
}

/// The child: makes the calls, and ends. What they answer is seen again when the ring is made.
fn ask() -> ! {
    let mut params = [0u64; 15];
    // SAFETY: the structure of 120 bytes is all zero, as it may be; the kernel refuses the other calls' empty
    // arguments or does nothing. It ends without running anything of this process's.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        let ring = libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr());
        libc::syscall(libc::SYS_io_uring_enter, ring, 0, 0, 0, 0, 0);
        libc::syscall(libc::SYS_io_uring_register, ring, REGISTER_PROBE, 0, 0);
        libc::_exit(0)
    }
}
