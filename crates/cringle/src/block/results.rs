//! What came of a batch.

use super::{Batch, OpId};
use crate::driver::uring::means_cancelled;
use crate::driver::{Op, Target};
use crate::runtime::cancelled;
use crate::runtime::fiber::OpSlot;
use crate::sys::{self, MAX_RW_BYTES};
use std::io;
use std::marker::PhantomData;

/// The results of a [`Batch`], in the order of its operations. Every operation has ended; dropping
/// this is harmless.
#[derive(Debug)]
pub struct Results<'b> {
    slots: Vec<OpSlot>,
    /// Results that are not the kernel's answer to a single op, by operation.
    verdicts: Vec<(OpId, Verdict)>,
    cancelled: bool,
    borrows: PhantomData<&'b mut [u8]>,
}

// SAFETY: the pointers in it are of operations that have ended, and are not followed any more.
unsafe impl Send for Results<'_> {}

/// A result that the batch itself arrived at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// An exact operation is through.
    Count(usize),
    Errno(i32),
    /// Its registered file or buffer belongs to another ring.
    OtherRing,
    EndOfFile,
    WroteNothing,
}

impl Verdict {
    fn result(self) -> io::Result<usize> {
        use io::ErrorKind::{InvalidInput, UnexpectedEof, WriteZero};
        match self {
            Verdict::Count(count) => Ok(count),
            Verdict::Errno(errno) => Err(io::Error::from_raw_os_error(errno)),
            Verdict::OtherRing => Err(io::Error::new(
                InvalidInput,
                "a registered file or buffer is used on another ring than the one it was \
                 registered with: register it on the worker that uses it",
            )),
            Verdict::EndOfFile => Err(io::Error::new(UnexpectedEof, "failed to fill whole buffer")),
            Verdict::WroteNothing => Err(io::Error::new(WriteZero, "failed to write whole buffer")),
        }
    }
}

impl<'b> Results<'b> {
    pub(super) fn new(slots: Vec<OpSlot>, verdicts: Vec<(OpId, Verdict)>) -> Results<'b> {
        Results { slots, verdicts, cancelled: false, borrows: PhantomData }
    }

    /// The fiber was cancelled: what the kernel gave up is its doing.
    pub(super) fn note_cancelled(&mut self, cancelled: bool) {
        self.cancelled = cancelled;
    }

    /// Goes on with exact operations that came back short, and with those of regular files that
    /// answered `EAGAIN` (XFS may).
    pub(super) fn finish(&mut self, exact: &[(OpId, usize)], again: impl Fn(Op) -> i32) {
        for &(id, len) in exact {
            let slot = &self.slots[id.0 as usize];
            if slot.completion.result() != len as i32 || len > MAX_RW_BYTES {
                let verdict = go_on(slot.op, slot.completion.result(), len, &again);
                self.verdicts.push((id, verdict));
            }
        }
        let mut asked_again = Vec::new();
        for (id, slot) in (0..).map(OpId).zip(&self.slots) {
            if slot.completion.result() == -libc::EAGAIN && is_regular(&slot.op) {
                asked_again.push((id, persist(slot.op, &again)));
            }
        }
        let new = asked_again.into_iter().filter(|(id, _)| !exact.iter().any(|(e, _)| e == id));
        self.verdicts.extend(new);
        // The last word on an operation is found first.
        self.verdicts.sort_by_key(|&(id, _)| id);
    }

    /// How many operations there were.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The result of one operation: the bytes moved, or its error.
    ///
    /// # Errors
    ///
    /// The operation's own.
    ///
    /// # Panics
    ///
    /// If the batch had no such operation.
    pub fn get(&self, id: OpId) -> io::Result<usize> {
        let slot = &self.slots[id.0 as usize];
        if !self.verdicts.is_empty()
            && let Ok(at) = self.verdicts.binary_search_by_key(&id, |&(id, _)| id)
        {
            return self.verdicts[at].1.result();
        }
        self.result_of(slot)
    }

    #[inline]
    fn result_of(&self, slot: &OpSlot) -> io::Result<usize> {
        let result = slot.completion.result();
        if result < 0 && self.cancelled && means_cancelled(result) {
            return Err(cancelled::error());
        }
        sys::result_of(result)
    }

    /// The results in the order of the operations.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = io::Result<usize>> {
        (0..self.slots.len()).map(|index| self.get(OpId(index as u32)))
    }

    /// An empty batch in this one's memory.
    pub fn recycle<'n>(self) -> Batch<'n> {
        Batch::reusing(self.slots)
    }
}

impl IntoIterator for Results<'_> {
    type Item = io::Result<usize>;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        let len = self.len();
        let Results { slots, verdicts, cancelled, .. } = self;
        IntoIter {
            results: Results { slots, verdicts, cancelled, borrows: PhantomData },
            next: 0..len,
        }
    }
}

/// The results of a batch, one after the other. They are all in; nothing waits here.
#[derive(Debug)]
pub struct IntoIter {
    results: Results<'static>,
    next: std::ops::Range<usize>,
}

impl Iterator for IntoIter {
    type Item = io::Result<usize>;

    fn next(&mut self) -> Option<io::Result<usize>> {
        self.next.next().map(|index| self.results.get(OpId(index as u32)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.next.size_hint()
    }
}

impl ExactSizeIterator for IntoIter {}

/// Repeats what is left of an exact operation until it is through.
fn go_on(first: Op, result: i32, len: usize, again: &impl Fn(Op) -> i32) -> Verdict {
    let (mut done, mut result) = (0, result);
    loop {
        match result {
            0 if len == done => return Verdict::Count(len),
            0 if matches!(first, Op::Read { .. } | Op::ReadFixed { .. }) => {
                return Verdict::EndOfFile;
            }
            0 => return Verdict::WroteNothing,
            count if count > 0 => done += count as usize,
            error if error == -libc::EINTR => {}
            error if error == -libc::EAGAIN && is_regular(&first) => {}
            error => return Verdict::Errno(-error),
        }
        if done >= len {
            return Verdict::Count(len);
        }
        result = again(rest_of(first, done, len - done));
    }
}

/// Asks again until the answer is another than `EAGAIN`.
fn persist(op: Op, again: &impl Fn(Op) -> i32) -> Verdict {
    loop {
        match again(op) {
            count if count >= 0 => return Verdict::Count(count as usize),
            error if error == -libc::EAGAIN => {}
            error => return Verdict::Errno(-error),
        }
    }
}

/// The op without its first `done` bytes.
fn rest_of(op: Op, done: usize, left: usize) -> Op {
    let len = left.min(MAX_RW_BYTES) as u32;
    match op {
        Op::Read { target, buf, offset, .. } => {
            Op::Read { target, buf: buf.wrapping_add(done), len, offset: offset + done as u64 }
        }
        Op::Write { target, buf, offset, .. } => {
            Op::Write { target, buf: buf.wrapping_add(done), len, offset: offset + done as u64 }
        }
        other => other,
    }
}

fn is_regular(op: &Op) -> bool {
    match op {
        Op::Read { target: Target::Fd(fd), .. } | Op::Write { target: Target::Fd(fd), .. } => {
            sys::file_kind(*fd).regular
        }
        _ => false,
    }
}
