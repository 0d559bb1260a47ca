//! The runtime of a [`run`](crate::run): its workers and driver, its counters, and dumps of its
//! fibers.
//!
//! | to | see |
//! |---|---|
//! | find out whether rings are used, and why not | [`driver`], [`Feature`] |
//! | choose the driver | [`DriverChoice`], [`Builder::driver`](crate::Builder::driver) |
//! | find the calling fiber's worker, and the number of workers | [`worker`](fn@worker), [`workers`] |
//! | see which fiber waits for what | [`dump()`], [`dump_all`], [`dump_with_backtraces`] |
//! | read the counters | [`stats`] |
//!
//! The runtime owns every started fiber, resumes it only on the worker that hosts it and only while
//! it is suspended, and leaves nothing behind when it ends.
//!
//! ```
//! use cringle::runtime;
//!
//! cringle::Builder::new().workers(2).run(|| {
//!     assert_eq!((runtime::worker(), runtime::workers()), (Some(0), Some(2)));
//!     println!("driver: {:?}", runtime::driver());
//!     println!("{}", runtime::dump().expect("there is a runtime here"));
//! })?;
//! # std::io::Result::Ok(())
//! ```

// Those are the invariants I2, I3 and I9 of ARCHITECTURE.md.

mod balance;
mod block_index;
pub(crate) mod cancelled;
mod counters;
mod crash;
mod diagnostics;
mod driver_choice;
#[cfg(feature = "tracing")]
pub(crate) mod event_cause;
pub(crate) mod family;
pub(crate) mod fiber;
pub(crate) mod foreign;
mod frames;
pub(crate) mod hazards;
pub(crate) mod identity;
pub(crate) mod inbox;
pub(crate) mod label;
pub(crate) mod lent_frame;
mod load;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod members;
mod quiescence;
pub(crate) mod region;
pub(crate) mod run;
pub(crate) mod shared;
pub(crate) mod spawn_place;
pub(crate) mod stack;
pub(crate) mod sync;
pub(crate) mod thread_locals;
mod threads;
pub(crate) mod timers;
mod unwind_count;
pub(crate) mod unwinding;
pub(crate) mod wait_target;
pub(crate) mod waiter_list;
pub(crate) mod waiting_runtime;
pub(crate) mod waker;
mod word_choice;
pub(crate) mod worker;

pub use crate::driver::{Feature, Features};
pub use balance::Balance;
pub use diagnostics::{
    Dump, EntryCounts, FiberReport, FiberState, Holder, OpenedScope, PoolStats, SilentWorker,
    Stats, WaitsFor, Who, WorkerStats, dump, dump_all, dump_with_backtraces, stats,
};
pub use driver_choice::{DriverChoice, NoRing};
pub use thread_locals::ThreadLocals;
pub use threads::Threads;

/// How the operations of a thread reach the kernel.
///
/// ```
/// use cringle::runtime::{self, Driver};
///
/// let has_ring = cringle::run(|| matches!(runtime::driver(), Driver::Uring(_)));
/// println!("io_uring: {}", if has_ring { "used" } else { "not available" });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Driver {
    /// By the `io_uring` of this worker, with these features.
    Uring(Features),
    /// By plain system calls where they do not wait, by readiness (`epoll`) where they wait for a
    /// peer, and by threads where they wait for a disk; for this reason. The results are the same
    /// as with a ring.
    Epoll(NoRing),
    /// By a [simulation](crate::sim), in virtual time.
    #[cfg(feature = "sim")]
    Simulation,
    /// By plain system calls that block the calling thread, outside of [`run`](crate::run).
    Blocking,
}

/// The time of the caller's timers: the machine's, or the simulation's.
#[inline]
pub(crate) fn now() -> std::time::Instant {
    match worker::Worker::here() {
        Some(worker) => worker.now(),
        None => crate::sys::now(),
    }
}

/// Whether a call on this thread may reach the kernel without the driver. Not so in a simulation.
pub(crate) fn may_bypass() -> bool {
    worker::Worker::here().is_none_or(|worker| worker.may_bypass())
}

/// Refuses what a simulation does not contain. Outside of one it does nothing.
pub(crate) fn refuse_in_simulation(text: &'static str) -> std::io::Result<()> {
    if may_bypass() {
        Ok(())
    } else {
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, text))
    }
}

/// Returns how operations reach the kernel on the calling thread.
///
/// ```
/// use cringle::runtime::{self, Driver};
///
/// assert_eq!(runtime::driver(), Driver::Blocking);
/// cringle::run(|| match runtime::driver() {
///     Driver::Uring(features) => println!("a ring for each worker, with {features:?}"),
///     Driver::Epoll(why) => println!("epoll and threads: {why}"),
///     other => unreachable!("{other:?}"),
/// });
/// ```
pub fn driver() -> Driver {
    match worker::Worker::here() {
        #[cfg(feature = "sim")]
        Some(worker) if worker.driver().borrow().simulation().is_some() => Driver::Simulation,
        Some(worker) => match worker.shared().no_ring() {
            Some(why) => Driver::Epoll(why.clone()),
            None => Driver::Uring(worker.driver().borrow().features()),
        },
        None => Driver::Blocking,
    }
}

/// Returns whose thread-locals the fibers of the calling runtime use; `None` outside of
/// [`run`](crate::run).
///
/// ```
/// use cringle::runtime::{self, ThreadLocals};
///
/// let builder = cringle::Builder::new().thread_locals(ThreadLocals::Shared);
/// assert_eq!(builder.run(runtime::thread_locals)?, Some(ThreadLocals::Shared));
/// assert_eq!(runtime::thread_locals(), None);
/// # std::io::Result::Ok(())
/// ```
pub fn thread_locals() -> Option<ThreadLocals> {
    worker::Worker::here().map(|worker| worker.families.mode())
}

/// Returns why the fibers of the calling runtime share the thread-locals of their worker: who chose
/// it, or why they cannot have their own here, with the remedy. `None` if they have their own, and
/// outside of [`run`](crate::run).
///
/// ```
/// use cringle::runtime::{self, ThreadLocals};
///
/// let builder = cringle::Builder::new().thread_locals(ThreadLocals::Shared);
/// let why = builder.run(runtime::why_shared)?;
/// assert_eq!(why.as_deref(), Some("ThreadLocals::Shared was chosen by the program"));
/// # std::io::Result::Ok(())
/// ```
pub fn why_shared() -> Option<std::sync::Arc<str>> {
    worker::Worker::here().and_then(|worker| worker.shared().why_shared().cloned())
}

/// Returns whether started fibers of the calling runtime move between its workers; `None` outside
/// of [`run`](crate::run). With one worker it is [`Balance::Fixed`].
///
/// ```
/// use cringle::runtime::{self, Balance};
///
/// let builder = cringle::Builder::new().workers(2).balance(Balance::Fixed);
/// assert_eq!(builder.run(runtime::balance)?, Some(Balance::Fixed));
/// assert_eq!(runtime::balance(), None);
/// # std::io::Result::Ok(())
/// ```
pub fn balance() -> Option<Balance> {
    worker::Worker::here().map(|worker| worker.moves.balance)
}

/// Returns what code of the calling runtime's fibers starts as a thread; `None` outside of
/// [`run`](crate::run).
///
/// ```
/// use cringle::runtime::{self, Threads};
///
/// assert_eq!(cringle::run(runtime::threads), Some(Threads::System));
/// assert_eq!(runtime::threads(), None);
/// ```
pub fn threads() -> Option<Threads> {
    worker::Worker::here().map(|worker| worker.shared().threads())
}

/// Returns the number of the calling fiber's worker, counted from 0; `None` outside of
/// [`run`](crate::run). [`fiber::Builder::worker`](crate::fiber::Builder::worker) places a fiber by
/// it.
///
/// ```
/// use cringle::{fiber, runtime};
///
/// cringle::Builder::new().workers(2).run(|| {
///     let fiber = fiber::Builder::new().worker(1).spawn(runtime::worker).unwrap();
///     assert_eq!(fiber.join().unwrap(), Some(1));
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub fn worker() -> Option<usize> {
    worker::Worker::here().map(|worker| worker.index() as usize)
}

/// Returns the number of workers of the calling fiber's runtime; `None` outside of
/// [`run`](crate::run).
///
/// ```
/// use cringle::runtime;
///
/// assert_eq!(cringle::Builder::new().workers(2).run(runtime::workers)?, Some(2));
/// assert_eq!(runtime::workers(), None);
/// # std::io::Result::Ok(())
/// ```
pub fn workers() -> Option<usize> {
    worker::Worker::here().map(|worker| worker.shared().workers())
}

/// Has `fork` leave a child in which a `run` works: see [`crate::sys::fork`].
///
/// # Errors
///
/// There is no memory for a handler.
fn watch_forks() -> Result<(), String> {
    fn in_child() {
        thread_locals::in_child();
        unwinding::unlock_in_child();
    }
    crate::sys::fork::call_in_child(in_child);
    crate::sys::fork::watch()
}
