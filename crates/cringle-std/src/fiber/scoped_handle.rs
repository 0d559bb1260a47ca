//! Handles to the fibers of a scope.

use super::Thread;
use super::packet::{HandlesPacket, Packet};
use super::scope_core::ScopeCore;
use cringle_core::cancelled::{self, Cancelled};
use cringle_core::worker::{Current, fairness};
use cringle_sys::lock::OnceLock;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

/// A handle to a fiber of a scope, with which its end can be awaited. Dropping it leaves the wait
/// to the scope.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         let handle = s.spawn(|| 6 * 7);
///         assert_eq!(handle.join().unwrap(), 42);
///     });
/// });
/// ```
pub struct ScopedJoinHandle<'scope, T> {
    packet: HandlesPacket<T>,
    core: Arc<ScopeCore>,
    thread: OnceLock<Thread>,
    scope: PhantomData<&'scope ()>,
}

impl<'scope, T> ScopedJoinHandle<'scope, T> {
    pub(super) fn new(packet: Arc<Packet<T>>, core: Arc<ScopeCore>) -> Self {
        ScopedJoinHandle {
            packet: HandlesPacket::new(packet),
            core,
            thread: OnceLock::new(),
            scope: PhantomData,
        }
    }

    /// Waits until the fiber has ended, and returns its value: see
    /// [`JoinHandle::join`](super::JoinHandle::join).
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The payload with which the fiber panicked; the scope does not panic because of it then. A
    /// [`Cancelled`] if a cancel unwound the fiber.
    ///
    /// # Cancellation
    ///
    /// As [`JoinHandle::join`](super::JoinHandle::join), with one exception: if only this scope was
    /// cancelled, and not the caller for another reason, the call waits for the end of the fiber,
    /// which was cancelled too.
    pub fn join(self) -> super::Result<T> {
        fairness::spend();
        loop {
            // Where panics abort, `join` cannot report that the caller was cancelled.
            if let Some(result) = self.try_join(cfg!(panic = "unwind")) {
                return result;
            }
            cancelled::unwind();
        }
    }

    /// Like [`join`](Self::join), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::fiber;
    ///
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         let handle = s.spawn(|| 7);
    ///         assert_eq!(handle.join_cancellable()?.unwrap(), 7);
    ///         Ok(())
    ///     })
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the caller was cancelled before the fiber ended: see
    /// [`cancel::reason`](crate::cancel::reason).
    pub fn join_cancellable(self) -> io::Result<super::Result<T>> {
        fairness::spend();
        self.try_join(true).ok_or_else(super::refusal)
    }

    /// Waits for the fiber. Returns `None` if the caller was cancelled before the fiber ended, or
    /// both were cancelled.
    fn try_join(&self, interruptible: bool) -> Option<super::Result<T>> {
        let interrupted = || {
            interruptible
                && Current::get()
                    .is_some_and(|current| current.is_interrupted_beyond(self.core.members()))
        };
        if !self.packet.wait(interrupted) {
            return None;
        }
        self.heed_cancel();
        // Both were cancelled: the payload goes to the code that cancelled the caller.
        if interrupted() && self.packet.was_cancelled() {
            return None;
        }
        let result = self.packet.take();
        if let Err(payload) = &result {
            self.core.claim(payload.is::<Cancelled>());
        }
        Some(result)
    }

    /// A cancel of the scope reaches the caller before the end of a cancelled member does. Its
    /// message may still be on its way to a caller that has moved.
    fn heed_cancel(&self) {
        let members = self.core.members();
        if self.packet.was_cancelled()
            && let Some(current) = Current::get()
            && current.worker.moves.may_happen()
            && let Some(reason) = members.cause()
        {
            current.worker.cancel_in_scope(current.fiber.id(), members, reason);
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

opaque_debug!(ScopedJoinHandle<'a, T>);
