//! Operations that are larger than a piece: one piece after the other.
//!
//! The kernel copies cached data, and that of devices in memory, during the system call that
//! submits a read. So one call for gigabytes would hold up the other submissions of its worker for
//! seconds, and no cancel would reach it. Between two pieces other fibers run, and a cancel takes
//! effect. Otherwise the pieces are like one call: after a part, an error or a cancel of `READ` and
//! `WRITE` leaves the bytes so far as the result.

use crate::abi::*;
use crate::files::{Files, Found};
use crate::ops::{Ops, Step, is_full, is_write};
use crate::registered::Tables;
use cringle::fiber;
use cringle::fs::File;
use std::os::fd::AsRawFd;

/// The bytes of a piece. Operations up to this size are one call. The book and `cringle.h` name it.
pub(crate) const PIECE: u64 = 4 << 20;

/// The large operations of an array that run at the same time.
const AT_ONCE: usize = 4;

/// The addresses of a process, unless it asks for more of them.
const ADDRESSES: u64 = 1 << 47;

/// The most bytes that a call of the kernel transfers.
const MAX_CALL: u64 = 0x7fff_f000;

/// Whether an operation that is no sync is performed in pieces.
#[inline]
pub(crate) fn is_large(op: &cringle_op) -> bool {
    op.len > PIECE
}

/// Returns the number of bytes with which an operation has ended.
pub(crate) fn goal(op: &cringle_op) -> u64 {
    if is_full(op) { op.len } else { op.len.min(MAX_CALL) }
}

/// Whether pieces would behave differently from one call:
///
/// - the kernel refuses the whole, as it goes beyond the largest offset or the address space, or is
///   a direct read or write whose length is not aligned;
/// - it appends, and other writers must not come between.
fn is_one_call(op: &cringle_op, file: Option<&File>) -> bool {
    let end = op.offset.saturating_add(op.len.min(MAX_CALL));
    let is_memory = op.len <= ADDRESSES.saturating_sub(op.buf.addr() as u64);
    if end > i64::MAX as u64 || !is_memory {
        return true;
    }
    // SAFETY: no pointers.
    let flags = file.map_or(-1, |file| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) });
    let has = |flag: i32| flags >= 0 && flags & flag != 0;
    has(libc::O_APPEND) && is_write(op) || has(libc::O_DIRECT) && !op.len.is_multiple_of(512)
}

impl Ops<'_> {
    /// Performs the large operations, on the calling fiber.
    #[cold]
    pub(crate) fn transfer_large(&mut self, registered: &Tables) {
        let files = Files::of(self.ops, &registered.files);
        let mut found = Found::new(&files);
        let step = |(at, op)| {
            let most = if is_one_call(op, found.get(op)) { u64::MAX } else { PIECE };
            Step { at, done: 0, most }
        };
        let large = self.ops.iter().enumerate().filter(|(_, op)| is_large(op));
        let mut waiting = large.map(step).collect::<Vec<_>>().into_iter();
        let mut steps: Vec<Step> = waiting.by_ref().take(AT_ONCE).collect();
        while !steps.is_empty() {
            self.perform_steps(&mut steps, &files, registered);
            steps.extend(waiting.by_ref().take(AT_ONCE - steps.len()));
            // A cancelled fiber's next step fails by itself.
            let _ = fiber::yield_now_cancellable();
        }
    }
}
