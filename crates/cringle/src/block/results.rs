//! The results of a batch.

use super::mapped::MappedRead;
use super::{Batch, OpId};
use crate::driver::{Memory, Op, OpSlot, Target, Transfer, means_cancelled};
use crate::fiber::op::perform_on_pool;
use crate::fs::misaligned::Misaligned;
use crate::runtime::cancelled::Reason;
use crate::sys::{self, MAX_RW_BYTES};
use std::io::{self, Read, Write};
use std::os::fd::RawFd;

/// The results of a [`Batch`], in the order of its operations. Every operation has ended, and the
/// borrows of the batch with it.
///
/// ```
/// use cringle::{block::{Batch, Results}, fs::File};
///
/// let file = File::open("/proc/self/exe")?;
/// let mut magic = [0; 4];
/// let mut batch = Batch::new();
/// batch.read(&file, &mut magic, 0);
/// let results: Results = batch.submit();
/// assert!(results.iter().all(|count| matches!(count, Ok(4))));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Results {
    slots: Vec<OpSlot>,
    /// The outcomes that differ from the result of the operation's first op, sorted by operation.
    outcomes: Vec<(OpId, Outcome)>,
    /// Kept only for its memory, which `recycle` reuses.
    exact: Vec<(OpId, usize)>,
    /// As above.
    mapped: Vec<MappedRead>,
    cancelled: Option<Reason>,
}

// SAFETY: I1. The pointers belong to operations that have ended, and are not dereferenced any
// more.
unsafe impl Send for Results {}

/// The outcome of an operation that is not simply the result of its first op.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// An exact operation has transferred all of its bytes.
    Count(usize),
    /// The result of the operation's last op.
    Result(i32),
    /// The batch refused the operation with this `errno`, as the plain call would have.
    Errno(i32),
    /// The kernel refused the operation, because it was not aligned.
    Misaligned(Misaligned),
    /// The registered file or buffer belongs to another ring.
    OtherRing,
    /// A `read_exact` found the end of the file.
    EndOfFile,
    /// A `write_all` wrote 0 bytes.
    WroteNothing,
}

impl Results {
    pub(super) fn new(
        slots: Vec<OpSlot>,
        outcomes: Vec<(OpId, Outcome)>,
        exact: Vec<(OpId, usize)>,
        mapped: Vec<MappedRead>,
    ) -> Results {
        Results { slots, outcomes, exact, mapped, cancelled: None }
    }

    /// Sets the reason of the fiber's cancel, which explains the operations that the kernel has
    /// cancelled.
    pub(super) fn note_cancelled(&mut self, cancelled: Option<Reason>) {
        self.cancelled = cancelled;
    }

    /// Completes the operations:
    ///
    /// - continues exact operations that were short;
    /// - repeats operations that the kernel dropped without a cancel;
    /// - makes plain calls on the pool for regular files for which the ring reported `EAGAIN`;
    ///   `registered` returns the descriptor of a registered file;
    /// - finds out why the kernel refused an unaligned operation.
    pub(super) fn finish(
        &mut self,
        again: impl Fn(OpId, Op) -> i32,
        registered: impl Fn(u32) -> Option<RawFd>,
    ) {
        let mut exact = self.exact.iter().copied().peekable();
        for (id, slot) in (0..).map(OpId).zip(&self.slots) {
            let first = slot.completion.result();
            let was_dropped = first == -libc::ECANCELED && self.cancelled.is_none();
            let result = if was_dropped { again(id, slot.op) } else { first };
            let wanted = exact.next_if(|&(exact, _)| exact == id).map(|(_, len)| len);
            if result >= 0 && wanted.is_none_or(|len| len == result as usize) {
                if result != first {
                    self.outcomes.push((id, Outcome::Result(result)));
                }
                continue;
            }
            let outcome = match wanted {
                // The batch has refused it.
                _ if matches!(slot.op, Op::Nop) => continue,
                Some(len) => complete(slot.op, result, len, &|op| again(id, op)),
                None if result == -libc::EAGAIN => {
                    Outcome::Result(match plain_call(&slot.op, &registered) {
                        // SAFETY: I1. The batch borrows what its ops point to until it has
                        // finished.
                        Some(plain) => unsafe { perform_on_pool(plain) },
                        None => result,
                    })
                }
                None => Outcome::Result(result),
            };
            match outcome {
                Outcome::Result(result) if result == -libc::EINVAL => {
                    let why = misalignment(&slot.op).map_or(outcome, Outcome::Misaligned);
                    self.outcomes.push((id, why));
                }
                Outcome::Result(result) if result == first => {}
                _ => self.outcomes.push((id, outcome)),
            }
        }
        // Each operation occurs at most once.
        self.outcomes.sort_unstable_by_key(|&(id, _)| id);
    }

    /// Returns the number of operations.
    ///
    /// ```
    /// use cringle::block::Batch;
    ///
    /// assert_eq!(Batch::new().submit().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there were no operations.
    ///
    /// ```
    /// use cringle::block::Batch;
    ///
    /// assert!(Batch::new().submit().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the result of one operation: the number of bytes, or its error.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::File};
    ///
    /// let file = File::open("/proc/self/exe")?;
    /// let mut magic = [0; 4];
    /// let mut batch = Batch::new();
    /// let read = batch.read(&file, &mut magic, 0);
    /// assert_eq!(batch.submit().get(read)?, 4);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The operation's error.
    ///
    /// # Panics
    ///
    /// If `id` belongs to a larger batch.
    #[inline]
    pub fn get(&self, id: OpId) -> io::Result<usize> {
        let slot = &self.slots[id.0 as usize];
        if !self.outcomes.is_empty()
            && let Ok(at) = self.outcomes.binary_search_by_key(&id, |&(id, _)| id)
        {
            return self.result_of(self.outcomes[at].1);
        }
        self.op_result(slot.completion.result())
    }

    #[inline]
    fn op_result(&self, result: i32) -> io::Result<usize> {
        if let Some(reason) = self.cancelled
            && result < 0
            && means_cancelled(result)
        {
            return Err(reason.error());
        }
        sys::result_of(result)
    }

    #[cold]
    fn result_of(&self, outcome: Outcome) -> io::Result<usize> {
        match outcome {
            Outcome::Count(count) => Ok(count),
            Outcome::Result(result) => self.op_result(result),
            Outcome::Errno(errno) => Err(io::Error::from_raw_os_error(errno)),
            Outcome::Misaligned(misaligned) => Err(misaligned.into_error()),
            Outcome::OtherRing => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the registered file or buffer belongs to another ring: register it on the worker \
                 that uses it",
            )),
            // std's own errors, which std makes without an allocation.
            Outcome::EndOfFile => io::empty().read_exact(&mut [0]).map(|()| 0),
            Outcome::WroteNothing => <&mut [u8]>::default().write_all(&[0]).map(|()| 0),
        }
    }

    /// Returns an iterator over the results, in the order of the operations.
    ///
    /// ```
    /// use cringle::block::Batch;
    ///
    /// assert!(Batch::new().submit().iter().all(|count| count.is_ok()));
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = io::Result<usize>> {
        (0..self.slots.len()).map(|index| self.get(OpId(index as u32)))
    }

    /// Returns an empty batch that reuses the memory of this one, and may borrow other buffers.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
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
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn recycle<'n>(self) -> Batch<'n> {
        Batch::reusing(self.slots, self.exact, self.outcomes, self.mapped)
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

/// An iterator over the results of a batch: see [`Results`]. It never waits.
///
/// ```
/// use cringle::block::Batch;
///
/// assert_eq!(Batch::new().submit().into_iter().len(), 0);
/// ```
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

/// Repeats the rest of an exact operation until all bytes are transferred.
fn complete(first: Op, result: i32, len: usize, again: &impl Fn(Op) -> i32) -> Outcome {
    let (mut op, mut done, mut result) = (first, 0, result);
    loop {
        if result == -libc::EAGAIN && is_regular(&op) {
            // SAFETY: I1. The batch borrows what its ops point to until it has finished.
            result = unsafe { perform_on_pool(op) };
        }
        match result {
            0 if len == done => return Outcome::Count(len),
            0 if matches!(op, Op::Read { .. }) => return Outcome::EndOfFile,
            0 => return Outcome::WroteNothing,
            count if count > 0 => done += count as usize,
            error if error == -libc::EINTR => {}
            error => return Outcome::Result(error),
        }
        if done >= len {
            return Outcome::Count(len);
        }
        op = rest_of(first, done, len - done);
        result = again(op);
    }
}

/// Returns the op without its first `done` bytes.
fn rest_of(op: Op, done: usize, left: usize) -> Op {
    match op.transfer() {
        Some(Transfer { way, file, memory: Memory::Bytes { start, .. }, offset, flags }) => {
            let (start, len) = (start.wrapping_add(done), left.min(MAX_RW_BYTES) as u32);
            let (memory, offset) = (Memory::Bytes { start, len }, offset + done as u64);
            Transfer { way, file, memory, offset, flags }.into_op()
        }
        _ => op,
    }
}

/// Returns the op on a plain descriptor and buffer, if the file is a regular one.
pub(super) fn plain_call(op: &Op, registered: &impl Fn(u32) -> Option<RawFd>) -> Option<Op> {
    let fd = |target: Target| registered(u32::try_from(target.number()).ok()?);
    let transfer = op.transfer()?;
    match op {
        Op::ReadFixed { .. } | Op::WriteFixed { .. } => {
            Some(Transfer { file: Target::fd(fd(transfer.file)?), ..transfer }.into_op())
        }
        op => is_regular(op).then_some(*op),
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

/// Finds the misalignment of a direct read or write that the kernel refused.
fn misalignment(op: &Op) -> Option<Misaligned> {
    let Transfer { file, memory: Memory::Bytes { start, len }, offset, .. } = op.transfer()? else {
        return None;
    };
    match file.as_fd() {
        Some(fd) => Misaligned::find(fd, start.addr(), len as usize, offset),
        None => Misaligned::find_registered(start.addr(), len as usize, offset),
    }
}
