//! Batches for programs that are not fibers.
//!
//! A `BlockIo` is a runtime of its own on threads of its own. A batch that is submitted becomes a
//! fiber of one of its workers, which performs it there; the submitter waits, or is told. So the
//! rules of batches, and their invariants, are the same in both worlds.

use super::owned::{OwnedBatch, OwnedResults, Submission};
use super::{Batch, Results};
use crate::fiber::unblock::call_by;
use crate::runtime::fiber::body::run_root_body;
use crate::runtime::foreign;
use crate::runtime::run::Builder;
use crate::runtime::shared::{Body, Shared, Unstarted};
use crate::runtime::stack::default_stack_bytes;
use crate::runtime::unwinding;
use crate::runtime::waiting_runtime::WaitingRuntime;
use crate::runtime::worker::Worker;
use std::cell::Cell;
use std::io;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

/// Sizes a [`BlockIo`].
#[derive(Clone, Debug)]
#[must_use = "nothing is started until `build` is called"]
pub struct BlockIoBuilder {
    runtime: Builder,
    workers: usize,
    batch_limit: u32,
    in_flight_limit: u32,
}

impl BlockIoBuilder {
    /// How many workers, each with a ring (default: 1). Limits are for each.
    pub fn workers(mut self, workers: usize) -> BlockIoBuilder {
        self.workers = workers;
        self
    }

    /// Operations submitted in one call to the kernel, at most (default: 64). A larger batch is
    /// split; its parts are pipelined.
    pub fn batch_limit(mut self, operations: u32) -> BlockIoBuilder {
        self.batch_limit = operations;
        self
    }

    /// Operations in the kernel at once, at most (default: 192). Submitters wait when it is
    /// reached.
    pub fn in_flight_limit(mut self, operations: u32) -> BlockIoBuilder {
        self.in_flight_limit = operations;
        self
    }

    /// Pins each worker to a core.
    pub fn pin(mut self, pin: bool) -> BlockIoBuilder {
        self.runtime = self.runtime.pin(pin);
        self
    }

    /// Has the completions of direct reads and writes looked for at the device
    /// (`IORING_SETUP_IOPOLL`), instead of waiting for its interrupts (default: no). That saves some
    /// microseconds an operation and keeps a processor busy for each worker while any is under way.
    ///
    /// It holds for files opened with `O_DIRECT` on a device that has queues for it, which
    /// [`Polling::of`](super::Polling::of) tells; for all others nothing changes. What is polled for
    /// cannot be given up: a cancel waits for the device.
    pub fn iopoll(mut self, poll: bool) -> BlockIoBuilder {
        self.runtime = self.runtime.iopoll(poll);
        self
    }

    /// Starts the workers.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless 0 < `batch_limit` < 2¹⁵ and `batch_limit` ≤ `in_flight_limit` < 2¹⁶;
    /// `Unsupported` in a simulation; else what the system refused, as [`Builder::run`].
    pub fn build(self) -> io::Result<BlockIo> {
        self.validate()?;
        if Worker::here().is_some_and(|worker| worker.is_simulated()) {
            let text = "a BlockIo has threads and rings of its own, which a simulation cannot \
                        contain: submit the batch on the fiber";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let runtime = self
            .runtime
            .workers(self.workers)
            .ring_entries(self.batch_limit)
            .in_flight_limit(self.in_flight_limit);
        let (tell, told) = mpsc::channel();
        let admission = Arc::new(Admission::default());
        let theirs = Arc::clone(&admission);
        let thread = std::thread::Builder::new().name("cringle-block".into()).spawn(move || {
            let failed = tell.clone();
            let ran = runtime.run(move || {
                let worker = Worker::here().expect("inside of run");
                drop(tell.send(Ok(Arc::clone(worker.shared()))));
                // The submitters' fibers run meanwhile; this one waits for the end.
                let waker = crate::fiber::current();
                theirs.on_closed(move || waker.unpark());
                while !theirs.is_drained() {
                    crate::fiber::park();
                }
            });
            if let Err(e) = ran {
                drop(failed.send(Err(e)));
            }
        })?;
        let shared = crate::fiber::unblock(move || told.recv());
        let shared = shared.expect("the thread tells how its start went")?;
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
            format!("batch_limit is {batch}, must be at least 1 and less than 32768")
        } else if in_flight < batch || in_flight >= 1 << 16 {
            format!(
                "in_flight_limit is {in_flight}, must be at least batch_limit ({batch}) and less \
                 than 65536"
            )
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("BlockIo cannot be made: {what}")))
    }
}

/// Performs batches for any thread, on workers and rings of its own.
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
/// Dropping it closes it, and waits for what is in flight.
pub struct BlockIo {
    shared: Arc<Shared>,
    admission: Arc<Admission>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    workers: usize,
    next: AtomicUsize,
}

thread_local! {
    /// The worker that this thread's batches go to, as a number to be taken modulo.
    static LANE: Cell<Option<usize>> = const { Cell::new(None) };
}

impl BlockIo {
    /// One worker, batches of 64, 192 operations in flight.
    pub fn builder() -> BlockIoBuilder {
        let (workers, batch_limit, in_flight_limit) = (1, 64, 192);
        BlockIoBuilder {
            runtime: Builder::new().open_to_outside(),
            workers,
            batch_limit,
            in_flight_limit,
        }
    }

    /// Performs a batch and returns when every operation has ended. Blocks the calling thread; on
    /// a fiber only the fiber waits. Many may submit at once.
    ///
    /// # Errors
    ///
    /// `NotConnected` when it is closed. The operations' own errors are in the results.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber waits for its batch all the same.
    pub fn submit(&self, batch: Batch<'_>) -> io::Result<Results> {
        let pass = self.admission.enter()?;
        let send = |job| self.start(job);
        let results = call_by(send, None, move || batch.submit());
        drop(pass);
        Ok(results)
    }

    /// Performs a batch of owned buffers; the future is done when every operation has ended. It
    /// needs no runtime in particular, and dropping it loses nothing but the results.
    ///
    /// # Errors
    ///
    /// `NotConnected` when it is closed.
    pub fn submit_async<B>(&self, batch: OwnedBatch<B>) -> io::Result<Submission<B>>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        let (submission, done) = Submission::new();
        self.submit_then(batch, move |results| done.complete(results))?;
        Ok(submission)
    }

    /// Performs a batch of owned buffers and calls `then` with what came of it, on a fiber of the
    /// worker.
    ///
    /// # Errors
    ///
    /// `NotConnected` when it is closed; `then` is not called.
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
            // A panic of the callback is reported by the hook, and ends with it.
            let ended = run_root_body("cringle-block-callback", origin, || {
                let called = unwinding::catch(|| then(batch.perform()));
                called.unwrap_or_else(foreign::discard);
            });
            debug_assert!(ended.is_ok());
            drop(pass);
        }));
        Ok(())
    }

    /// Refuses further batches, waits for those in flight, and ends the workers. Closing twice is
    /// fine.
    ///
    /// # Errors
    ///
    /// `Deadlock` when called from a callback of its own, which it would wait for, or from what the callback
    /// has [`unblock`](crate::fiber::unblock())ed. (From another thread that the callback waits for, it never
    /// returns.)
    pub fn close(&self) -> io::Result<()> {
        if WaitingRuntime::is_waiting(&self.shared) {
            let text = "a BlockIo cannot be closed from its own callback, which it would wait for";
            return Err(io::Error::new(io::ErrorKind::Deadlock, text));
        }
        self.admission.close();
        crate::fiber::unblock(|| {
            let mut thread = self.thread.lock().expect("no code panics under this lock");
            if let Some(Err(payload)) = thread.take().map(std::thread::JoinHandle::join) {
                unwinding::resume(payload);
            }
        });
        Ok(())
    }

    /// Has a fiber of the caller's worker run the job.
    fn start(&self, job: Box<dyn FnOnce() + Send>) {
        let lane = LANE.get().unwrap_or_else(|| {
            let lane = self.next.fetch_add(1, Ordering::Relaxed);
            LANE.set(Some(lane));
            lane
        });
        let lane = crate::runtime::worker().unwrap_or(lane) % self.workers;
        let body = Box::new(Performed(job));
        let unstarted = Unstarted { body, stack_bytes: default_stack_bytes(), origin: 0 };
        if self.shared.start_from_outside(lane, unstarted).is_err() {
            unreachable!("the workers stay while a submitter has a pass");
        }
    }
}

/// A job that is performed in any case, since its submitter waits for it: a worker's reserve is a stack of the
/// default size.
struct Performed(Box<dyn FnOnce() + Send>);

impl Body for Performed {
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
            // The callback that dropped it keeps the workers until it returns; then they end.
            self.admission.close();
        }
    }
}

impl std::fmt::Debug for BlockIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockIo").field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// Who is inside, and whether anybody else may enter.
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

/// The right to submit one batch; the workers stay until it is dropped.
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
        Self::tell_if_drained(state);
    }

    fn leave(&self) {
        let mut state = self.state();
        state.inside -= 1;
        Self::tell_if_drained(state);
    }

    fn on_closed(&self, tell: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        state.on_drained = Some(Box::new(tell));
        Self::tell_if_drained(state);
    }

    fn tell_if_drained(mut state: MutexGuard<'_, AdmissionState>) {
        if state.closed && state.inside == 0 {
            let tell = state.on_drained.take();
            drop(state);
            tell.into_iter().for_each(|tell| tell());
        }
    }

    fn is_drained(&self) -> bool {
        let state = self.state();
        state.closed && state.inside == 0
    }

    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().expect("no code panics under this lock")
    }
}

impl<G: std::ops::Deref<Target = Admission>> Drop for Pass<G> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
