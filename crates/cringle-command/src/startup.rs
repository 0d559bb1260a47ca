//! Reads the inherited state that std's start-up code changes before `main`.
//!
//! Std ignores SIGPIPE in every Rust program, so that `main` cannot see whether the caller ignored
//! it (`trap '' PIPE`, systemd's `IgnoreSIGPIPE=`). The loader calls the functions of `.init_array`
//! earlier.

use std::sync::atomic::{AtomicBool, Ordering};

static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);

// SAFETY: glibc and musl call every function in this section once before `main`. This one makes one
// system call and stores to an atomic, which needs none of std's set-up.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = record;

extern "C" fn record() {
    IGNORES_SIGPIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
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
    IGNORES_SIGPIPE.load(Ordering::Relaxed)
}
