//! An array of operations, and how it is performed.
//!
//! `cringle_submit` builds a batch from the array on the calling thread. It looks up the properties
//! of each distinct descriptor once, and those of registered files not at all. If the array has
//! syncs, operations that must be complete, or [large](super::large) ones, a fiber performs it in
//! parts. The caller's memory is used by address, as by the kernel, and nothing is allocated for an
//! operation.

use crate::abi::*;
use crate::error::errno_of;
use crate::files::{Files, Found};
use crate::large::{goal, is_large};
use crate::registered::Tables;
use crate::sabotage;
use cringle::block::{Batch, OpId, Results};
use cringle::fiber;
use cringle::fs::File;
use std::cell::Cell;
use std::io;
use std::slice;

/// The operations that are performed by one batch. It bounds the memory of a submission.
const CHUNK: usize = 1 << 14;

/// The syncs that run at the same time, each on a fiber.
const MAX_SYNCS: usize = 64;

/// The operations of the largest batch whose memory a thread keeps for the next one.
const KEPT: usize = 1024;

thread_local! {
    /// The memory of this thread's last submission.
    static SPARE: Cell<Option<(Files, Batch<'static>)>> = const { Cell::new(None) };
}

fn take_spare() -> (Files, Batch<'static>) {
    SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
}

/// The result of an operation that is in a batch.
const IN_BATCH: i64 = i64::MIN;

/// The operations and results of a caller, which owns the memory: its contract keeps it until the
/// submission has ended.
#[derive(Debug)]
pub(crate) struct Ops<'a> {
    pub(crate) ops: &'a [cringle_op],
    pub(crate) results: &'a mut [i64],
}

// SAFETY: the addresses in the operations are passed to the kernel alone. The elements are the
// caller's memory, which `Ops::new` has borrowed.
unsafe impl Send for Ops<'_> {}

fn is_sync(op: &cringle_op) -> bool {
    matches!(op.kind, CRINGLE_FSYNC | CRINGLE_FDATASYNC)
}

pub(crate) fn is_full(op: &cringle_op) -> bool {
    matches!(op.kind, CRINGLE_READ_FULL | CRINGLE_WRITE_FULL)
}

pub(crate) fn is_write(op: &cringle_op) -> bool {
    matches!(op.kind, CRINGLE_WRITE | CRINGLE_WRITE_FULL)
}

/// The next call for an operation of several calls.
#[derive(Debug)]
pub(crate) struct Step {
    /// The index of the operation.
    pub(crate) at: usize,
    /// The bytes so far.
    pub(crate) done: u64,
    /// The most bytes of a call.
    pub(crate) most: u64,
}

impl Step {
    /// Returns the number of bytes that the next call is to transfer.
    fn len(&self, op: &cringle_op) -> u64 {
        (goal(op) - self.done).min(self.most)
    }
}

/// Whether nothing but its file remains to be checked. It is the first question for each operation.
#[inline]
fn is_plain(op: &cringle_op) -> bool {
    let other = op.flags & !CRINGLE_OP_REGISTERED_FILE | op.buffer.cast_unsigned();
    let is_zero = u64::from(other) | op.reserved[0] | op.reserved[1] == 0;
    is_zero && (CRINGLE_READ..=CRINGLE_FDATASYNC).contains(&op.kind)
}

/// Returns the `-errno` of an operation that is refused before it is performed.
#[inline]
fn refusal(op: &cringle_op, registered: &Tables) -> Option<i64> {
    if is_plain(op) { None } else { refusal_in_full(op, registered) }
}

#[inline(never)]
fn refusal_in_full(op: &cringle_op, registered: &Tables) -> Option<i64> {
    const FLAGS: u32 = CRINGLE_OP_REGISTERED_FILE | CRINGLE_OP_REGISTERED_BUFFER;
    let is_known = (CRINGLE_READ..=CRINGLE_FDATASYNC).contains(&op.kind);
    let has_buffer = op.flags & CRINGLE_OP_REGISTERED_BUFFER != 0;
    let has_rest = op.flags & !FLAGS != 0 || op.reserved != [0; 2];
    if !is_known || has_rest || !has_buffer && op.buffer != 0 || has_buffer && is_sync(op) {
        return Some(-i64::from(libc::EINVAL));
    }
    if has_buffer && !registered.contains(op.buffer, op.buf.addr(), op.len) {
        return Some(-i64::from(libc::EFAULT));
    }
    None
}

impl<'a> Ops<'a> {
    /// Borrows the caller's arrays. All results are 0 until they are stored: the caller may not
    /// have initialised them.
    ///
    /// # Safety
    ///
    /// The pointers are aligned; if `count` is not 0, they point to as many elements, which do not
    /// overlap, and which no other code uses during `'a`.
    pub(crate) unsafe fn new(ops: *const cringle_op, results: *mut i64, count: usize) -> Ops<'a> {
        if count == 0 {
            return Ops { ops: &[], results: &mut [] };
        }
        // SAFETY: this function's contract. The references are made to initialised elements.
        unsafe {
            results.write_bytes(0, count);
            Ops {
                ops: slice::from_raw_parts(ops, count),
                results: slice::from_raw_parts_mut(results, count),
            }
        }
    }

    /// Whether one batch performs all of them.
    pub(crate) fn are_one_batch(&self) -> bool {
        let is_one_call =
            |op: &cringle_op| matches!(op.kind, CRINGLE_READ | CRINGLE_WRITE) && !is_large(op);
        self.ops.len() <= CHUNK && self.ops.iter().all(is_one_call)
    }

    /// Performs reads and writes by one batch, which `submit` performs. Those that need several
    /// calls remain to be performed or continued, unless
    /// [`are_one_batch`](Self::are_one_batch) holds: large ones have the result 0.
    ///
    /// # Errors
    ///
    /// That of `submit`: no operation was performed.
    pub(crate) fn perform_together(
        &mut self,
        registered: &Tables,
        submit: impl FnOnce(Batch<'_>) -> io::Result<Results>,
    ) -> io::Result<()> {
        sabotage::at("batches");
        let (files, batch) = take_spare();
        let files = files.replaced(self.ops, &registered.files);
        let mut batch = batch;
        let mut refused = false;
        let mut found = Found::new(&files);
        for (op, result) in self.ops.iter().zip(&mut *self.results) {
            let pushed = match is_large(op) {
                true => Err(0),
                false => push(&mut batch, op, 0, op.len, &mut found, registered),
            };
            refused |= pushed.is_err();
            *result = pushed.err().unwrap_or(IN_BATCH);
        }
        let done = submit(batch)?;
        let results = self.results.iter_mut();
        if refused {
            let in_batch = results.filter(|result| **result == IN_BATCH);
            in_batch.zip(done.iter()).for_each(|(result, done)| *result = number_of(done));
        } else {
            results.zip(done.iter()).for_each(|(result, done)| *result = number_of(done));
        }
        if self.ops.len() <= KEPT {
            let spare = (files.cleared(), done.recycle());
            let _ = SPARE.try_with(|kept| kept.set(Some(spare)));
        }
        Ok(())
    }

    /// Performs the operations on the calling fiber.
    pub(crate) fn perform(&mut self, registered: &Tables) {
        let mut at = 0;
        while let Some(first) = self.ops.get(at) {
            let is_same = |op: &&cringle_op| is_sync(op) == is_sync(first);
            let len = self.ops[at..].iter().take(CHUNK).take_while(is_same).count();
            let (ops, results) = (&self.ops[at..at + len], &mut self.results[at..at + len]);
            let mut part = Ops { ops, results };
            if is_sync(first) {
                part.sync(registered);
            } else {
                part.transfer(registered);
            }
            at += len;
        }
    }

    /// Performs reads and writes, and repeats those that must be complete and are not.
    fn transfer(&mut self, registered: &Tables) {
        let together = self.perform_together(registered, |batch| Ok(batch.submit()));
        debug_assert!(together.is_ok());
        let (mut any_short, mut any_large) = (false, false);
        for (op, &result) in self.ops.iter().zip(&*self.results) {
            any_short |= is_short(op, result);
            any_large |= is_large(op);
        }
        if any_short {
            self.repeat_short(registered);
        }
        if any_large {
            self.transfer_large(registered);
        }
    }

    /// Repeats operations that must be complete, from where they stopped, until they are.
    fn repeat_short(&mut self, registered: &Tables) {
        let files = Files::of(self.ops, &registered.files);
        let results = self.ops.iter().zip(&*self.results).enumerate();
        let mut short: Vec<Step> = results
            .filter(|&(_, (op, &result))| is_short(op, result))
            .map(|(at, (_, &result))| Step { at, done: result as u64, most: u64::MAX })
            .collect();
        short.retain(|step| !self.has_ended(step, step.done, step.done as i64));
        while !short.is_empty() {
            self.perform_steps(&mut short, &files, registered);
        }
    }

    /// Performs the next call of each of these operations, all in one batch. Removes those that
    /// have ended.
    pub(crate) fn perform_steps(
        &mut self,
        steps: &mut Vec<Step>,
        files: &Files,
        registered: &Tables,
    ) {
        let mut batch = Batch::with_capacity(steps.len());
        let mut found = Found::new(files);
        let mut push = |step: &Step| {
            let op = &self.ops[step.at];
            push(&mut batch, op, step.done, step.len(op), &mut found, registered)
        };
        let pushed: Vec<_> = steps.iter().map(&mut push).collect();
        let results = batch.submit();
        let mut pushed = pushed.into_iter();
        steps.retain_mut(|step| {
            let pushed = pushed.next().expect("one for each of them");
            let result = pushed.map_or_else(|refused| refused, |id| number_of(results.get(id)));
            let asked = step.len(&self.ops[step.at]);
            step.done += u64::try_from(result).unwrap_or(0);
            !self.has_ended(step, asked, result)
        });
    }

    /// Whether an operation has ended whose last call was to transfer `asked` bytes, and had this
    /// result. If so, stores the operation's result.
    fn has_ended(&mut self, step: &Step, asked: u64, last: i64) -> bool {
        let (op, done) = (&self.ops[step.at], step.done);
        let ended = match last {
            0 if op.kind == CRINGLE_WRITE_FULL && done < op.len => -i64::from(libc::EIO),
            1.. if done < goal(op) && (is_full(op) || last as u64 == asked) => return false,
            0.. => done as i64,
            // As `pread` and `pwrite` do after a part.
            ..0 if done > 0 && !is_full(op) => done as i64,
            error => error,
        };
        self.results[step.at] = ended;
        true
    }

    /// Performs syncs, many at the same time.
    fn sync(&mut self, registered: &Tables) {
        let files = Files::of(self.ops, &registered.files);
        if let ([op], [result]) = (self.ops, &mut *self.results) {
            *result = sync(op, &files, registered);
            return;
        }
        let (ops, next) = (self.ops, Cell::new(0));
        let results = Cell::from_mut(&mut *self.results).as_slice_of_cells();
        let sync_rest = || {
            while let Some(op) = ops.get(next.get()) {
                let result = &results[next.replace(next.get() + 1)];
                result.set(sync(op, &files, registered));
            }
        };
        fiber::scope(|s| {
            for _ in 1..ops.len().min(MAX_SYNCS) {
                // Without memory for another stack, fewer syncs run at the same time.
                if fiber::Builder::new().spawn_scoped_local(s, sync_rest).is_err() {
                    break;
                }
            }
            sync_rest();
        });
    }
}

/// Whether an operation that must be complete is not, and is no large one.
fn is_short(op: &cringle_op, result: i64) -> bool {
    is_full(op) && !is_large(op) && result >= 0 && (result as u64) < op.len
}

/// Adds `len` bytes of the operation, after its first `done`, to the batch, or fails with its
/// `-errno`.
#[inline]
fn push<'f>(
    batch: &mut Batch<'f>,
    op: &cringle_op,
    done: u64,
    len: u64,
    found: &mut Found<'f>,
    registered: &Tables,
) -> Result<OpId, i64> {
    if let Some(refused) = refusal(op, registered) {
        return Err(refused);
    }
    let Some(file) = found.get(op) else { return Err(-i64::from(libc::EBADF)) };
    let buf = op.buf.cast::<u8>().wrapping_add(done as usize);
    let (len, offset) = (len as usize, op.offset.saturating_add(done));
    // SAFETY: the contract of `cringle_submit` and its kin: the memory stays the library's until
    // the submission has ended, which is after the batch.
    Ok(unsafe {
        match op.kind {
            CRINGLE_READ | CRINGLE_READ_FULL => batch.read_raw(file, buf, len, offset),
            _ => batch.write_raw(file, buf, len, offset),
        }
    })
}

fn sync(op: &cringle_op, files: &Files, registered: &Tables) -> i64 {
    if let Some(refused) = refusal(op, registered) {
        return refused;
    }
    let sync = |file: &File| match op.kind {
        CRINGLE_FSYNC => file.sync_all(),
        _ => file.sync_data(),
    };
    let Some(file) = files.get(op) else { return -i64::from(libc::EBADF) };
    number_of(sync(file).map(|()| 0))
}

#[inline]
fn number_of(result: io::Result<usize>) -> i64 {
    match result {
        Ok(count) => count as i64,
        Err(e) => -i64::from(errno_of(&e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registered::Range;

    #[test]
    fn operation_that_is_refused_in_a_repeat_fails_alone() {
        let mut tables = Tables::default();
        let mut memory = [[0_u8; 8]; 3];
        // Each file ends before the memory does, so each read is repeated once.
        let files = [1, 2, 3].map(|len| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(len).unwrap();
            std::sync::Arc::new(File::from(file))
        });
        let numbers = files.map(|file| tables.files.add(file).unwrap());
        let ops = [0, 1, 2].map(|at| {
            let buf = memory[at].as_mut_ptr();
            let buffer = tables.buffers.add(Range { base: buf.addr(), len: 8 }).unwrap();
            cringle_op {
                kind: CRINGLE_READ_FULL,
                fd: numbers[at],
                buf: buf.cast(),
                len: 8,
                offset: 0,
                flags: CRINGLE_OP_REGISTERED_FILE | CRINGLE_OP_REGISTERED_BUFFER,
                buffer,
                user_data: 0,
                reserved: [0; 2],
            }
        });
        for (refused, errno) in [(0, libc::EBADF), (1, libc::EFAULT)] {
            let mut results = [0; 3];
            let mut submission = Ops { ops: &ops, results: &mut results };
            submission.perform_together(&tables, |batch| Ok(batch.submit())).unwrap();
            assert_eq!(submission.results, [1, 2, 3]);
            let mut fewer = tables.clone();
            let is_file = errno == libc::EBADF;
            assert!(
                is_file && fewer.files.remove(ops[refused].fd)
                    || fewer.buffers.remove(ops[refused].buffer)
            );
            submission.repeat_short(&fewer);
            let mut expected = [1, 2, 3];
            expected[refused] = -i64::from(errno);
            assert_eq!(submission.results, expected);
        }
    }
}
