//! What runtime, if any, the calling thread is in.

use crate::choices::{Balance, NoRing, Threads};
use crate::worker::Worker;
use cringle_driver::Features;
use cringle_tls::ThreadLocals;

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
    /// By a simulation (`sim`), in virtual time.
    Simulation,
    /// By plain system calls that block the calling thread, outside of `run`.
    Blocking,
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
    match Worker::here() {
        Some(worker) if worker.driver().borrow().simulation().is_some() => Driver::Simulation,
        Some(worker) => match worker.shared().no_ring() {
            Some(why) => Driver::Epoll(why.clone()),
            None => Driver::Uring(worker.driver().borrow().features()),
        },
        None => Driver::Blocking,
    }
}

/// Returns whose thread-locals the fibers of the calling runtime use; `None` outside of `run`.
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
    Worker::here().map(|worker| worker.families.mode())
}

/// Returns why the fibers of the calling runtime share the thread-locals of their worker: who chose
/// it, or why they cannot have their own here, with the remedy. `None` if they have their own, and
/// outside of `run`.
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
    Worker::here().and_then(|worker| worker.shared().why_shared().cloned())
}

/// Returns whether started fibers of the calling runtime move between its workers; `None` outside
/// of `run`. With one worker it is [`Balance::Fixed`].
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
    Worker::here().map(|worker| worker.moves.balance)
}

/// Returns what code of the calling runtime's fibers starts as a thread; `None` outside of `run`.
///
/// ```
/// use cringle::runtime::{self, Threads};
///
/// assert_eq!(cringle::run(runtime::threads), Some(Threads::System));
/// assert_eq!(runtime::threads(), None);
/// ```
pub fn threads() -> Option<Threads> {
    Worker::here().map(|worker| worker.shared().threads())
}

/// Returns the number of the calling fiber's worker, counted from 0; `None` outside of `run`.
/// `fiber::Builder::worker` places a fiber by it.
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
    Worker::here().map(|worker| worker.index() as usize)
}

/// Returns the number of workers of the calling fiber's runtime; `None` outside of `run`.
///
/// ```
/// use cringle::runtime;
///
/// assert_eq!(cringle::Builder::new().workers(2).run(runtime::workers)?, Some(2));
/// assert_eq!(runtime::workers(), None);
/// # std::io::Result::Ok(())
/// ```
pub fn workers() -> Option<usize> {
    Worker::here().map(|worker| worker.shared().workers())
}
