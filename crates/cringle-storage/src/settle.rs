//! The end of a batch: what the first op of an operation has left to do.

use super::notes::{Note, find};
use super::results::{END_OF_FILE, LONG, WROTE_NOTHING};
use super::{Batch, OpId, Results};
use cringle_core::worker::Current;
use cringle_driver::completion::OpState;
use cringle_driver::{Memory, Op, OpSlot, blocking};
use cringle_std::fs::File;
use cringle_std::internal::InternalFile;
use cringle_std::internal::{on_descriptor, perform_on_pool};
use cringle_sys::Misaligned;
use cringle_sys::{self as sys, MAX_RW_BYTES};

impl Batch<'_> {
    /// Completes the operations. See [`complete`](Batch::complete).
    pub(super) fn settle(mut self, current: Option<Current>) -> Results {
        let cause = || current.filter(|current| current.is_interrupted())?.fiber.cause();
        let (was_cancelled, mut misaligned) = (cause().is_some(), Vec::new());
        for (id, slot) in (0..).map(OpId).zip(&self.slots) {
            if is_complete(slot) {
                continue;
            }
            let result = self.complete(id, current, was_cancelled);
            slot.completion.refuse(result);
            if result == -libc::EINVAL
                && let Some(why) = self.misalignment(id, current, &slot.op)
            {
                misaligned.push((id, Note::Misaligned(Box::new(why))));
            }
        }
        if !misaligned.is_empty() {
            self.notes.append(&mut misaligned);
            self.notes.sort_by_key(|&(id, _)| id);
        }
        Results::new(self, cause())
    }

    /// Finds the misalignment of a direct read or write that the kernel refused. A file that was
    /// opened with `Direct::Bounce` has seen to the alignment itself.
    fn misalignment(&self, id: OpId, current: Option<Current>, op: &Op) -> Option<Misaligned> {
        let transfer = op.transfer()?;
        let Memory::Bytes { start, len } = transfer.memory() else { return None };
        if self.file_of(id).is_some_and(File::bounces) {
            return None;
        }
        let registered =
            || current?.worker.driver().borrow().registered_file(op.describe().fixed()?);
        let fd = transfer.file.as_fd().or_else(registered)?;
        Misaligned::find(fd, start.addr(), len as usize, transfer.offset)
    }

    /// The file of an operation, if it was noted.
    pub(super) fn file_of(&self, id: OpId) -> Option<&File> {
        find(&self.notes, id, |note| match note {
            // SAFETY: I1. The batch borrows the file.
            Note::File(file) => Some(unsafe { file.as_ref() }),
            _ => None,
        })
    }

    /// Completes an operation, and returns its result:
    ///
    /// - performs one that was not submitted;
    /// - repeats one that the kernel dropped without a cancel;
    /// - makes the plain call on the pool for a regular file for which the ring reported `EAGAIN`;
    /// - continues an exact one until all bytes are transferred.
    #[cold]
    fn complete(&self, id: OpId, current: Option<Current>, was_cancelled: bool) -> i32 {
        let OpSlot { op: first, completion } = &self.slots[id.0 as usize];
        let again = |op| self.perform_one(current, id, op);
        let mut result = match completion.state() {
            OpState::Done => completion.result(),
            _ => again(*first),
        };
        if result == 0
            && is_empty(first)
            && let Some(current) = current.filter(|current| current.worker.may_bypass())
            && let Some(plain) = on_descriptor(current.worker, *first)
        {
            // A ring and epoll do not ask the file, which may refuse an empty transfer, and does
            // not wait for it.
            // SAFETY: I1. The batch borrows what its ops point to until it has finished.
            result = unsafe { blocking::perform(&plain) };
        }
        if result == -libc::ECANCELED && !was_cancelled {
            result = again(*first);
        }
        let long = || find(&self.notes, id, Note::as_long);
        let wanted = first.exact_len().map(|len| long().unwrap_or(len as usize));
        let (mut op, mut done) = (*first, 0);
        loop {
            if result == -libc::EAGAIN
                && let Some(plain) = on_regular_file(current, op)
            {
                // SAFETY: I1. The batch borrows what its ops point to until it has finished.
                result = unsafe { perform_on_pool(plain) };
            }
            let Some(wanted) = wanted else { return result };
            done += usize::try_from(result).unwrap_or(0);
            match result {
                0.. if done >= wanted => return i32::try_from(wanted).unwrap_or(LONG),
                0 if op.is_read() => return END_OF_FILE,
                0 => return WROTE_NOTHING,
                error if error < 0 && error != -libc::EINTR => return error,
                _ => {}
            }
            op = rest_of(*first, done, wanted - done);
            result = again(op);
        }
    }
}

/// Whether the first op was all of the operation.
#[inline]
fn is_complete(slot: &OpSlot) -> bool {
    let is_whole = |result, len| result == len as i32 && (len as usize) < MAX_RW_BYTES;
    slot.completion.state() == OpState::Done
        && slot.completion.result() >= 0
        && slot.op.exact_len().is_none_or(|len| is_whole(slot.completion.result(), len))
        && (slot.completion.result() != 0 || !is_empty(&slot.op))
}

/// Whether the op transfers no bytes.
#[cold]
fn is_empty(op: &Op) -> bool {
    op.transfer().is_some_and(|it| matches!(it.memory(), Memory::Bytes { len: 0, .. }))
}

/// Returns the op without its first `done` bytes.
fn rest_of(op: Op, done: usize, left: usize) -> Op {
    let Op::Transfer(mut transfer) = op else { return op };
    if let Memory::Bytes { start, .. } = transfer.memory() {
        let (start, len) = (start.wrapping_add(done), left.min(MAX_RW_BYTES) as u32);
        transfer = transfer.with_memory(Memory::Bytes { start, len });
    }
    transfer.offset += done as u64;
    Op::Transfer(transfer)
}

/// Returns the op on a plain descriptor and buffer, if the file is a regular one.
fn on_regular_file(current: Option<Current>, op: Op) -> Option<Op> {
    let op = current.map_or(Some(op), |current| on_descriptor(current.worker, op))?;
    sys::file_kind(op.describe().file).regular.then_some(op)
}
