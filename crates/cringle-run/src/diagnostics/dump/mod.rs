//! Dumps: every fiber of a runtime, and what it waits for.
//!
//! [`collect`] asks the workers, [`report`] turns their answers into [`FiberReport`]s, and `text`
//! prints them.
//!
//! A worker answers between two runs of its fibers, and the fiber that has requested the dump is
//! suspended meanwhile (**I3**). The description of a wait lies in the waiting frame
//! ([`wait_target`](cringle_core::wait_target)). The holder of a lock is recorded by its control
//! block and a generation, so a new fiber in the same block is not taken for it. A backtrace is
//! made on the fiber's own stack, by a [probe](cringle_core::fiber): this ends neither a wait nor
//! a yield (**I1**).

mod collect;
mod files;
mod groups;
mod registry;
mod report;
mod text;

pub(crate) use registry::list;
pub use report::{FiberReport, FiberState, Holder, OpenedScope, WaitsFor, Who};

use cringle_core::shared::Shared;
use cringle_core::worker::Worker;
use std::sync::Arc;
use std::time::Duration;

/// Returns every fiber of the calling fiber's runtime, and what each waits for; `None` outside of
/// [`run`](crate::run::run).
///
/// Each worker reports its own fibers when it next looks at its messages, and continues. The fibers
/// are not stopped together, so the reports of two workers may be a moment apart. Only the calling
/// fiber, or the calling thread, waits for them. A worker that does not answer within a second is
/// listed as [silent](Dump::silent), with what can be seen of it from outside: the fiber that it is
/// stuck in. Fibers do not [move](cringle_core::choices::Balance::Moving) meanwhile; one that was
/// on its way when the dump began may be missing.
///
/// ```
/// use cringle::runtime::{self, FiberState};
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let builder = fiber::Builder::new().name("sleeper".into());
///     let sleeper = builder.spawn_local(fiber::park).unwrap();
///     fiber::yield_now();
///     let dump = runtime::dump().expect("there is a runtime here");
///     let report = dump.fiber("sleeper").expect("it has not ended");
///     assert!(matches!(report.state, FiberState::Waiting { .. }));
///     println!("{dump}");
///     sleeper.thread().unpark();
/// });
/// ```
pub fn dump() -> Option<Dump> {
    let shared = Worker::here()?.shared().clone();
    Some(collect::collect(&shared, false))
}

/// Returns a [`dump`] with a backtrace of every fiber. A backtrace takes about 10 µs, and more when
/// it is printed, because the names of functions are looked up then.
///
/// For its backtrace a suspended fiber is resumed on its own stack, into code of the library that
/// looks at the stack and suspends the fiber again. A fiber has no backtrace if less than 32 KiB of
/// its stack are left, if it has not begun, or if a silent worker is stuck in it.
///
/// ```
/// use cringle::{fiber, runtime};
///
/// cringle::run(|| {
///     let sleeper = fiber::spawn_local(fiber::park);
///     fiber::yield_now();
///     let dump = runtime::dump_with_backtraces().expect("there is a runtime here");
///     assert!(dump.fibers.iter().any(|fiber| fiber.backtrace.is_some()));
///     sleeper.thread().unpark();
/// });
/// ```
pub fn dump_with_backtraces() -> Option<Dump> {
    let shared = Worker::here()?.shared().clone();
    Some(collect::collect(&shared, true))
}

/// Returns a [`dump`] of every runtime of the process. Any thread may call this.
///
/// ```
/// use cringle::{fiber, runtime};
///
/// cringle::run(|| {
///     let dumps = fiber::unblock(|| runtime::dump_all());
///     assert!(dumps.iter().any(|dump| dump.fiber("main").is_some()));
/// });
/// ```
pub fn dump_all() -> Vec<Dump> {
    registry::all().iter().map(|shared| collect::collect(shared, false)).collect()
}

/// Returns a [`dump`] of a runtime, if it is the only one of the process.
pub(super) fn dump_of_only(shared: &Arc<Shared>) -> Option<Dump> {
    let all = registry::all();
    let is_only = all.len() == 1 && Arc::ptr_eq(&all[0], shared);
    is_only.then(|| collect::collect(shared, false))
}

/// The result of a [`dump`]. Its `Display` is at most 80 columns wide, and lists the fibers that
/// have waited longest first. Fibers that differ only in how long they have waited, or will, are
/// one entry with their number.
///
/// ```
/// use cringle::runtime;
///
/// let dump = cringle::run(runtime::dump).expect("there was a runtime");
/// println!("{} fibers on {} workers:\n{dump}", dump.fibers.len(), dump.workers);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Dump {
    /// The fibers: first the waiting ones, the longest waits first, then the ready and running
    /// ones.
    pub fibers: Vec<FiberReport>,
    /// The workers that have not answered.
    pub silent: Vec<SilentWorker>,
    /// The number of fibers that no worker has started.
    pub unstarted: usize,
    /// The number of workers.
    pub workers: usize,
}

/// A worker that did not answer in time, because it did not look at its messages.
///
/// ```
/// use cringle::runtime;
///
/// for worker in cringle::run(runtime::dump).expect("there was a runtime").silent {
///     println!("worker {} did not answer; it runs {:?}", worker.worker, worker.runs);
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct SilentWorker {
    /// Its number.
    pub worker: usize,
    /// The fiber that it runs, if it runs one.
    pub runs: Option<Who>,
    /// Whether that fiber ran, without suspending, for all of [`silent_for`](Self::silent_for).
    pub is_stuck: bool,
    /// How long the dump has waited for the worker.
    pub silent_for: Duration,
    /// The number of its other fibers, which are not in the dump.
    pub others: u64,
}

impl Dump {
    /// Returns the first fiber of this name.
    ///
    /// ```
    /// let dump = cringle::run(cringle::runtime::dump).expect("there was a runtime");
    /// assert!(dump.fiber("main").is_some()); // The closure of `run`.
    /// assert!(dump.fiber("other").is_none());
    /// ```
    pub fn fiber(&self, name: &str) -> Option<&FiberReport> {
        self.fibers.iter().find(|fiber| fiber.who.name.as_deref() == Some(name))
    }

    /// Returns the deadlocks: cycles of fibers, by their indices in [`fibers`](Self::fibers), in
    /// which each fiber waits for a lock that the next one holds, and the last one for a lock of
    /// the first.
    ///
    /// ```
    /// let dump = cringle::run(cringle::runtime::dump).expect("there was a runtime");
    /// for cycle in dump.cycles() {
    ///     let names: Vec<_> = cycle.iter().map(|&at| &dump.fibers[at].who.name).collect();
    ///     println!("deadlock: {names:?}");
    /// }
    /// ```
    pub fn cycles(&self) -> Vec<Vec<usize>> {
        report::cycles(&self.fibers)
    }
}
