//! What the process inherited and std's start-up code changes before `main`.
//!
//! Std ignores SIGPIPE in each Rust program, so that `main` cannot tell whether the caller did
//! (`trap '' PIPE`, systemd's `IgnoreSIGPIPE=`). The loader calls the functions of `.init_array` earlier.

use std::sync::atomic::{AtomicBool, Ordering};

static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);

#[used]
// SAFETY: the section is a table of such functions, with glibc and with musl; this one needs nothing of std's
// that is not there yet.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    IGNORES_SIGPIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

/// Whether a signal is ignored now. (Std changes none but SIGPIPE.)
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: a record of integers and a pointer that may be null, for which zeros are a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed; the record outlives the call.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Whether the caller ignores SIGPIPE, and wants this program to do so.
pub fn ignores_sigpipe() -> bool {
    IGNORES_SIGPIPE.load(Ordering::Relaxed)
}
