//! An array of operations, and how it is performed.

use crate::abi::*;
use crate::error::errno_of;
use crate::files::{Files, Found};
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

fn is_full(op: &cringle_op) -> bool {
    matches!(op.kind, CRINGLE_READ_FULL | CRINGLE_WRITE_FULL)
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
        self.ops.len() <= CHUNK
            && self.ops.iter().all(|op| matches!(op.kind, CRINGLE_READ | CRINGLE_WRITE))
    }

    /// Performs operations for which [`are_one_batch`](Self::are_one_batch) holds. `submit`
    /// performs the batch.
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
            let pushed = push(&mut batch, op, 0, &mut found, registered);
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
        self.repeat_short(registered);
    }

    /// Repeats operations that must be complete, from where they stopped, until they are.
    fn repeat_short(&mut self, registered: &Tables) {
        let is_short = |(op, result): (&cringle_op, &i64)| {
            is_full(op) && *result >= 0 && (*result as u64) < op.len
        };
        if !self.ops.iter().zip(&*self.results).any(is_short) {
            return;
        }
        let files = Files::of(self.ops, &registered.files);
        let mut short: Vec<(usize, u64)> = (0..)
            .zip(self.ops.iter().zip(&*self.results))
            .filter(|&(_, pair)| is_short(pair))
            .filter_map(|(at, (_, result))| Some((at, u64::try_from(*result).ok()?)))
            .collect();
        short.retain(|&(at, done)| !self.has_ended(at, done, done as i64));
        while !short.is_empty() {
            let mut batch = Batch::with_capacity(short.len());
            let mut found = Found::new(&files);
            let mut push =
                |at: usize, done| push(&mut batch, &self.ops[at], done, &mut found, registered);
            let pushed: Vec<_> = short.iter().map(|&(at, done)| push(at, done)).collect();
            let results = batch.submit();
            let mut pushed = pushed.into_iter();
            short.retain_mut(|(at, done)| {
                let pushed = pushed.next().expect("one for each of them");
                let result = pushed.map_or_else(|refused| refused, |id| number_of(results.get(id)));
                *done += u64::try_from(result).unwrap_or(0);
                !self.has_ended(*at, *done, result)
            });
        }
    }

    /// Whether an operation that must be complete has ended, after `done` bytes, with this result
    /// of its last step. If so, stores its result.
    fn has_ended(&mut self, at: usize, done: u64, last: i64) -> bool {
        let op = &self.ops[at];
        let ended = match last {
            0 if op.kind == CRINGLE_WRITE_FULL && done < op.len => -i64::from(libc::EIO),
            1.. if done < op.len => return false,
            0.. => done as i64,
            error => error,
        };
        self.results[at] = ended;
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

/// Adds the operation without its first `done` bytes to the batch, or fails with its `-errno`.
#[inline]
fn push<'f>(
    batch: &mut Batch<'f>,
    op: &cringle_op,
    done: u64,
    found: &mut Found<'f>,
    registered: &Tables,
) -> Result<OpId, i64> {
    if let Some(refused) = refusal(op, registered) {
        return Err(refused);
    }
    let Some(file) = found.get(op) else { return Err(-i64::from(libc::EBADF)) };
    let (buf, len) = (op.buf.cast::<u8>().wrapping_add(done as usize), op.len - done);
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
