//! Scoped fibers: those that borrow from the frame that waits for them.
//!
//! The promise is std's: `scope` does not return, nor unwind, before every fiber spawned in it has
//! ended and its result is gone. So what they borrow, they may (**I2**).

use super::Thread;
use super::packet::Packet;
use super::spawn::{Builder, expect_spawned};
use crate::runtime::cancelled::{self, Cancelled};
use crate::runtime::fiber::Wait;
use crate::runtime::waker::Waker;
use crate::runtime::worker::Worker;
use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Runs `f` with a scope in which fibers may borrow what lives outside of it, and returns when all
/// of them have ended: `std::thread::scope`, for fibers.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let mut left = vec![3, 1, 2];
///     let right = String::from("borrowed");
///     let length = fiber::scope(|s| {
///         s.spawn(|| left.sort());
///         s.spawn_local(|| right.len()).join().unwrap()
///     });
///     assert_eq!((left, length), (vec![1, 2, 3], 8));
/// });
/// ```
///
/// # Panics
///
/// With `f`'s panic; else if a fiber panicked whose handle was not joined. (If it was cancelled,
/// the caller is unwound as a cancelled fiber is.)
///
/// # Cancellation
///
/// The wait for the fibers is not interrupted: they borrow from this frame. They are cancelled
/// themselves when the runtime ends.
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let current = Worker::current();
    let owner = match current {
        Some((worker, fiber)) => worker.waker(fiber),
        None => Waker::Thread(std::thread::current()),
    };
    let data = Arc::new(ScopeData {
        running: AtomicUsize::new(0),
        unclaimed_panics: AtomicUsize::new(0),
        unclaimed_cancels: AtomicUsize::new(0),
        owner,
    });
    let scope = Scope { data, scope: PhantomData, env: PhantomData };
    // The fibers must have ended before this frame goes, also when `f` panics.
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    while scope.data.running.load(Ordering::Acquire) > 0 {
        match current {
            Some((worker, fiber)) => worker.suspend_for_fibers(fiber, Wait::Scope),
            None => std::thread::park(),
        }
    }
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(_) if scope.data.unclaimed_panics.load(Ordering::Acquire) > 0 => {
            panic!("a scoped fiber panicked")
        }
        Ok(value) => {
            if scope.data.unclaimed_cancels.load(Ordering::Acquire) > 0 && !super::panicking() {
                // No panic, and no message: this fiber is cancelled with them.
                cancelled::unwind();
            }
            value
        }
    }
}

/// See [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<ScopeData>,
    /// Invariant, as std's: else a scope could be taken for a longer one.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    pub(super) fn data(&self) -> &Arc<ScopeData> {
        &self.data
    }

    /// Starts a fiber of this scope that any worker may run.
    ///
    /// # Panics
    ///
    /// Outside of [`run`](crate::run).
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        expect_spawned(Builder::new().spawn_scoped(self, f))
    }

    /// Starts a fiber of this scope on the calling fiber's worker; it may borrow what is not
    /// `Sync`.
    ///
    /// # Panics
    ///
    /// Outside of [`run`](crate::run), and where no stack can be mapped.
    #[track_caller]
    pub fn spawn_local<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + 'scope,
        T: 'scope,
    {
        expect_spawned(Builder::new().spawn_scoped_local(self, f))
    }
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running = self.data.running.load(Ordering::Relaxed);
        f.debug_struct("Scope").field("running", &running).finish_non_exhaustive()
    }
}

/// What a scope and its fibers share.
pub(super) struct ScopeData {
    running: AtomicUsize,
    /// Fibers that panicked, less those whose payload a `join` took.
    unclaimed_panics: AtomicUsize,
    /// The same for those that were unwound because they were cancelled.
    unclaimed_cancels: AtomicUsize,
    owner: Waker,
}

/// A fiber's place in its scope, until it is dropped.
pub(super) struct Membership(Arc<ScopeData>);

impl ScopeData {
    pub(super) fn enter(self: &Arc<Self>) -> Membership {
        // A count of 2⁶³ would take as many fibers; std checks, we could never get there.
        self.running.fetch_add(1, Ordering::Relaxed);
        Membership(Arc::clone(self))
    }
}

impl ScopeData {
    fn unclaimed(&self, payload: &(dyn Any + Send)) -> &AtomicUsize {
        match payload.is::<Cancelled>() {
            true => &self.unclaimed_cancels,
            false => &self.unclaimed_panics,
        }
    }
}

impl Membership {
    pub(super) fn note_panic(&self, payload: &(dyn Any + Send)) {
        self.0.unclaimed(payload).fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // The count that frees the owner's frame is the last touch of anything in that frame; the
        // scope's own data is kept by this fiber's share of it (I10).
        if self.0.running.fetch_sub(1, Ordering::Release) == 1 {
            self.0.owner.wake();
        }
    }
}

/// The right to wait for the end of a fiber of a scope; dropping it leaves that to the scope.
pub struct ScopedJoinHandle<'scope, T> {
    packet: Arc<Packet<T>>,
    data: Arc<ScopeData>,
    thread: OnceLock<Thread>,
    scope: PhantomData<&'scope ()>,
}

impl<'scope, T> ScopedJoinHandle<'scope, T> {
    pub(super) fn new(packet: Arc<Packet<T>>, data: Arc<ScopeData>) -> Self {
        ScopedJoinHandle { packet, data, thread: OnceLock::new(), scope: PhantomData }
    }

    /// As [`JoinHandle::join`](super::JoinHandle::join).
    ///
    /// # Errors
    ///
    /// The payload with which the fiber panicked; the scope does not raise it again then.
    pub fn join(self) -> super::Result<T> {
        while !self.packet.wait() {
            cancelled::unwind();
        }
        let result = self.packet.take();
        if let Err(payload) = &result {
            self.data.unclaimed(&**payload).fetch_sub(1, Ordering::Relaxed);
        }
        result
    }

    /// As [`JoinHandle::thread`](super::JoinHandle::thread).
    pub fn thread(&self) -> &Thread {
        self.thread.get_or_init(|| Thread::fiber(self.packet.meta.identity()))
    }

    /// As [`JoinHandle::is_finished`](super::JoinHandle::is_finished).
    pub fn is_finished(&self) -> bool {
        self.packet.is_finished()
    }
}

impl<T> std::fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopedJoinHandle").finish_non_exhaustive()
    }
}
