//! Handles to fibers: the right to join one, and its identity.

use super::packet::{HandlesPacket, Packet};
use cringle_core::cancelled;
use cringle_core::identity::Identity;
use cringle_core::worker::{Current, fairness};
use cringle_sys::lock::OnceLock;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A handle to a fiber, with which its end can be awaited. Dropping it detaches the fiber. It is
/// `Send` and `Sync` if the result is `Send`.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let handle = fiber::spawn(|| 6 * 7);
///     assert_eq!(handle.join().unwrap(), 42);
/// });
/// ```
///
/// ```compile_fail
/// // The result of a local fiber that is not `Send` stays on its worker.
/// cringle::run(|| {
///     let handle = cringle::fiber::spawn_local(|| std::rc::Rc::new(1));
///     cringle::fiber::spawn(move || handle.join());
/// });
/// ```
pub struct JoinHandle<T> {
    packet: HandlesPacket<T>,
    thread: OnceLock<Thread>,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(packet: Arc<Packet<T>>) -> JoinHandle<T> {
        JoinHandle { packet: HandlesPacket::new(packet), thread: OnceLock::new() }
    }

    /// Waits until the fiber has ended, and returns its value or the payload of its panic. On a
    /// fiber only the calling fiber waits; elsewhere the calling thread does.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::fiber;
    ///
    /// cringle::run(|| {
    ///     assert_eq!(fiber::spawn(|| 1).join().unwrap(), 1);
    ///     assert!(fiber::spawn(|| panic!("the payload")).join().is_err());
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// The payload with which the fiber panicked; a
    /// [`Cancelled`](cringle_core::cancelled::Cancelled) if a cancel unwound the fiber; an
    /// [`io::Error`] of kind `OutOfMemory` if no stack could be mapped and the fiber did not run.
    ///
    /// # Cancellation
    ///
    /// If the calling fiber is cancelled while it waits, it unwinds, and the other fiber is
    /// detached.
    pub fn join(self) -> super::Result<T> {
        fairness::spend();
        // Where panics abort, `join` cannot report that the caller was cancelled.
        while !self.packet.wait(|| cfg!(panic = "unwind") && super::is_refused()) {
            cancelled::unwind();
        }
        self.packet.take()
    }

    /// Like [`join`](Self::join), but returns an error if the calling fiber is cancelled. The other
    /// fiber is then detached.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, time};
    /// use std::time::Duration;
    ///
    /// cringle::run(|| {
    ///     let sleeper = fiber::spawn(|| fiber::sleep(Duration::from_secs(3600)));
    ///     let limit = Duration::from_millis(1);
    ///     assert!(time::timeout(limit, || sleeper.join_cancellable().map(drop)).is_err());
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// If the caller was cancelled before the fiber ended: see
    /// [`cancel::reason`](crate::cancel::reason).
    pub fn join_cancellable(self) -> io::Result<super::Result<T>> {
        fairness::spend();
        if self.packet.wait(super::is_refused) {
            Ok(self.packet.take())
        } else {
            Err(super::refusal())
        }
    }

    /// Returns the fiber, for its name or to unpark it.
    pub fn thread(&self) -> &Thread {
        self.thread.get_or_init(|| Thread::fiber(self.packet.meta.identity()))
    }

    /// Returns whether the fiber has ended, so that [`join`](Self::join) returns at once.
    /// Suspends the calling fiber only after 128 failures in a row.
    pub fn is_finished(&self) -> bool {
        let finished = self.packet.is_finished();
        fairness::tried(finished);
        finished
    }
}

opaque_debug!(JoinHandle<T>);

/// A fiber, or a thread that called [`current`] outside of any fiber. Named as in `std::thread`.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| assert_eq!(fiber::current().name(), Some("main")));
/// ```
#[derive(Clone)]
pub struct Thread(Repr);

#[derive(Clone)]
enum Repr {
    Fiber(Arc<Identity>),
    Os(std::thread::Thread),
}

/// Identifies a fiber or a thread for the life of the process: no other one has the same.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let main = fiber::current().id();
///     let other = fiber::spawn(|| fiber::current().id()).join().unwrap();
///     assert_ne!(main, other);
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(Id);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id {
    Fiber(NonZeroU64),
    Os(std::thread::ThreadId),
}

impl Thread {
    pub(super) fn fiber(identity: &Arc<Identity>) -> Thread {
        Thread(Repr::Fiber(Arc::clone(identity)))
    }

    /// Makes the fiber's token available, so that its current or next [`park`](super::park)
    /// returns. Can be called on any thread. Has no effect if the fiber or its runtime has ended.
    pub fn unpark(&self) {
        match &self.0 {
            Repr::Fiber(identity) => identity.unpark(),
            Repr::Os(thread) => thread.unpark(),
        }
    }

    /// Returns the identifier.
    pub fn id(&self) -> ThreadId {
        ThreadId(match &self.0 {
            Repr::Fiber(identity) => Id::Fiber(identity.number()),
            Repr::Os(thread) => Id::Os(thread.id()),
        })
    }

    /// Returns the name, if one was set. The closure of `run` has the name `main`.
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Repr::Fiber(identity) => identity.name(),
            Repr::Os(thread) => thread.name(),
        }
    }
}

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("Thread");
        fields.field("id", &self.id()).field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Returns the calling fiber, or outside of any fiber the calling thread.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let main = fiber::current();
///     fiber::spawn(move || main.unpark());
///     fiber::park();
/// });
/// ```
pub fn current() -> Thread {
    match Current::identity().as_ref().and_then(|fiber| fiber.meta()) {
        Some(meta) => Thread::fiber(meta.identity()),
        None => Thread(Repr::Os(std::thread::current())),
    }
}
