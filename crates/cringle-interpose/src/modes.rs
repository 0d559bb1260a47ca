//! The modes of an open descriptor that decide how reads and writes are made:
//!
//! - with `O_DIRECT`, a read waits for the disk in spite of `RWF_NOWAIT`;
//! - a write to the page cache of a local file that is not synchronous takes no longer than the
//!   copy, unless the kernel makes the caller wait for memory or for the journal.
//!
//! The answers are kept for the next calls on the same number, because they would cost a system
//! call or three for each. They may be out of date: the number may name another file by then, if it
//! was closed within libc. That harms no result; a call would wait for the disk on the worker's
//! thread, a few times at most.

use cringle_sys::{self as sys, file_system};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

const NUMBERS: usize = 4096;
/// The calls for which an answer is kept.
const KEPT: u8 = 64;

/// For each number, the calls for which an answer is kept.
type Answers = [AtomicU8; NUMBERS];

/// The descriptor is not direct.
static NOT_DIRECT: Answers = [const { AtomicU8::new(0) }; NUMBERS];
/// Small writes are made by the plain call.
static PLAIN: Answers = [const { AtomicU8::new(0) }; NUMBERS];

/// Takes one of the calls for which the answer is kept.
#[inline]
fn is_known(answers: &'static Answers, fd: RawFd) -> bool {
    let kept = usize::try_from(fd).ok().and_then(|fd| answers.get(fd));
    let calls = kept.map_or(0, |kept| kept.load(Ordering::Relaxed));
    if calls > 0 {
        // Racing callers may lose a step.
        kept.inspect(|kept| kept.store(calls - 1, Ordering::Relaxed));
    }
    calls > 0
}

fn keep(answers: &'static Answers, fd: RawFd, calls: u8) {
    if let Some(kept) = usize::try_from(fd).ok().and_then(|fd| answers.get(fd)) {
        kept.store(calls, Ordering::Relaxed);
    }
}

#[inline]
pub(super) fn is_direct(fd: RawFd) -> bool {
    !is_known(&NOT_DIRECT, fd) && ask_is_direct(fd)
}

#[cold]
fn ask_is_direct(fd: RawFd) -> bool {
    let is_direct = sys::status_flags(fd) & libc::O_DIRECT != 0;
    if !is_direct {
        keep(&NOT_DIRECT, fd, KEPT);
    }
    is_direct
}

/// Whether the last calls have found that the file takes plain writes.
#[inline]
pub(super) fn is_known_as_plain(fd: RawFd) -> bool {
    is_known(&PLAIN, fd)
}

/// Asks whether a small write to the file ends without waiting for the disk, another process or a
/// server.
#[cold]
pub(super) fn takes_plain_writes(fd: RawFd) -> bool {
    if sys::mode(fd) & libc::S_IFMT != libc::S_IFREG {
        return false;
    }
    if is_known_as_plain(fd) {
        return true;
    }
    let is_synchronous = sys::status_flags(fd) & (libc::O_DIRECT | libc::O_DSYNC) != 0;
    let takes = !is_synchronous && !file_system(fd).waits_for_server(libc::ST_SYNCHRONOUS);
    if takes {
        keep(&PLAIN, fd, KEPT);
    }
    takes
}

/// Forgets the answers for a number that is closed.
pub(super) fn forget(fd: RawFd) {
    keep(&NOT_DIRECT, fd, 0);
    keep(&PLAIN, fd, 0);
}
