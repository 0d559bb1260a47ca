//! What came of a batch.

use super::{Batch, OpId};
use crate::driver::{Op, OpSlot, Target, means_cancelled};
use crate::fiber::op::perform_aside;
use crate::fs::misaligned::Misaligned;
use crate::runtime::cancelled::Reason;
use crate::sys::{self, MAX_RW_BYTES};
use std::io::{self, Read, Write};
use std::os::fd::RawFd;

/// The results of a [`Batch`], in the order of its operations. Every operation has ended and every
/// borrow with it; dropping this is harmless.
#[derive(Debug)]
pub struct Results {
    slots: Vec<OpSlot>,
    /// Results that are not the kernel's answer to a single op, by operation.
    outcomes: Vec<(OpId, Outcome)>,
    /// Of no use any more but for its memory.
    exact: Vec<(OpId, usize)>,
    cancelled: Option<Reason>,
}

// SAFETY: the pointers in it are of operations that have ended, and are not followed any more.
unsafe impl Send for Results {}

/// A result that the batch itself arrived at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// An exact operation is through.
    Count(usize),
    /// What the kernel said last.
    Answer(i32),
    /// The batch refused it, as the plain call would have.
    Errno(i32),
    /// The kernel refused it, and this is why.
    Misaligned(Misaligned),
    /// Its registered file or buffer belongs to another ring.
    OtherRing,
    EndOfFile,
    WroteNothing,
}

impl Results {
    pub(super) fn new(
        slots: Vec<OpSlot>,
        outcomes: Vec<(OpId, Outcome)>,
        exact: Vec<(OpId, usize)>,
    ) -> Results {
        Results { slots, outcomes, exact, cancelled: None }
    }

    /// Why the fiber is cancelled, if it is: what the kernel gave up is its doing.
    pub(super) fn note_cancelled(&mut self, cancelled: Option<Reason>) {
        self.cancelled = cancelled;
    }

    /// Goes on with exact operations that came back short; has those of regular files that the ring
    /// answered by `EAGAIN` done elsewhere, with the descriptor behind a `registered` slot; finds out why the kernel refused one.
    pub(super) fn finish(
        &mut self,
        again: impl Fn(Op) -> i32,
        registered: impl Fn(u32) -> Option<RawFd>,
    ) {
        let mut exact = self.exact.iter().copied().peekable();
        for (id, slot) in (0..).map(OpId).zip(&self.slots) {
            let told = slot.completion.result();
            let result = match told == -libc::ECANCELED && self.cancelled.is_none() {
                // The kernel dropped it unasked.
                true => again(slot.op),
                false => told,
            };
            let wanted = exact.next_if(|&(exact, _)| exact == id).map(|(_, len)| len);
            if result >= 0 && wanted.is_none_or(|len| len == result as usize) {
                if result != told {
                    self.outcomes.push((id, Outcome::Answer(result)));
                }
                continue;
            }
            let outcome = match wanted {
                // Refused before: that was the last word.
                _ if matches!(slot.op, Op::Nop) => continue,
                Some(len) => go_on(slot.op, result, len, &again),
                None if result == -libc::EAGAIN => {
                    Outcome::Answer(match plain_call(&slot.op, &registered) {
                        // SAFETY: the batch borrows what its ops point to until it has finished.
                        Some(plain) => unsafe { perform_aside(plain) },
                        None => result,
                    })
                }
                None => Outcome::Answer(result),
            };
            match outcome {
                Outcome::Answer(answer) if answer == -libc::EINVAL => {
                    let why = misalignment(&slot.op).map_or(outcome, Outcome::Misaligned);
                    self.outcomes.push((id, why));
                }
                Outcome::Answer(answer) if answer == told => {}
                _ => self.outcomes.push((id, outcome)),
            }
        }
        // Each operation is in it once.
        self.outcomes.sort_unstable_by_key(|&(id, _)| id);
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
        if !self.outcomes.is_empty()
            && let Ok(at) = self.outcomes.binary_search_by_key(&id, |&(id, _)| id)
        {
            return self.judge(self.outcomes[at].1);
        }
        self.answer(slot.completion.result())
    }

    #[inline]
    fn answer(&self, result: i32) -> io::Result<usize> {
        if let Some(reason) = self.cancelled
            && result < 0
            && means_cancelled(result)
        {
            return Err(reason.error());
        }
        sys::result_of(result)
    }

    #[cold]
    fn judge(&self, outcome: Outcome) -> io::Result<usize> {
        match outcome {
            Outcome::Count(count) => Ok(count),
            Outcome::Answer(result) => self.answer(result),
            Outcome::Errno(errno) => Err(io::Error::from_raw_os_error(errno)),
            Outcome::Misaligned(why) => Err(why.into_error()),
            Outcome::OtherRing => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a registered file or buffer is used on another ring than the one it was \
                 registered with: register it on the worker that uses it",
            )),
            // std's own errors, which are made without an allocation.
            Outcome::EndOfFile => io::empty().read_exact(&mut [0]).map(|()| 0),
            Outcome::WroteNothing => <&mut [u8]>::default().write_all(&[0]).map(|()| 0),
        }
    }

    /// The results in the order of the operations.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = io::Result<usize>> {
        (0..self.slots.len()).map(|index| self.get(OpId(index as u32)))
    }

    /// An empty batch in this one's memory, for other borrows.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::File};
    ///
    /// cringle::run(|| {
    ///     let file = File::open("/proc/self/exe")?;
    ///     let mut pages = vec![0; 32 * 4096];
    ///     let mut spare = Batch::new();
    ///     for round in 0..4 {
    ///         let mut batch = spare;
    ///         for (page, offset) in pages.chunks_mut(4096).zip((round * 32..).map(|n| n * 4096)) {
    ///             batch.read(&file, page, offset);
    ///         }
    ///         let results = batch.submit();
    ///         assert!(results.iter().all(|count| count.is_ok()));
    ///         assert!(round > 0 || pages.starts_with(b"\x7fELF"));
    ///         spare = results.recycle();
    ///     }
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recycle<'n>(self) -> Batch<'n> {
        Batch::reusing(self.slots, self.exact, self.outcomes)
    }
}

impl IntoIterator for Results {
    type Item = io::Result<usize>;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        let len = self.len();
        IntoIter { results: self, next: 0..len }
    }
}

/// The results of a batch, one after the other. They are all in; nothing waits here.
#[derive(Debug)]
pub struct IntoIter {
    results: Results,
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
fn go_on(first: Op, result: i32, len: usize, again: &impl Fn(Op) -> i32) -> Outcome {
    let (mut op, mut done, mut result) = (first, 0, result);
    loop {
        if result == -libc::EAGAIN && is_regular(&op) {
            // SAFETY: the batch borrows what its ops point to until it has finished.
            result = unsafe { perform_aside(op) };
        }
        match result {
            0 if len == done => return Outcome::Count(len),
            0 if matches!(op, Op::Read { .. }) => return Outcome::EndOfFile,
            0 => return Outcome::WroteNothing,
            count if count > 0 => done += count as usize,
            error if error == -libc::EINTR => {}
            error => return Outcome::Answer(error),
        }
        if done >= len {
            return Outcome::Count(len);
        }
        op = rest_of(first, done, len - done);
        result = again(op);
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

/// The same on a descriptor, if it is a regular file's.
pub(super) fn plain_call(op: &Op, registered: &impl Fn(u32) -> Option<RawFd>) -> Option<Op> {
    let fd = |target: Target| registered(u32::try_from(target.number()).ok()?);
    match *op {
        Op::ReadFixed { target, buf, len, offset, .. } => {
            Some(Op::Read { target: Target::fd(fd(target)?), buf, len, offset })
        }
        Op::WriteFixed { target, buf, len, offset, .. } => {
            Some(Op::Write { target: Target::fd(fd(target)?), buf, len, offset })
        }
        op => is_regular(&op).then_some(op),
    }
}

fn is_regular(op: &Op) -> bool {
    match op {
        Op::Read { target, .. } | Op::Write { target, .. } => {
            target.as_fd().is_some_and(|fd| sys::file_kind(fd).regular)
        }
        _ => false,
    }
}

/// Why a direct read or write that the kernel refused may have been.
fn misalignment(op: &Op) -> Option<Misaligned> {
    let (target, address, len, offset) = match *op {
        Op::Read { target, buf, len, offset } | Op::ReadFixed { target, buf, len, offset, .. } => {
            (target, buf.addr(), len, offset)
        }
        Op::Write { target, buf, len, offset } => (target, buf.addr(), len, offset),
        Op::WriteFixed { target, buf, len, offset, .. } => (target, buf.addr(), len, offset),
        _ => return None,
    };
    match target.as_fd() {
        Some(fd) => Misaligned::find(fd, address, len as usize, offset),
        None => Misaligned::find_registered(address, len as usize, offset),
    }
}
