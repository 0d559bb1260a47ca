//! Batches that own their buffers, for callbacks and futures, which outlive the caller's borrows.

use super::{Batch, OpId};
use crate::fs::File;
use crate::runtime::foreign;
use crate::sys::lock::Mutex;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Reads and writes that own their buffers and share their files, for
/// [`BlockIo::submit_async`](super::BlockIo::submit_async) and
/// [`BlockIo::submit_then`](super::BlockIo::submit_then).
///
/// `B` is the type of the buffers: `Vec<u8>`, `Box<[u8]>`, [`AlignedBuf`](super::AlignedBuf).
///
/// ```
/// use cringle::{block::OwnedBatch, fs::File};
/// use std::sync::Arc;
///
/// let file = Arc::new(File::open("/proc/self/exe")?);
/// let mut batch = OwnedBatch::new();
/// batch.read(&file, vec![0; 4096], 0);
/// # Ok::<(), std::io::Error>(())
/// ```
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
    /// Returns an empty batch.
    ///
    /// ```
    /// let batch = cringle::block::OwnedBatch::<Vec<u8>>::new();
    /// ```
    pub fn new() -> OwnedBatch<B> {
        OwnedBatch { ops: Vec::new() }
    }

    /// Adds a read from `offset` (in bytes) into `buf`. Its result is the number of bytes.
    ///
    /// ```
    /// use cringle::{block::OwnedBatch, fs::File};
    /// use std::sync::Arc;
    ///
    /// let file = Arc::new(File::open("/proc/self/exe")?);
    /// let mut batch = OwnedBatch::new();
    /// let id = batch.read(&file, vec![0; 4096], 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read(&mut self, file: &Arc<File>, buf: B, offset: u64) -> OpId {
        self.push(file, buf, offset, false)
    }

    /// Adds a write of `buf` at `offset` (in bytes). Its result is the number of bytes.
    ///
    /// ```
    /// use cringle::{block::OwnedBatch, fs::File};
    /// use std::sync::Arc;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// let file = Arc::new(File::create(&path)?);
    /// let mut batch = OwnedBatch::new();
    /// let id = batch.write(&file, vec![7; 4096], 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    /// Performs the batch on the calling fiber.
    pub(super) fn perform(mut self) -> OwnedResults<B> {
        let mut batch = Batch::with_capacity(self.ops.len());
        for op in &mut self.ops {
            if op.writes {
                batch.write(&op.file, op.buf.as_mut(), op.offset);
            } else {
                batch.read(&op.file, op.buf.as_mut(), op.offset);
            }
        }
        let results: Vec<io::Result<usize>> = batch.submit().into_iter().collect();
        let bufs = self.ops.into_iter().map(|op| op.buf);
        OwnedResults { results: results.into_iter().zip(bufs).collect() }
    }
}

/// The results of an [`OwnedBatch`]: the result and the buffer of each operation, in order.
///
/// ```
/// use cringle::block::OwnedResults;
///
/// fn total(results: &OwnedResults<Vec<u8>>) -> usize {
///     results.iter().filter_map(|(count, _buf)| count.as_ref().ok()).sum()
/// }
/// ```
#[derive(Debug)]
pub struct OwnedResults<B> {
    results: Vec<(io::Result<usize>, B)>,
}

impl<B> OwnedResults<B> {
    /// Returns the result and the buffer of one operation.
    ///
    /// ```
    /// use cringle::block::{OpId, OwnedResults};
    ///
    /// fn magic(results: &OwnedResults<Vec<u8>>, id: OpId) -> &[u8] {
    ///     &results.get(id).1[..4]
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// If `id` belongs to a larger batch.
    pub fn get(&self, id: OpId) -> &(io::Result<usize>, B) {
        &self.results[id.0 as usize]
    }

    /// Returns the number of operations.
    ///
    /// ```
    /// use cringle::block::OwnedResults;
    ///
    /// fn all_ok(results: &OwnedResults<Vec<u8>>) -> bool {
    ///     results.iter().all(|(count, _)| count.is_ok()) && results.len() > 0
    /// }
    /// ```
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Returns whether there were no operations.
    ///
    /// ```
    /// use cringle::block::OwnedResults;
    ///
    /// fn check(results: &OwnedResults<Vec<u8>>) {
    ///     assert!(!results.is_empty());
    /// }
    /// ```
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Returns an iterator over the results and buffers, in the order of the operations.
    ///
    /// ```
    /// use cringle::block::OwnedResults;
    ///
    /// fn failed(results: &OwnedResults<Vec<u8>>) -> usize {
    ///     results.iter().filter(|(count, _)| count.is_err()).count()
    /// }
    /// ```
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

/// A future of the results of a submitted [`OwnedBatch`], for any executor.
///
/// ```
/// use cringle::block::{BlockIo, OwnedBatch, Submission};
///
/// let io = BlockIo::builder().build()?;
/// let submission: Submission<Vec<u8>> = io.submit_async(OwnedBatch::new())?;
/// # drop(submission);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a future does nothing but hold the results"]
pub struct Submission<B> {
    state: Arc<Mutex<SubmissionState<B>>>,
}

#[derive(Debug)]
enum SubmissionState<B> {
    Waiting(Option<Waker>),
    Done(Option<OwnedResults<B>>),
    /// The batch has no results, because the `as_mut` of a buffer panicked.
    Lost,
}

/// The end of a [`Submission`] that completes it.
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
        let mut state = self.state.lock();
        if let SubmissionState::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = with;
            drop(state);
            // A panic of the executor's waker does not affect the batch (I13).
            if let Some(waker) = waker
                && let Err(payload) = foreign::call(|| waker.wake())
            {
                foreign::discard(payload);
            }
        }
    }
}

impl<B> Drop for Completer<B> {
    /// Completes the future if no results were produced, so that it does not wait for ever.
    fn drop(&mut self) {
        self.end(SubmissionState::Lost);
    }
}

impl<B> Future for Submission<B> {
    type Output = OwnedResults<B>;

    /// # Panics
    ///
    /// If it has returned its results before, or if the `as_mut` of a buffer panicked.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<OwnedResults<B>> {
        // The waker of the last poll is woken. It is the caller's code, so its clone and drop run
        // outside of the lock.
        let waker = context.waker().clone();
        let mut state = self.state.lock();
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
