//! Batches for programs that are not fibers.
//!
//! A `BlockIo` is a runtime on threads of its own. A submitted batch becomes a fiber of one of its
//! workers, which performs it there; the submitter waits, or receives the results by a callback or
//! a future. So the rules of batches, and their invariants, are the same for fibers and threads.

use super::owned::{OwnedBatch, OwnedResults, Submission};
use super::{Batch, Results};
use crate::fiber::unblock::call_by;
use crate::runtime::family::FamilyChoice;
use crate::runtime::fiber::body::run_root_body;
use crate::runtime::foreign;
use crate::runtime::run::Builder;
use crate::runtime::shared::{Body, Shared, Unstarted};
use crate::runtime::stack::default_stack_bytes;
use crate::runtime::unwinding;
use crate::runtime::waiting_runtime::WaitingRuntime;
use crate::runtime::worker::Worker;
use crate::sys::lock::{Mutex, MutexGuard};
use crate::sys::plainly;
use std::cell::Cell;
use std::io;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// Options of a [`BlockIo`]: see [`BlockIo::builder`].
///
/// ```
/// use cringle::block::BlockIo;
///
/// let io = BlockIo::builder().workers(2).batch_limit(16).in_flight_limit(64).build()?;
/// io.close()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is started until `build` is called"]
pub struct BlockIoBuilder {
    runtime: Builder,
    workers: usize,
    batch_limit: u32,
    in_flight_limit: u32,
}

impl BlockIoBuilder {
    /// Sets the number of workers, each with a ring. The default is 1. The limits apply to each
    /// worker.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().workers(2);
    /// ```
    pub fn workers(mut self, workers: usize) -> BlockIoBuilder {
        self.workers = workers;
        self
    }

    /// Sets the number of operations submitted by one system call. The default is 64. A larger
    /// batch is split, and its parts are pipelined.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().batch_limit(32);
    /// ```
    pub fn batch_limit(mut self, operations: u32) -> BlockIoBuilder {
        self.batch_limit = operations;
        self
    }

    /// Sets the number of operations in the kernel at once. The default is 192. Beyond it,
    /// submitters wait.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().in_flight_limit(128);
    /// ```
    pub fn in_flight_limit(mut self, operations: u32) -> BlockIoBuilder {
        self.in_flight_limit = operations;
        self
    }

    /// Sets whether each worker is pinned to a CPU. The default is `false`.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().pin(true);
    /// ```
    pub fn pin(mut self, pin: bool) -> BlockIoBuilder {
        self.runtime = self.runtime.pin(pin);
        self
    }

    /// Sets whether the workers poll the device for the completions of direct reads and writes
    /// (`IORING_SETUP_IOPOLL`) instead of waiting for interrupts. The default is `false`. Polling
    /// shortens each operation, and keeps one CPU per worker busy while operations are in flight.
    ///
    /// It applies to files opened with `O_DIRECT` on a device with polled queues
    /// ([`Polling::of`](super::Polling::of) reports whether); other files are not affected. A
    /// polled operation cannot be cancelled: a cancel waits for the device.
    ///
    /// ```
    /// let builder = cringle::block::BlockIo::builder().iopoll(true);
    /// ```
    pub fn iopoll(mut self, poll: bool) -> BlockIoBuilder {
        self.runtime = self.runtime.iopoll(poll);
        self
    }

    /// Starts the workers.
    ///
    /// ```
    /// use cringle::block::BlockIo;
    ///
    /// let error = BlockIo::builder().batch_limit(0).build().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless 0 < `batch_limit` < 2¹⁵ and `batch_limit` ≤ `in_flight_limit` < 2¹⁶;
    /// `Unsupported` in a simulation; otherwise as [`Builder::run`].
    pub fn build(self) -> io::Result<BlockIo> {
        self.validate()?;
        if Worker::here().is_some_and(|worker| worker.is_simulated()) {
            let text = "a BlockIo has its own threads and rings, which a simulation cannot contain: \
                        call Batch::submit on the fiber";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let runtime = self
            .runtime
            .workers(self.workers)
            .ring_entries(self.batch_limit)
            .in_flight_limit(self.in_flight_limit);
        let (sender, receiver) = mpsc::channel();
        let admission = Arc::new(Admission::default());
        let thread_admission = Arc::clone(&admission);
        let thread = std::thread::Builder::new().name("cringle-block".into());
        let thread = plainly(|| {
            thread.spawn(move || {
                let failed = sender.clone();
                let ran = runtime.run(move || {
                    let worker = Worker::here().expect("inside of run");
                    drop(plainly(|| sender.send(Ok(Arc::clone(worker.shared())))));
                    // This fiber waits for the end, while the submitters' fibers run.
                    let waker = crate::fiber::current();
                    thread_admission.on_closed(move || waker.unpark());
                    while !thread_admission.is_drained() {
                        crate::fiber::park();
                    }
                });
                if let Err(e) = ran {
                    drop(failed.send(Err(e)));
                }
            })
        })?;
        let shared = crate::fiber::unblock(move || receiver.recv());
        let shared = shared.expect("the thread reports how its start went")?;
        let next = AtomicUsize::new(0);
        Ok(BlockIo {
            shared,
            admission,
            thread: Mutex::new(Some(thread)),
            workers: self.workers,
            next,
        })
    }

    fn validate(&self) -> io::Result<()> {
        let (batch, in_flight) = (self.batch_limit, self.in_flight_limit);
        let what = if batch == 0 || batch >= 1 << 15 {
            format!("batch_limit is {batch}, and must be at least 1 and less than 32768")
        } else if in_flight < batch || in_flight >= 1 << 16 {
            format!(
                "in_flight_limit is {in_flight}, and must be at least batch_limit ({batch}) and \
                 less than 65536"
            )
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("BlockIo cannot start: {what}")))
    }
}

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
/// # Ok::<(), std::io::Error>(())
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
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> BlockIoBuilder {
        let (workers, batch_limit, in_flight_limit) = (1, 64, 192);
        BlockIoBuilder {
            runtime: Builder::new().open_to_outside(),
            workers,
            batch_limit,
            in_flight_limit,
        }
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
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotConnected` if the `BlockIo` is closed. The operations' own errors are in the results.
    ///
    /// # Cancellation
    ///
    /// A cancel does not end the wait: the fiber waits for its batch.
    pub fn submit(&self, batch: Batch<'_>) -> io::Result<Results> {
        let pass = self.admission.enter()?;
        let send = |job| self.start(job);
        let results = call_by(send, None, move || batch.submit());
        drop(pass);
        Ok(results)
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
    /// # Ok::<(), std::io::Error>(())
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
    /// # Ok::<(), std::io::Error>(())
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
        let pass = self.admission.enter_owned()?;
        let origin = Location::caller();
        self.start(Box::new(move || {
            let pass = pass;
            // The hook reports a panic of the callback, and the payload is discarded.
            let ended = run_root_body("cringle-block-callback", origin, || {
                let called = unwinding::catch(|| then(batch.perform()));
                called.unwrap_or_else(foreign::discard);
            });
            debug_assert!(ended.is_ok());
            drop(pass);
        }));
        Ok(())
    }

    /// Refuses further batches, waits for those in flight, and ends the workers. A second call does
    /// nothing.
    ///
    /// ```
    /// use cringle::block::{Batch, BlockIo};
    ///
    /// let io = BlockIo::builder().build()?;
    /// io.close()?;
    /// let error = io.submit(Batch::new()).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Deadlock` if it is called from one of its own callbacks, or from a closure that the
    /// callback passed to [`unblock`](crate::fiber::unblock()), because it would wait for the
    /// callback. If another thread calls it while the callback waits for that thread, it never
    /// returns.
    pub fn close(&self) -> io::Result<()> {
        if WaitingRuntime::is_waiting(&self.shared) {
            let text =
                "a BlockIo cannot be closed from its own callback: closing waits for the callback";
            return Err(io::Error::new(io::ErrorKind::Deadlock, text));
        }
        self.admission.close();
        crate::fiber::unblock(|| {
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
        let lane = crate::runtime::worker().unwrap_or(lane) % self.workers;
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
        if self.close().is_err() {
            // Dropped by its own callback: the workers end when the callback returns.
            self.admission.close();
        }
    }
}

impl std::fmt::Debug for BlockIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockIo").field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// Counts the batches in flight, and refuses new ones after the close.
#[derive(Default)]
struct Admission {
    state: Mutex<AdmissionState>,
}

#[derive(Default)]
struct AdmissionState {
    inside: usize,
    closed: bool,
    on_drained: Option<Box<dyn FnOnce() + Send>>,
}

/// The right to submit one batch. The workers run until it is dropped.
struct Pass<G: std::ops::Deref<Target = Admission>>(G);

impl Admission {
    fn enter(&self) -> io::Result<Pass<&Admission>> {
        self.admit()?;
        Ok(Pass(self))
    }

    fn enter_owned(self: &Arc<Self>) -> io::Result<Pass<Arc<Admission>>> {
        self.admit()?;
        Ok(Pass(Arc::clone(self)))
    }

    fn admit(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.closed {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the BlockIo is closed"));
        }
        state.inside += 1;
        Ok(())
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        Self::notify_if_drained(state);
    }

    fn leave(&self) {
        let mut state = self.state();
        state.inside -= 1;
        Self::notify_if_drained(state);
    }

    fn on_closed(&self, notify: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        state.on_drained = Some(Box::new(notify));
        Self::notify_if_drained(state);
    }

    fn notify_if_drained(mut state: MutexGuard<'_, AdmissionState>) {
        if state.closed && state.inside == 0 {
            let notify = state.on_drained.take();
            drop(state);
            notify.into_iter().for_each(|notify| notify());
        }
    }

    fn is_drained(&self) -> bool {
        let state = self.state();
        state.closed && state.inside == 0
    }

    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock()
    }
}

impl<G: std::ops::Deref<Target = Admission>> Drop for Pass<G> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
