//! Batches for programs that are not fibers.
//!
//! A `BlockIo` is a runtime on threads of its own. A submitted batch becomes a fiber of one of its
//! workers, which performs it there; the submitter waits, or receives the results by a callback or
//! a future. So the rules of batches, and their invariants, are the same for fibers and threads.

use super::admission::Admission;
use super::owned::{OwnedBatch, OwnedResults, Submission};
use super::{Batch, BlockIoBuilder, Results};
use cringle_core::family::FamilyChoice;
use cringle_core::fiber::body::run_root_body;
use cringle_core::foreign;
use cringle_core::shared::{Body, Shared, Unstarted};
use cringle_core::stack::default_stack_bytes;
use cringle_core::unwinding;
use cringle_core::waiting_runtime::WaitingRuntime;
use cringle_core::worker::Worker;
use cringle_driver::pool::Job;
use cringle_run::diagnostics::{Stats, stats_of};
use cringle_run::run::Builder;
use cringle_std::internal::call_by;
use cringle_sys::lock::Mutex;
use cringle_sys::{self as sys, plainly};
use std::cell::Cell;
use std::io;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// An engine that performs batches for any thread, on its own workers and rings.
///
/// ```
/// use cringle::{block::{Batch, BlockIo}, fs::File};
///
/// let io = BlockIo::builder().batch_limit(32).in_flight_limit(64).build()?;
/// let file = File::open("/proc/self/exe")?;
/// let mut magic = [0; 4];
/// let mut batch = Batch::new();
/// batch.read(&file, &mut magic, 0);
/// for count in io.submit(batch)? {
///     assert_eq!(count?, 4);
/// }
/// assert_eq!(&magic, b"\x7fELF");
/// io.close()?;
/// # std::io::Result::Ok(())
/// ```
///
/// Dropping it closes it, and waits for the operations in flight.
pub struct BlockIo {
    shared: Arc<Shared>,
    admission: Arc<Admission>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    workers: usize,
    next: AtomicUsize,
}

thread_local! {
    /// The worker for this thread's batches: a number modulo the number of workers.
    static LANE: Cell<Option<usize>> = const { Cell::new(None) };
}

impl BlockIo {
    /// Returns a builder with the defaults: one worker, a batch limit of 64, and a limit of 192
    /// operations in flight.
    ///
    /// ```
    /// cringle::block::BlockIo::builder().build()?.close()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn builder() -> BlockIoBuilder {
        BlockIoBuilder::new()
    }

    /// Starts the workers, and returns when all of them run.
    pub(super) fn start_workers(runtime: Builder, workers: usize) -> io::Result<BlockIo> {
        let (sender, receiver) = mpsc::channel();
        let admission = Arc::new(Admission::default());
        let thread_admission = Arc::clone(&admission);
        let thread = sys::library_thread("cringle-block".into());
        let thread = plainly(|| {
            thread.spawn(move || {
                let failed = sender.clone();
                let ran = runtime.run(move || {
                    let worker = Worker::here().expect("inside of run");
                    drop(plainly(|| sender.send(Ok(Arc::clone(worker.shared())))));
                    // This fiber waits for the end, while the submitters' fibers run.
                    let waker = cringle_std::fiber::current();
                    thread_admission.on_closed(move || waker.unpark());
                    while !thread_admission.is_drained() {
                        cringle_std::fiber::park();
                    }
                });
                if let Err(e) = ran {
                    drop(failed.send(Err(e)));
                }
            })
        });
        let thread = thread.map_err(|e| sys::cannot_start("a worker thread", &e))?;
        let shared = cringle_std::fiber::unblock(move || receiver.recv());
        let shared = shared.expect("the thread reports how its start went")?;
        let next = AtomicUsize::new(0);
        Ok(BlockIo { shared, admission, thread: Mutex::new(Some(thread)), workers, next })
    }

    /// Performs a batch and returns when every operation has ended. It blocks the calling thread;
    /// on a fiber it suspends only the fiber. Any number of threads and fibers may submit at once.
    ///
    /// ```
    /// use cringle::{block::{Batch, BlockIo}, fs::File};
    ///
    /// let io = BlockIo::builder().build()?;
    /// let file = File::open("/proc/self/exe")?;
    /// let mut magic = [0; 4];
    /// let mut batch = Batch::new();
    /// batch.read(&file, &mut magic, 0);
    /// assert_eq!(io.submit(batch)?.len(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotConnected` if the `BlockIo` is closed. The operations' own errors are in the results:
    /// bare ones, also of durable writes after a failure
    /// ([`WriteFlags::DSYNC`](cringle_std::fs::WriteFlags::DSYNC)).
    ///
    /// # Cancellation
    ///
    /// A cancel does not end the wait: the fiber waits for its batch.
    pub fn submit(&self, batch: Batch<'_>) -> io::Result<Results> {
        self.call(move || batch.submit())
    }

    /// Runs a closure on a fiber of a worker and returns its result. It blocks the calling thread;
    /// on a fiber it suspends only the fiber. For calls that a batch does not have, and for several
    /// steps with one wait: a batch and the sync after it.
    ///
    /// ```
    /// use cringle::{block::{Batch, BlockIo}, fs::File};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// let io = BlockIo::builder().build()?;
    /// let file = File::create(&path)?;
    /// io.call(|| {
    ///     let mut batch = Batch::new();
    ///     batch.write_all(&file, b"rope", 0);
    ///     batch.submit().into_iter().collect::<Result<Vec<_>, _>>()?;
    ///     file.sync_data()
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotConnected` if the `BlockIo` is closed; then `f` is not called.
    ///
    /// # Panics
    ///
    /// If `f` panics, with its payload.
    ///
    /// # Cancellation
    ///
    /// A cancel does not end the wait: the caller waits for `f`.
    #[track_caller]
    pub fn call<F, T>(&self, f: F) -> io::Result<T>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let pass = self.admission.enter()?;
        let origin = Location::caller();
        let start = |job: Job| {
            self.start(Box::new(move || {
                // The job passes a panic of the closure on to the caller.
                let mut job = Some(job);
                let ended = run_root_body("cringle-block-call", origin, &mut || {
                    if let Some(job) = job.take() {
                        job();
                    }
                });
                debug_assert!(ended.is_ok());
            }));
        };
        let result = call_by(start, None, f);
        drop(pass);
        Ok(result)
    }

    /// Submits a batch that owns its buffers, and returns a future of its results, which any
    /// executor can poll. Dropping the future discards only the results: the operations are
    /// performed.
    ///
    /// ```
    /// use cringle::{block::{AlignedBuf, BlockIo, OwnedBatch}, fs::File};
    /// use std::sync::Arc;
    ///
    /// let io = BlockIo::builder().build()?;
    /// let file = Arc::new(File::open("/proc/self/exe")?);
    /// let mut batch = OwnedBatch::new();
    /// batch.read(&file, AlignedBuf::new(4096), 0);
    /// let submission = io.submit_async(batch)?;
    /// // In an async function: `for (count, page) in submission.await { … }`
    /// # drop(submission);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotConnected` if the `BlockIo` is closed.
    pub fn submit_async<B>(&self, batch: OwnedBatch<B>) -> io::Result<Submission<B>>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        let (submission, completer) = Submission::new();
        self.submit_then(batch, move |results| completer.complete(results))?;
        Ok(submission)
    }

    /// Submits a batch that owns its buffers, and calls `then` with its results, on a fiber of the
    /// worker. A panic of `then` is reported by the panic hook and goes no further.
    ///
    /// ```
    /// use cringle::{block::{BlockIo, OwnedBatch}, fs::File};
    /// use std::sync::{Arc, mpsc};
    ///
    /// let io = BlockIo::builder().build()?;
    /// let file = Arc::new(File::open("/proc/self/exe")?);
    /// let mut batch = OwnedBatch::new();
    /// batch.read(&file, vec![0; 4], 0);
    /// let (sender, receiver) = mpsc::channel();
    /// io.submit_then(batch, move |results| sender.send(results).unwrap())?;
    /// for (count, magic) in receiver.recv().unwrap() {
    ///     assert_eq!((count?, &*magic), (4, &b"\x7fELF"[..]));
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotConnected` if the `BlockIo` is closed; then `then` is not called.
    #[track_caller]
    pub fn submit_then<B, F>(&self, batch: OwnedBatch<B>, then: F) -> io::Result<()>
    where
        B: AsMut<[u8]> + Send + 'static,
        F: FnOnce(OwnedResults<B>) + Send + 'static,
    {
        self.spawn(move || then(batch.perform()))
    }

    /// Runs a closure on a fiber of a worker, and does not wait for it. A panic of the closure is
    /// reported by the panic hook and goes no further.
    ///
    /// ```
    /// use cringle::{block::BlockIo, fs};
    /// use std::sync::mpsc;
    ///
    /// let io = BlockIo::builder().build()?;
    /// let (sender, receiver) = mpsc::channel();
    /// io.spawn(move || sender.send(fs::read("/proc/version")).unwrap())?;
    /// assert!(receiver.recv().unwrap()?.starts_with(b"Linux"));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotConnected` if the `BlockIo` is closed; then `f` is not called.
    #[track_caller]
    pub fn spawn<F>(&self, f: F) -> io::Result<()>
    where
        F: FnOnce() + Send + 'static,
    {
        let pass = self.admission.enter_owned()?;
        let origin = Location::caller();
        self.start(Box::new(move || {
            let pass = pass;
            // The hook reports a panic of the closure, and the payload is discarded.
            let mut f = Some(f);
            let ended = run_root_body("cringle-block-callback", origin, &mut || {
                if let Some(Err(payload)) = f.take().map(unwinding::catch) {
                    foreign::discard(payload);
                }
            });
            debug_assert!(ended.is_ok());
            drop(pass);
        }));
        Ok(())
    }

    /// Returns the counters of the workers. Any thread may read them at any time, also after the
    /// close: no fiber runs for it, and the caller does not wait.
    ///
    /// ```
    /// use cringle::block::{Batch, BlockIo};
    ///
    /// let io = BlockIo::builder().build()?;
    /// io.submit(Batch::new())?;
    /// assert!(io.stats().total().started > 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stats(&self) -> Stats {
        stats_of(&self.shared)
    }

    /// Refuses further batches, waits for the batches in flight, and ends the workers. A second
    /// call does nothing.
    ///
    /// ```
    /// use cringle::block::{Batch, BlockIo};
    ///
    /// let io = BlockIo::builder().build()?;
    /// io.close()?;
    /// let error = io.submit(Batch::new()).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Deadlock` if it is called from one of its own callbacks, or from a closure that the
    /// callback passed to [`unblock`](cringle_std::fiber::unblock()), because it would wait for the
    /// callback. If another thread calls it while the callback waits for that thread, it never
    /// returns.
    pub fn close(&self) -> io::Result<()> {
        if WaitingRuntime::is_waiting(&self.shared) {
            let text =
                "a BlockIo cannot be closed from its own callback: closing waits for the callback";
            return Err(io::Error::new(io::ErrorKind::Deadlock, text));
        }
        self.admission.close();
        cringle_std::fiber::unblock(|| {
            let mut thread = self.thread.lock();
            if let Some(Err(payload)) = thread.take().map(std::thread::JoinHandle::join) {
                unwinding::resume(payload);
            }
        });
        Ok(())
    }

    /// Runs the job on a new fiber of the worker that serves this thread.
    fn start(&self, job: Box<dyn FnOnce() + Send>) {
        let lane = LANE.get().unwrap_or_else(|| {
            let lane = self.next.fetch_add(1, Ordering::Relaxed);
            LANE.set(Some(lane));
            lane
        });
        let lane = cringle_core::here::worker().unwrap_or(lane) % self.workers;
        let body = Box::new(BatchJob(job));
        let unstarted = Unstarted {
            body,
            stack_bytes: default_stack_bytes(),
            origin: 0,
            is_placed: true,
            family: FamilyChoice::Own,
        };
        if self.shared.start_from_outside(lane, unstarted).is_err() {
            unreachable!("the workers run while a submitter holds a pass");
        }
    }
}

/// The job of a submitted batch. It runs even if no stack can be allocated, because its submitter
/// waits for it: the worker's reserve is a stack of the default size.
struct BatchJob(Box<dyn FnOnce() + Send>);

impl Body for BatchJob {
    fn run(self: Box<Self>) {
        (self.0)();
    }

    fn fail(self: Box<Self>, _: io::Error) {
        self.run();
    }
}

impl Drop for BlockIo {
    fn drop(&mut self) {
        // Closed already. A fiber that drops it then does not suspend.
        if self.thread.lock().is_none() {
            return;
        }
        if self.close().is_err() {
            // Dropped by its own callback: the workers end when the callback returns.
            self.admission.close();
        }
    }
}

brief_debug!(BlockIo, |it| workers: it.workers);
