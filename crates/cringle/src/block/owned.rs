//! Batches that own their buffers: for callbacks and futures, which cannot wait for a borrow's end.

use super::{Batch, OpId};
use crate::fs::File;
use crate::runtime::foreign;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Reads and writes that own their buffers and share their files, for
/// [`BlockIo::submit_async`](super::BlockIo::submit_async).
///
/// `B` is the kind of buffer: `Vec<u8>`, `Box<[u8]>`, [`AlignedBuf`](super::AlignedBuf).
#[derive(Debug)]
pub struct OwnedBatch<B> {
    ops: Vec<OwnedOp<B>>,
}

#[derive(Debug)]
struct OwnedOp<B> {
    file: Arc<File>,
    buf: B,
    offset: u64,
    writes: bool,
}

impl<B> Default for OwnedBatch<B> {
    fn default() -> Self {
        OwnedBatch::new()
    }
}

impl<B> OwnedBatch<B> {
    /// An empty batch.
    pub fn new() -> OwnedBatch<B> {
        OwnedBatch { ops: Vec::new() }
    }

    /// Reads from `offset` (in bytes) into the whole of `buf`.
    pub fn read(&mut self, file: &Arc<File>, buf: B, offset: u64) -> OpId {
        self.push(file, buf, offset, false)
    }

    /// Writes the whole of `buf` at `offset` (in bytes).
    pub fn write(&mut self, file: &Arc<File>, buf: B, offset: u64) -> OpId {
        self.push(file, buf, offset, true)
    }

    fn push(&mut self, file: &Arc<File>, buf: B, offset: u64, writes: bool) -> OpId {
        let id = OpId(u32::try_from(self.ops.len()).expect("fewer than 2³² operations"));
        self.ops.push(OwnedOp { file: Arc::clone(file), buf, offset, writes });
        id
    }
}

impl<B: AsMut<[u8]>> OwnedBatch<B> {
    /// Performs it on the calling fiber.
    pub(super) fn perform(mut self) -> OwnedResults<B> {
        let mut batch = Batch::with_capacity(self.ops.len());
        for op in &mut self.ops {
            match op.writes {
                true => batch.write(&op.file, op.buf.as_mut(), op.offset),
                false => batch.read(&op.file, op.buf.as_mut(), op.offset),
            };
        }
        let results: Vec<io::Result<usize>> = batch.submit().into_iter().collect();
        let bufs = self.ops.into_iter().map(|op| op.buf);
        OwnedResults { results: results.into_iter().zip(bufs).collect() }
    }
}

/// What came of an [`OwnedBatch`]: for each operation, in order, its result and its buffer.
#[derive(Debug)]
pub struct OwnedResults<B> {
    results: Vec<(io::Result<usize>, B)>,
}

impl<B> OwnedResults<B> {
    /// The result and the buffer of one operation.
    ///
    /// # Panics
    ///
    /// If the batch had no such operation.
    pub fn get(&self, id: OpId) -> &(io::Result<usize>, B) {
        &self.results[id.0 as usize]
    }

    /// How many operations there were.
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// The results and buffers in the order of the operations.
    pub fn iter(&self) -> std::slice::Iter<'_, (io::Result<usize>, B)> {
        self.results.iter()
    }
}

impl<'a, B> IntoIterator for &'a OwnedResults<B> {
    type Item = &'a (io::Result<usize>, B);
    type IntoIter = std::slice::Iter<'a, (io::Result<usize>, B)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<B> IntoIterator for OwnedResults<B> {
    type Item = (io::Result<usize>, B);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.results.into_iter()
    }
}

/// A submitted [`OwnedBatch`]: a future of its results, for any executor.
#[derive(Debug)]
#[must_use = "a future does nothing but hold the results"]
pub struct Submission<B> {
    state: Arc<Mutex<SubmissionState<B>>>,
}

#[derive(Debug)]
enum SubmissionState<B> {
    Waiting(Option<Waker>),
    Done(Option<OwnedResults<B>>),
    /// The batch was lost on its way: a buffer's `as_mut` panicked.
    Lost,
}

/// The other end of a [`Submission`].
pub(super) struct Completer<B> {
    state: Arc<Mutex<SubmissionState<B>>>,
}

impl<B> Submission<B> {
    pub(super) fn new() -> (Submission<B>, Completer<B>) {
        let state = Arc::new(Mutex::new(SubmissionState::Waiting(None)));
        (Submission { state: Arc::clone(&state) }, Completer { state })
    }
}

impl<B> Completer<B> {
    pub(super) fn complete(self, results: OwnedResults<B>) {
        self.end(SubmissionState::Done(Some(results)));
    }

    fn end(&self, with: SubmissionState<B>) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        if let SubmissionState::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = with;
            drop(state);
            // The batch ends as it would, whatever the executor's waker does.
            if let Some(waker) = waker
                && let Err(payload) = foreign::call(|| waker.wake())
            {
                foreign::discard(payload);
            }
        }
    }
}

impl<B> Drop for Completer<B> {
    /// A future whose batch was lost must not wait for ever.
    fn drop(&mut self) {
        self.end(SubmissionState::Lost);
    }
}

impl<B> Future for Submission<B> {
    type Output = OwnedResults<B>;

    /// # Panics
    ///
    /// If it was ready before; if a buffer's `as_mut` panicked.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<OwnedResults<B>> {
        // The waker of the last poll is the one to wake. It is the caller's code: none of it runs
        // under the lock.
        let waker = context.waker().clone();
        let mut state = self.state.lock().expect("no code panics under this lock");
        let before = match &mut *state {
            SubmissionState::Waiting(before) => before.replace(waker),
            SubmissionState::Done(results) => {
                let results = results.take();
                drop(state);
                return Poll::Ready(results.expect("polled after it was done"));
            }
            SubmissionState::Lost => {
                drop(state);
                panic!("the batch was lost: a buffer's `as_mut` panicked");
            }
        };
        drop(state);
        drop(before);
        Poll::Pending
    }
}
