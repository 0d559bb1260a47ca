//! Who waits for what: every fiber of a runtime, asked of the workers.

mod collect;
mod files;
mod registry;
mod report;
mod text;

pub(in crate::runtime) use registry::list;
pub use report::{FiberReport, FiberState, Holder, OpenedScope, WaitsFor, Who};

use crate::runtime::worker::Worker;
use std::time::Duration;

/// Every fiber of the calling fiber's runtime, and what each waits for; `None` outside of
/// [`run`](crate::run).
///
/// Each worker tells of its own fibers when it next looks, and goes on: the fibers are not stopped
/// together, and what two workers tell may be a moment apart. Only the calling fiber waits for that, or the
/// calling thread. A worker that has not answered within a second is [told of](Dump::silent) by what can be
/// seen from outside: the fiber that it is stuck in.
///
/// ```
/// use cringle::runtime::{self, FiberState};
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let sleeper = fiber::Builder::new().name("sleeper".into()).spawn_local(fiber::park).unwrap();
///     fiber::yield_now();
///     let dump = runtime::dump().expect("there is a runtime here");
///     let sleeper_seen = dump.fiber("sleeper").expect("it is there");
///     assert!(matches!(sleeper_seen.state, FiberState::Waiting { .. }));
///     println!("{dump}");
///     sleeper.thread().unpark();
/// });
/// ```
pub fn dump() -> Option<Dump> {
    let shared = Worker::with(|worker| worker.map(|worker| worker.shared().clone()))?;
    Some(collect::collect(&shared, false))
}

/// [`dump`], with a backtrace of every fiber. It takes some 10 µs for each, and more to be written: the
/// names of functions are looked for then.
///
/// A suspended fiber is resumed for that on its own stack, into the library's code, which looks at the
/// stack and suspends it again. One with less than 32 KiB of stack left has none, nor has one that has not
/// begun, or that a silent worker is stuck in.
pub fn dump_with_backtraces() -> Option<Dump> {
    let shared = Worker::with(|worker| worker.map(|worker| worker.shared().clone()))?;
    Some(collect::collect(&shared, true))
}

/// A [`dump`] of every runtime of the process, from any thread.
///
/// ```
/// use cringle::{fiber, runtime};
///
/// cringle::run(|| {
///     let seen = fiber::unblock(|| runtime::dump_all());
///     assert!(seen.iter().any(|dump| dump.fiber("main").is_some()));
/// });
/// ```
pub fn dump_all() -> Vec<Dump> {
    registry::all().iter().map(|shared| collect::collect(shared, false)).collect()
}

/// What [`dump`] has found. Its `Display` is at most 80 columns wide, those who have waited longest come
/// first.
#[derive(Debug)]
#[non_exhaustive]
pub struct Dump {
    /// The fibers, those that have waited longest first, then those that are ready or run.
    pub fibers: Vec<FiberReport>,
    /// Workers that have not answered: what is known of them.
    pub silent: Vec<SilentWorker>,
    /// Fibers that no worker has started.
    pub unstarted: usize,
    /// Workers there are.
    pub workers: usize,
}

/// A worker that did not look for messages for as long as it was waited for.
#[derive(Debug)]
#[non_exhaustive]
pub struct SilentWorker {
    /// Its number.
    pub worker: usize,
    /// The fiber that runs there, if one does.
    pub runs: Option<Who>,
    /// The same fiber ran, without being suspended, all the time that the worker was waited for.
    pub is_stuck: bool,
    /// How long that was.
    pub silent_for: Duration,
    /// Its other fibers, of which nothing is known.
    pub others: u64,
}

impl Dump {
    /// The first fiber of this name.
    pub fn fiber(&self, name: &str) -> Option<&FiberReport> {
        self.fibers.iter().find(|fiber| fiber.who.name.as_deref() == Some(name))
    }

    /// Fibers that wait for each other, and will for ever, by their places in
    /// [`fibers`](Self::fibers): each waits for a lock that the next one holds, the last one for a lock of
    /// the first.
    pub fn cycles(&self) -> Vec<Vec<usize>> {
        report::cycles(&self.fibers)
    }
}
