//! Reads the inherited state that std's start-up code changes before `main`.
//!
//! Std ignores SIGPIPE in every Rust program, so that `main` cannot see whether the caller ignored
//! it (`trap '' PIPE`, systemd's `IgnoreSIGPIPE=`). It also opens `/dev/null` as each of the
//! descriptors 0 to 2 that is closed (`<&-`, `>&-`): input would be empty, and output lost, without
//! an error, as by `cringle cp FILE /dev/stdout >&-`. So a function of `.init_array`, which
//! the loader calls earlier, records which descriptors are closed, and the command [puts a
//! socket](replace_closed) in their place. (Refused: to leave them closed. The next open would get
//! number 2, and messages would be written into a user's file.)

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);
/// A bit for each closed descriptor.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: glibc and musl call every function in this section once before `main`. This one makes
// system calls and stores to atomics, which need none of std's set-up.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = record;

extern "C" fn record() {
    IGNORES_SIGPIPE.store(is_ignored(libc::SIGPIPE), Relaxed);
    // SAFETY: a system call with no pointers.
    let is_closed = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } < 0;
    // A socket may already be in the place of a descriptor.
    CLOSED.fetch_or((0..=2).filter(is_closed).fold(0, |bits, fd| bits | 1 << fd), Relaxed);
}

/// Returns whether a signal is ignored now. Std changes only SIGPIPE.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid `sigaction`: integers and an optional function pointer.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with a null new action the call only writes `action`, which outlives it.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Returns whether the process was started with SIGPIPE ignored.
pub fn ignores_sigpipe() -> bool {
    IGNORES_SIGPIPE.load(Relaxed)
}

/// Returns the descriptors of 0 to 2 that were closed when the process started.
pub fn closed() -> impl Iterator<Item = RawFd> {
    let bits = CLOSED.load(Relaxed);
    (0..=2).filter(move |fd| bits & 1 << fd != 0)
}

/// Returns whether descriptor 0, 1 or 2 was closed when the process started.
pub fn is_closed(fd: RawFd) -> bool {
    closed().any(|closed| closed == fd)
}

/// Puts a socket without a peer in the place of each closed descriptor of 0 to 2: reads, writes and
/// opens of `/dev/stdin` and the like fail. Call it first in `main`, while no other thread uses
/// these descriptors.
///
/// A program that merely links this crate keeps std's `/dev/null`: its `println!` would panic.
/// Where std cannot open that, it aborts before `main`: see [`replace_closed_before_main`].
pub fn replace_closed() {
    for fd in closed() {
        // SAFETY: system calls with no pointers. No object owns what they close: what std or this
        // function has opened for the closed descriptor, and the socket's first number.
        unsafe {
            let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            // Where sockets are denied, `/dev/null` stays.
            if socket >= 0 && socket != fd {
                libc::dup2(socket, fd);
                libc::close(socket);
            }
        }
    }
}

/// As [`replace_closed`], for the `.init_array` of a command's own program: std then opens no
/// `/dev/null`, which a `chroot` may lack.
pub extern "C" fn replace_closed_before_main() {
    // The loader may call this function before that of this module.
    record();
    replace_closed();
}
