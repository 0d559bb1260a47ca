//! Whether a descriptor was opened with `O_DIRECT`, whose reads wait for the disk in spite of
//! `RWF_NOWAIT`.
//!
//! The answer is kept for the next calls on the same number, because it would cost a system call
//! for each. It may be out of date: the number may name another file by then. That harms no result;
//! a direct read would wait for the disk on the worker's thread, a few times at most.

use crate::sys;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

const NUMBERS: usize = 4096;
/// The calls for which an answer is kept.
const KEPT: u8 = 64;

/// For each number, the calls for which the descriptor counts as not direct.
static NOT_DIRECT: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];

#[inline]
pub(super) fn is_direct(fd: RawFd) -> bool {
    let kept = usize::try_from(fd).ok().and_then(|fd| NOT_DIRECT.get(fd));
    let calls = kept.map_or(0, |kept| kept.load(Ordering::Relaxed));
    if calls > 0 {
        // Racing callers may lose a step.
        kept.inspect(|kept| kept.store(calls - 1, Ordering::Relaxed));
        return false;
    }
    ask(fd, kept)
}

#[cold]
fn ask(fd: RawFd, kept: Option<&AtomicU8>) -> bool {
    let is_direct = sys::status_flags(fd) & libc::O_DIRECT != 0;
    if !is_direct && let Some(kept) = kept {
        kept.store(KEPT, Ordering::Relaxed);
    }
    is_direct
}

/// Forgets the answer for a number that is closed or changes its flags.
pub(super) fn forget(fd: RawFd) {
    if let Some(kept) = usize::try_from(fd).ok().and_then(|fd| NOT_DIRECT.get(fd)) {
        kept.store(0, Ordering::Relaxed);
    }
}
