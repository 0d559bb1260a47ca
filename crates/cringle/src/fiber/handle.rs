//! What others hold of a fiber: its handle, its identity.

use super::packet::Packet;
use crate::runtime::cancelled;
use crate::runtime::identity::Identity;
use crate::runtime::worker::{Worker, fairness};
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};

/// The right to wait for a fiber's end; dropping it detaches the fiber. `Send` and `Sync` where the
/// result is `Send`.
///
/// ```compile_fail
/// // The result of a local fiber that is not `Send` stays on its worker.
/// cringle::run(|| {
///     let handle = cringle::fiber::spawn_local(|| std::rc::Rc::new(1));
///     cringle::fiber::spawn(move || handle.join());
/// });
/// ```
pub struct JoinHandle<T> {
    packet: Arc<Packet<T>>,
    thread: OnceLock<Thread>,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(packet: Arc<Packet<T>>) -> JoinHandle<T> {
        JoinHandle { packet, thread: OnceLock::new() }
    }

    /// Waits until the fiber has ended, and returns its value or the payload of its panic. On a
    /// fiber only the calling fiber waits; elsewhere the calling thread does.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The payload with which the fiber panicked; a [`Cancelled`](crate::Cancelled) if it was
    /// cancelled in a wait that has no room for an error; an [`io::Error`] of kind `OutOfMemory` if no stack
    /// could be mapped for it, and it has not run.
    ///
    /// # Cancellation
    ///
    /// If the calling fiber is cancelled meanwhile, it unwinds; the other one is then detached.
    pub fn join(self) -> super::Result<T> {
        fairness::spend();
        // Where panics abort, a join has no way to say that it was cancelled.
        while !self.packet.wait(|| cfg!(panic = "unwind") && super::is_refused()) {
            cancelled::unwind();
        }
        self.packet.take()
    }

    /// Like [`join`](Self::join), and returns an error where that unwinds: the other fiber is then
    /// detached.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The caller was cancelled first: see [`cancel::reason`](crate::cancel::reason).
    pub fn join_cancellable(self) -> io::Result<super::Result<T>> {
        fairness::spend();
        match self.packet.wait(super::is_refused) {
            true => Ok(self.packet.take()),
            false => Err(super::refusal()),
        }
    }

    /// The fiber, to unpark it or to tell its name.
    pub fn thread(&self) -> &Thread {
        self.thread.get_or_init(|| Thread::fiber(self.packet.meta.identity()))
    }

    /// Whether the fiber has ended: whether [`join`](Self::join) would return at once.
    /// Suspends the calling fiber only after 128 failures in a row.
    pub fn is_finished(&self) -> bool {
        let finished = self.packet.is_finished();
        fairness::tried(finished);
        finished
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

/// A fiber, or an OS thread that called [`current`] outside of any fiber; named as in `std::thread`.
#[derive(Clone)]
pub struct Thread(Repr);

#[derive(Clone)]
enum Repr {
    Fiber(Arc<Identity>),
    Os(std::thread::Thread),
}

/// Tells one fiber or thread from all others of the process, past and future.
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

    /// Makes the fiber's next (or present) [`park`](super::park) return. Works from any thread,
    /// also when the fiber or its runtime is gone: nothing happens then.
    pub fn unpark(&self) {
        match &self.0 {
            Repr::Fiber(identity) => identity.unpark(),
            Repr::Os(thread) => thread.unpark(),
        }
    }

    /// Its number.
    pub fn id(&self) -> ThreadId {
        ThreadId(match &self.0 {
            Repr::Fiber(identity) => Id::Fiber(identity.number()),
            Repr::Os(thread) => Id::Os(thread.id()),
        })
    }

    /// Its name, if it was given one. That of `run`'s closure is `main`.
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

/// The calling fiber; outside of any, the calling thread.
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
    match Worker::identity().as_ref().and_then(|fiber| fiber.meta()) {
        Some(meta) => Thread::fiber(meta.identity()),
        None => Thread(Repr::Os(std::thread::current())),
    }
}
