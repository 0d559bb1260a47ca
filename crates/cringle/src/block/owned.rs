//! Batches that own their buffers: for callbacks and futures, which cannot wait for a borrow's end.

use super::{Batch, OpId};
use crate::fs::File;
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
    state: Arc<Mutex<State<B>>>,
}

#[derive(Debug)]
enum State<B> {
    Waiting(Option<Waker>),
    Done(Option<OwnedResults<B>>),
}

/// The other end of a [`Submission`].
pub(super) struct Completer<B> {
    state: Arc<Mutex<State<B>>>,
}

impl<B> Submission<B> {
    pub(super) fn new() -> (Submission<B>, Completer<B>) {
        let state = Arc::new(Mutex::new(State::Waiting(None)));
        (Submission { state: Arc::clone(&state) }, Completer { state })
    }
}

impl<B> Completer<B> {
    pub(super) fn complete(self, results: OwnedResults<B>) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        let before = std::mem::replace(&mut *state, State::Done(Some(results)));
        drop(state);
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<B> Future for Submission<B> {
    type Output = OwnedResults<B>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<OwnedResults<B>> {
        let mut state = self.state.lock().expect("no code panics under this lock");
        match &mut *state {
            State::Done(results) => Poll::Ready(results.take().expect("polled after it was done")),
            State::Waiting(waker) => {
                // The waker of the last poll is the one to wake.
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
