//! An engine: a `BlockIo`, what is registered with it, and what is under way.
//!
//! No function suspends the fiber of a callback. For the program that fiber is a thread, and
//! another callback would run in the middle of it, under its locks. So the counters are read from
//! outside, the driver is kept since the start, and `cringle_open` in a callback starts the engine
//! on a thread that it joins.

use crate::abi::*;
use crate::error::Error;
use crate::notify::Notify;
use crate::ops::Ops;
use crate::queue::{Queued, Queues};
use crate::registered::{Registered, Tables};
use crate::submissions::{Pending, Submissions};
use cringle::block::{BlockIo, BlockIoBuilder};
use cringle::fiber;
use cringle::runtime::{self, Driver, DriverChoice, ThreadLocals};
use std::ffi::{OsString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most workers of an engine.
const MAX_WORKERS: u32 = 1024;

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) io: BlockIo,
    pub(crate) registered: Registered,
    pub(crate) submissions: Submissions,
    pub(crate) queues: Queues,
    /// The operations that a worker has in the kernel at once.
    pub(crate) in_flight_limit: u32,
    /// How the operations reach the kernel. It is kept, because a question to a worker would
    /// suspend the callback that asks.
    pub(crate) driver: Driver,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    submissions: AtomicU64,
    operations: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    in_flight: AtomicU64,
}

/// A submission that does not block its caller: the caller's memory, and how it ends.
pub(crate) struct Job {
    pub(crate) ops: *const cringle_op,
    pub(crate) results: *mut i64,
    pub(crate) count: usize,
    pub(crate) notify: Notify,
}

/// A submission that was accepted.
struct Accepted {
    job: Job,
    pending: Pending,
    registered: Arc<Tables>,
}

// SAFETY: the contract of `cringle_submit_cb` and `cringle_submit_eventfd`: the memory is the
// library's until the submission has ended, and the callback may be called on any thread.
unsafe impl Send for Job {}

fn or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

fn batch_limit(params: &cringle_params) -> u32 {
    or(params.batch_limit, 64)
}

/// Returns the operations that a worker may have in the kernel at once.
fn in_flight_limit(params: &cringle_params) -> u32 {
    or(params.in_flight_limit, batch_limit(params).max(192))
}

/// Returns the options that the parameters choose.
fn builder(params: &cringle_params) -> Result<BlockIoBuilder, Error> {
    let driver = match params.driver {
        CRINGLE_DRIVER_AUTO => DriverChoice::Auto,
        CRINGLE_DRIVER_URING => DriverChoice::Uring,
        CRINGLE_DRIVER_EPOLL => DriverChoice::Epoll,
        other => {
            let text = format!("params.driver is {other}, and must be one of CRINGLE_DRIVER_…");
            return Err(Error::new(libc::EINVAL, text));
        }
    };
    let unknown = params.flags & !(CRINGLE_OPEN_PIN | CRINGLE_OPEN_IOPOLL);
    if unknown != 0 {
        let text = format!("params.flags has bits that this version does not know: {unknown:#x}");
        return Err(Error::new(libc::EINVAL, text));
    }
    let workers = or(params.workers, 1);
    if workers > MAX_WORKERS {
        let text = format!("params.workers is {workers}, and must be at most {MAX_WORKERS}");
        return Err(Error::new(libc::EINVAL, text));
    }
    let builder = BlockIo::builder()
        .workers(workers as usize)
        .batch_limit(batch_limit(params))
        .in_flight_limit(in_flight_limit(params))
        .pin(params.flags & CRINGLE_OPEN_PIN != 0)
        .iopoll(params.flags & CRINGLE_OPEN_IOPOLL != 0)
        .driver(driver)
        // A callback is called on the worker's thread, which a language runtime attaches once.
        .thread_locals(ThreadLocals::Shared)
        .overflow_handler(false);
    // Standard error is the program's, unless its user asks for the watchdog. (The chapter on C in
    // the book lists what else is written there.)
    let is_asked = |value: OsString| !value.is_empty() && value != "off";
    let asked = std::env::var_os("CRINGLE_WATCHDOG").is_some_and(is_asked);
    Ok(if asked { builder } else { builder.watchdog(None) })
}

impl Engine {
    /// Starts an engine. In a callback, this blocks the callback's thread until it has started: if
    /// it suspended the callback instead, another callback would run in the middle of it.
    pub(crate) fn start_workers(params: &cringle_params) -> Result<Engine, Error> {
        let (builder, in_flight_limit) = (builder(params)?, in_flight_limit(params));
        let start = move || Engine::new(builder, in_flight_limit);
        if runtime::worker().is_none() {
            return start();
        }
        let thread = std::thread::Builder::new().name("cringle-open".into());
        let thread = thread.spawn(start).map_err(Error::of_start)?;
        let engine = thread.join();
        engine.unwrap_or_else(|payload| resume_unwind(payload))
    }

    fn new(builder: BlockIoBuilder, in_flight_limit: u32) -> Result<Engine, Error> {
        let io = builder.build().map_err(Error::of_start)?;
        let driver = io.call(runtime::driver)?;
        Ok(Engine {
            io,
            registered: Registered::default(),
            submissions: Submissions::default(),
            queues: Queues::default(),
            in_flight_limit,
            driver,
            counters: Counters::default(),
        })
    }

    /// Performs the operations while the calling thread waits. Returns the number that failed.
    pub(crate) fn submit(&self, mut ops: Ops<'_>) -> Result<c_int, Error> {
        let in_flight = InFlight::begin(self);
        let registered = &*self.registered.tables();
        if ops.are_one_batch() {
            ops.perform_together(registered, |batch| self.io.submit(batch))?;
        } else {
            let ops = &mut ops;
            self.io.call(move || ops.perform(registered))?;
        }
        drop(in_flight);
        Ok(self.count(&ops))
    }

    /// Starts a submission, and returns its number by `number`, before it starts.
    pub(crate) fn start(self: Arc<Self>, job: Job, number: impl FnOnce(u64)) -> Result<(), Error> {
        let pending = self.submissions.begin()?;
        job.notify.begin();
        number(pending.number());
        let accepted = Accepted { job, pending, registered: self.registered.tables() };
        let engine = Arc::clone(&self);
        let in_flight = InFlight::begin(&self).keep();
        let started = self.io.spawn(move || engine.run(accepted));
        if let Err(e) = started {
            drop(InFlight(in_flight));
            self.submissions.end(pending);
            return Err(e.into());
        }
        Ok(())
    }

    /// Performs a submission on a fiber, and notifies its caller.
    fn run(&self, accepted: Accepted) {
        let Accepted { job, pending, registered } = accepted;
        // It counts since it was accepted.
        let in_flight = InFlight(&self.counters.in_flight);
        // SAFETY: the contract of the submission: the memory is the library's until it has ended.
        let mut ops = unsafe { Ops::new(job.ops, job.results, job.count) };
        let failed = self.perform(&mut ops, pending, &registered);
        // What is unregistered by now is closed before the caller learns of the end.
        drop(registered);
        drop(in_flight);
        self.submissions.end(pending);
        job.notify.notify(failed);
    }

    /// Performs operations where `cancel` reaches them. Returns the number that failed.
    fn perform(&self, ops: &mut Ops<'_>, pending: Pending, registered: &Tables) -> c_int {
        let performed = catch_unwind(AssertUnwindSafe(|| {
            fiber::scope(|scope| {
                let cancellable = self.submissions.attach(pending, scope);
                ops.perform(registered);
                drop(cancellable);
            });
        }));
        if performed.is_err() {
            ops.results.fill(-i64::from(libc::ENOTRECOVERABLE));
        }
        self.count(ops)
    }

    /// Counts an operation of a queue as under way, and gives it its number.
    pub(crate) fn accept(&self) -> Result<Pending, Error> {
        let pending = self.submissions.begin()?;
        InFlight::begin(self).keep();
        Ok(pending)
    }

    /// Performs an operation of a queue on a fiber.
    pub(crate) fn perform_queued(&self, queued: Queued) -> cringle_completion {
        let Queued { op, pending, registered } = queued;
        // It counts since it was accepted.
        let in_flight = InFlight(&self.counters.in_flight);
        let mut result = 0;
        let mut ops = Ops { ops: slice::from_ref(&op), results: slice::from_mut(&mut result) };
        self.perform(&mut ops, pending, &registered);
        // As in `run`, before the caller learns of the end.
        drop(registered);
        drop(in_flight);
        self.submissions.end(pending);
        cringle_completion { user_data: op.user_data, result }
    }

    /// Counts the results, and returns the number of operations that failed.
    fn count(&self, ops: &Ops<'_>) -> c_int {
        let (mut failed, mut cancelled, mut read, mut written) = (0, 0, 0, 0);
        for (op, &result) in ops.ops.iter().zip(&*ops.results) {
            match (result, op.kind) {
                (..0, _) => {
                    failed += 1;
                    cancelled += u64::from(result == -i64::from(libc::ECANCELED));
                }
                (_, CRINGLE_READ | CRINGLE_READ_FULL) => read += result as u64,
                _ => written += result as u64,
            }
        }
        let counters = &self.counters;
        let add = |counter: &AtomicU64, value: u64| {
            if value > 0 {
                counter.fetch_add(value, Ordering::Relaxed);
            }
        };
        add(&counters.submissions, 1);
        add(&counters.operations, ops.ops.len() as u64);
        add(&counters.failed, failed);
        add(&counters.cancelled, cancelled);
        add(&counters.bytes_read, read);
        add(&counters.bytes_written, written);
        failed as c_int
    }

    /// Returns the counters, without a wait.
    pub(crate) fn stats(&self) -> cringle_stats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let workers = self.io.stats().total();
        cringle_stats {
            size: size_of::<cringle_stats>() as u64,
            submissions: load(&counters.submissions),
            operations: load(&counters.operations),
            failed: load(&counters.failed),
            cancelled: load(&counters.cancelled),
            bytes_read: load(&counters.bytes_read),
            bytes_written: load(&counters.bytes_written),
            in_flight: load(&counters.in_flight),
            enters: workers.enters,
            sleeps: workers.sleeps,
        }
    }
}

/// A submission among those that [`cringle_stats::in_flight`] counts.
struct InFlight<'a>(&'a AtomicU64);

impl<'a> InFlight<'a> {
    fn begin(engine: &'a Engine) -> InFlight<'a> {
        engine.counters.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(&engine.counters.in_flight)
    }

    /// Keeps the submission counted. Returns the counter, for the one that ends it.
    fn keep(self) -> &'a AtomicU64 {
        let counter = self.0;
        std::mem::forget(self);
        counter
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
