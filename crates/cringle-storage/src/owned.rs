//! Batches that own their buffers, for callbacks and futures, which outlive the caller's borrows.

use super::{Batch, OpId};
use cringle_core::foreign;
use cringle_std::fs::File;
use cringle_sys::lock::Mutex;
use std::future::Future;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Reads and writes that own their buffers and share their files, for
/// [`BlockIo::submit_async`](super::BlockIo::submit_async) and
/// [`BlockIo::submit_then`](super::BlockIo::submit_then).
///
/// `B` is the type of the buffers: `Vec<u8>`, `Box<[u8]>`, [`AlignedBuf`](super::AlignedBuf). Files
/// are passed as [`SharedFile`]s.
///
/// ```
/// use cringle::{block::{BlockIo, OwnedBatch}, fs::File};
/// use std::sync::Arc;
/// # fn block_on<F: Future>(f: F) -> F::Output { cringle::run(|| cringle::fiber::block_on(f)) }
///
/// let file = Arc::new(File::open("/proc/self/exe")?);
/// let io = BlockIo::builder().build()?;
/// let mut batch = OwnedBatch::with_capacity(2);
/// for offset in [0, 4096] {
///     batch.read_exact(&file, vec![0; 16], offset);
/// }
/// let submission = io.submit_async(batch)?;
/// // In an async function: `submission.await`.
/// for (count, bytes) in block_on(submission) {
///     assert_eq!((count?, bytes.len()), (16, 16));
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is read or written until it is submitted"]
pub struct OwnedBatch<B> {
    ops: Vec<OwnedOp<B>>,
    /// Empty: the memory for the results.
    results: Vec<(io::Result<usize>, B)>,
}

// A batch whose caller has panicked holds operations that were not submitted, and nothing else.
impl<B: UnwindSafe> UnwindSafe for OwnedBatch<B> {}
impl<B: RefUnwindSafe> RefUnwindSafe for OwnedBatch<B> {}

#[derive(Debug)]
struct OwnedOp<B> {
    file: Arc<File>,
    buf: B,
    offset: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    ReadExact,
    Write,
    WriteAll,
}

/// A file that an [`OwnedBatch`] keeps open until its operations have ended: an `&Arc<File>` or
/// `Arc<File>`, which is counted, or a `File`, which is moved and closed after its operation.
///
/// A `&File` is none: a `File` owns its descriptor alone, since it can be closed or converted into
/// std's type, and a batch that outlives the borrow could not keep it open.
///
/// ```
/// use cringle::{block::OwnedBatch, fs::File};
/// use std::sync::Arc;
///
/// let mut batch = OwnedBatch::new();
/// batch.read(File::open("/proc/self/exe")?, vec![0; 4], 0);
///
/// let file = Arc::new(File::open("/proc/self/exe")?);
/// batch.read(&file, vec![0; 4], 0);
/// batch.read(file, vec![0; 4], 4);
/// # std::io::Result::Ok(())
/// ```
pub trait SharedFile: sealed::Sealed {}

impl SharedFile for File {}
impl SharedFile for Arc<File> {}
impl SharedFile for &Arc<File> {}

mod sealed {
    use cringle_std::fs::File;
    use std::sync::Arc;

    pub trait Sealed {
        fn into_shared(self) -> Arc<File>;
    }

    impl Sealed for File {
        fn into_shared(self) -> Arc<File> {
            Arc::new(self)
        }
    }

    impl Sealed for Arc<File> {
        fn into_shared(self) -> Arc<File> {
            self
        }
    }

    impl Sealed for &Arc<File> {
        fn into_shared(self) -> Arc<File> {
            Arc::clone(self)
        }
    }
}

default_by_new!(OwnedBatch<B>);

impl<B> OwnedBatch<B> {
    /// Returns an empty batch.
    ///
    /// ```
    /// let batch = cringle::block::OwnedBatch::<Vec<u8>>::new();
    /// assert!(batch.is_empty());
    /// ```
    pub fn new() -> OwnedBatch<B> {
        OwnedBatch::with_capacity(0)
    }

    /// Returns an empty batch with room for this number of operations.
    ///
    /// ```
    /// let batch = cringle::block::OwnedBatch::<Vec<u8>>::with_capacity(32);
    /// assert_eq!(batch.len(), 0);
    /// ```
    pub fn with_capacity(operations: usize) -> OwnedBatch<B> {
        OwnedBatch { ops: Vec::with_capacity(operations), results: Vec::with_capacity(operations) }
    }

    /// Returns the number of operations.
    ///
    /// ```
    /// use cringle::{block::OwnedBatch, fs::File};
    ///
    /// let mut batch = OwnedBatch::new();
    /// batch.read(File::open("/proc/self/exe")?, vec![0; 4], 0);
    /// assert_eq!(batch.len(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns whether the batch has no operations.
    ///
    /// ```
    /// assert!(cringle::block::OwnedBatch::<Vec<u8>>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds a read from `offset` (in bytes) into `buf`. Its result is the number of bytes, which is
    /// smaller than the buffer at the end of the file.
    ///
    /// ```
    /// use cringle::{block::OwnedBatch, fs::File};
    /// use std::sync::Arc;
    ///
    /// let file = Arc::new(File::open("/proc/self/exe")?);
    /// let mut batch = OwnedBatch::new();
    /// let id = batch.read(&file, vec![0; 4096], 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn read(&mut self, file: impl SharedFile, buf: B, offset: u64) -> OpId {
        self.push(file, buf, offset, Kind::Read)
    }

    /// Adds a read that fills `buf`. Its result is the length of `buf`, or `UnexpectedEof` if the
    /// file ends before.
    ///
    /// ```
    /// use cringle::{block::OwnedBatch, fs::File};
    /// use std::sync::Arc;
    ///
    /// let file = Arc::new(File::open("/proc/self/exe")?);
    /// let mut batch = OwnedBatch::new();
    /// let id = batch.read_exact(&file, vec![0; 4096], 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn read_exact(&mut self, file: impl SharedFile, buf: B, offset: u64) -> OpId {
        self.push(file, buf, offset, Kind::ReadExact)
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
    /// # std::io::Result::Ok(())
    /// ```
    pub fn write(&mut self, file: impl SharedFile, buf: B, offset: u64) -> OpId {
        self.push(file, buf, offset, Kind::Write)
    }

    /// Adds a write of all of `buf`. Its result is the length of `buf`.
    ///
    /// ```
    /// use cringle::{block::OwnedBatch, fs::File};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// let mut batch = OwnedBatch::new();
    /// let id = batch.write_all(File::create(&path)?, vec![7; 4096], 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn write_all(&mut self, file: impl SharedFile, buf: B, offset: u64) -> OpId {
        self.push(file, buf, offset, Kind::WriteAll)
    }

    fn push(&mut self, file: impl SharedFile, buf: B, offset: u64, kind: Kind) -> OpId {
        let id = OpId(u32::try_from(self.ops.len()).expect("fewer than 2³² operations"));
        self.ops.push(OwnedOp { file: file.into_shared(), buf, offset, kind });
        id
    }
}

impl<B: AsMut<[u8]>> OwnedBatch<B> {
    /// Performs the batch on the calling fiber.
    pub(super) fn perform(mut self) -> OwnedResults<B> {
        let mut batch = Batch::with_capacity(self.ops.len());
        for OwnedOp { file, buf, offset, kind } in &mut self.ops {
            match kind {
                Kind::Read => batch.read(file, buf.as_mut(), *offset),
                Kind::ReadExact => batch.read_exact(file, buf.as_mut(), *offset),
                Kind::Write => batch.write(file, buf.as_mut(), *offset),
                Kind::WriteAll => batch.write_all(file, buf.as_mut(), *offset),
            };
        }
        let results = batch.submit();
        let OwnedBatch { mut ops, results: mut ended } = self;
        ended.extend(results.into_iter().zip(ops.drain(..).map(|op| op.buf)));
        OwnedResults { results: ended, spare: ops }
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
    /// Empty: the memory of the batch, which `recycle` reuses.
    spare: Vec<OwnedOp<B>>,
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

    /// Takes all results and buffers out, in the order of the operations. Afterwards the results
    /// are empty, and can be [recycled](Self::recycle).
    ///
    /// ```
    /// use cringle::block::OwnedResults;
    ///
    /// fn buffers(results: &mut OwnedResults<Vec<u8>>) -> Vec<Vec<u8>> {
    ///     results.drain().map(|(_count, buf)| buf).collect()
    /// }
    /// ```
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = (io::Result<usize>, B)> {
        self.results.drain(..)
    }

    /// Returns an empty batch that reuses the memory of this one. Drops the buffers that were not
    /// [taken out](Self::drain).
    ///
    /// ```
    /// use cringle::{block::{BlockIo, OwnedBatch}, fs::File};
    /// use std::sync::Arc;
    /// # fn block_on<F: Future>(f: F) -> F::Output { cringle::run(|| cringle::fiber::block_on(f)) }
    ///
    /// let file = Arc::new(File::open("/proc/self/exe")?);
    /// let io = BlockIo::builder().build()?;
    /// let (mut batch, mut buf) = (OwnedBatch::new(), vec![0; 16]);
    /// for round in 0..3 {
    ///     batch.read_exact(&file, buf, round * 16);
    ///     let mut results = block_on(io.submit_async(batch)?);
    ///     buf = results.drain().next().expect("one operation").1;
    ///     batch = results.recycle();
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recycle(self) -> OwnedBatch<B> {
        let OwnedResults { mut results, spare } = self;
        results.clear();
        OwnedBatch { ops: spare, results }
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
/// # std::io::Result::Ok(())
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
