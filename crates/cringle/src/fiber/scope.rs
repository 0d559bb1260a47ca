//! Scoped fibers: those that borrow from the frame that waits for them.
//!
//! The promise is std's: `scope` does not return, nor unwind, before every fiber spawned in it has
//! ended and its result is gone. So what they borrow, they may (**I2**).

use super::Thread;
use super::packet::Packet;
use super::scope_core::{ScopeCore, run_scope};
use super::spawn::{Builder, expect_spawned};
use crate::runtime::cancelled::{self, Cancelled};
use crate::runtime::unwinding;
use crate::runtime::worker::{Worker, fairness};
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

/// Runs `f` with a scope in which fibers may borrow what lives outside of it, and returns when all
/// of them have ended: `std::thread::scope`, for fibers. What fails as a whole, and ends early then,
/// is a [`try_scope`](super::try_scope).
/// May suspend the calling fiber.
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
/// What cannot be written: a borrow of what the fiber may outlive,
///
/// ```compile_fail
/// # cringle::run(|| {
/// cringle::fiber::scope(|s| {
///     let inside = String::new();
///     s.spawn_local(|| inside.len());
/// });
/// # });
/// ```
///
/// and a scope that is kept past its end.
///
/// ```compile_fail
/// # cringle::run(|| {
/// let kept = cringle::fiber::scope(|s| s);
/// kept.spawn(|| ());
/// # });
/// ```
///
/// # Panics
///
/// With `f`'s panic; else with that of a function given to [`Scope::on_exit`]; else if a fiber
/// panicked whose handle was not joined. (If the caller is cancelled, and fibers were for it, the
/// caller is unwound as a cancelled fiber is.)
///
/// # Cancellation
///
/// The wait for the fibers is not interrupted: they borrow from this frame. They are cancelled with
/// the caller, and by [`Scope::cancel`].
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    fairness::spend();
    let scope = Scope { core: ScopeCore::new(), scope: PhantomData, env: PhantomData };
    let result = run_scope(&scope.core, || f(&scope), |_| ());
    match result {
        Err(payload) => unwinding::resume(payload),
        Ok(_) if scope.core.has_unclaimed_panic() => panic!("a scoped fiber panicked"),
        Ok(value) => {
            if scope.core.has_unclaimed_cancel()
                && let Some((worker, fiber)) = Worker::current()
            {
                // No panic, and no message: this fiber is cancelled with them.
                worker.interrupt_if_cancelled(fiber);
            }
            value
        }
    }
}

/// See [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    core: Arc<ScopeCore>,
    /// Invariant, as std's: else a scope could be taken for a longer one.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    pub(super) fn core(&self) -> &Arc<ScopeCore> {
        &self.core
    }

    /// Starts a fiber of this scope that any worker may run. From a thread that is no worker (in
    /// [`unblock`](super::unblock)) the scope's own worker starts it.
    /// Never suspends the calling fiber.
    ///
    /// ```compile_fail
    /// # cringle::run(|| {
    /// let shared = std::rc::Rc::new(1);
    /// cringle::fiber::scope(|s| {
    ///     s.spawn(|| *shared); // an `Rc` does not leave its worker
    /// });
    /// # });
    /// ```
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
    /// Never suspends the calling fiber.
    ///
    /// # Panics
    ///
    /// Outside of [`run`](crate::run), on a thread that is no worker, and where no stack can be
    /// mapped.
    #[track_caller]
    pub fn spawn_local<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + 'scope,
        T: 'scope,
    {
        expect_spawned(Builder::new().spawn_scoped_local(self, f))
    }

    /// Starts a fiber that serves the others: it is cancelled when all of them have ended, and the
    /// scope then waits for it. Any worker may run it.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// use cringle::fiber;
    /// use std::{cell::Cell, time::Duration};
    ///
    /// cringle::run(|| {
    ///     let ticks = Cell::new(0);
    ///     fiber::scope(|s| {
    ///         s.spawn_daemon_local(|| {
    ///             loop {
    ///                 fiber::sleep(Duration::from_millis(1));
    ///                 ticks.set(ticks.get() + 1);
    ///             }
    ///         });
    ///         while ticks.get() < 3 {
    ///             fiber::yield_now();
    ///         }
    ///     });
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// As [`spawn`](Self::spawn); and a panic of the daemon is one of a fiber of the scope.
    #[track_caller]
    pub fn spawn_daemon<F>(&'scope self, f: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        // SAFETY: I2. The scope does not end before the fiber and what it returned have.
        drop(expect_spawned(unsafe {
            Builder::new().spawn_sent(f, Some(self.core.enter_daemon()))
        }));
    }

    /// Like [`spawn_daemon`](Self::spawn_daemon), on the calling fiber's worker.
    /// Never suspends the calling fiber.
    ///
    /// # Panics
    ///
    /// As [`spawn_local`](Self::spawn_local).
    #[track_caller]
    pub fn spawn_daemon_local<F>(&'scope self, f: F)
    where
        F: FnOnce() + 'scope,
    {
        // SAFETY: I2. The scope does not end before the fiber and what it returned have.
        drop(expect_spawned(unsafe {
            Builder::new().spawn_here(f, Some(self.core.enter_daemon()))
        }));
    }

    /// Cancels the scope: its fibers, those that are spawned in it later, and what the closure of
    /// [`scope`] waits for. (A [`join`](ScopedJoinHandle::join) of one of them still waits for its
    /// end, which the cancel brings about.) Works from any fiber and thread, and returns at once.
    ///
    /// ```
    /// use cringle::fiber;
    /// use std::time::Duration;
    ///
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         let sleeper = s.spawn(|| fiber::sleep(Duration::from_secs(3600)));
    ///         s.cancel();
    ///         assert!(sleeper.join().unwrap_err().is::<cringle::Cancelled>());
    ///     });
    /// });
    /// ```
    pub fn cancel(&self) {
        self.core.cancel();
    }

    /// Whether the scope is cancelled, by [`cancel`](Self::cancel) or with what it is in.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// Has `f` called when the fibers of the scope have ended, on the fiber that waits for them; also
    /// when the scope ends by a panic, or is cancelled: nothing is cancelled in `f`. The last one
    /// registered is called first.
    ///
    /// ```
    /// use cringle::fiber;
    /// use std::sync::Mutex;
    ///
    /// let order = Mutex::new(Vec::new());
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         s.on_exit(|| order.lock().unwrap().push("first in, last out"));
    ///         s.on_exit(|| order.lock().unwrap().push("last in, first out"));
    ///         s.spawn(|| order.lock().unwrap().push("a fiber"));
    ///     });
    /// });
    /// let order = order.into_inner().unwrap();
    /// assert_eq!(order, ["a fiber", "last in, first out", "first in, last out"]);
    /// ```
    ///
    /// # Panics
    ///
    /// A panic of `f` does not keep the others from being called; the first is raised when the scope
    /// ends, unless its closure panicked.
    pub fn on_exit<F>(&'scope self, f: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        // SAFETY: I2. The scope calls it before it ends.
        unsafe { self.core.add_exit(Box::new(f), None) };
    }

    /// Like [`on_exit`](Self::on_exit), and calls `f` on the worker of the calling fiber, so that it
    /// may use what is not `Send`.
    ///
    /// # Panics
    ///
    /// On a thread that is no worker of the runtime that the scope was opened in: nobody else could
    /// be given `f` at the end.
    #[track_caller]
    pub fn on_exit_local<F>(&'scope self, f: F)
    where
        F: FnOnce() + 'scope,
    {
        let worker = self.core.worker_or_panic();
        // SAFETY: I2, I3. The scope has it called on this worker before it ends.
        unsafe { self.core.add_exit_here(Box::new(f), worker) };
    }
}

/// As std's.
impl std::panic::RefUnwindSafe for Scope<'_, '_> {}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running = self.core.running();
        f.debug_struct("Scope").field("running", &running).finish_non_exhaustive()
    }
}

/// The right to wait for the end of a fiber of a scope; dropping it leaves that to the scope.
pub struct ScopedJoinHandle<'scope, T> {
    packet: Arc<Packet<T>>,
    core: Arc<ScopeCore>,
    thread: OnceLock<Thread>,
    scope: PhantomData<&'scope ()>,
}

impl<'scope, T> ScopedJoinHandle<'scope, T> {
    pub(super) fn new(packet: Arc<Packet<T>>, core: Arc<ScopeCore>) -> Self {
        ScopedJoinHandle { packet, core, thread: OnceLock::new(), scope: PhantomData }
    }

    /// As [`JoinHandle::join`](super::JoinHandle::join).
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The payload with which the fiber panicked; the scope does not raise it again then. A
    /// [`Cancelled`] if it was cancelled in a wait that has no room for an error.
    ///
    /// # Cancellation
    ///
    /// As [`JoinHandle::join`](super::JoinHandle::join), with one exception: if it is this scope that was cancelled, and not
    /// the caller for some other reason, the fiber was cancelled too, and its end is waited for.
    pub fn join(self) -> super::Result<T> {
        fairness::spend();
        loop {
            // Where panics abort, a join has no way to say that it was cancelled.
            if let Some(result) = self.try_join(cfg!(panic = "unwind")) {
                return result;
            }
            cancelled::unwind();
        }
    }

    /// Like [`join`](Self::join), and returns an error where that unwinds.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The caller was cancelled first: see [`cancel::reason`](crate::cancel::reason).
    pub fn join_cancellable(self) -> io::Result<super::Result<T>> {
        fairness::spend();
        self.try_join(true).ok_or_else(super::refusal)
    }

    /// `None` if the caller was cancelled, with the fiber or before its end.
    fn try_join(&self, interruptible: bool) -> Option<super::Result<T>> {
        let interrupted = || {
            interruptible
                && Worker::current().is_some_and(|(worker, fiber)| {
                    worker.is_interrupted_beyond(fiber, self.core.members())
                })
        };
        if !self.packet.wait(interrupted) {
            return None;
        }
        // Both were cancelled at once: whoever cancelled the caller is told, not the caller.
        if interrupted() && self.packet.was_cancelled() {
            return None;
        }
        let result = self.packet.take();
        if let Err(payload) = &result {
            self.core.claim(payload.is::<Cancelled>());
        }
        Some(result)
    }

    /// As [`JoinHandle::thread`](super::JoinHandle::thread).
    pub fn thread(&self) -> &Thread {
        self.thread.get_or_init(|| Thread::fiber(self.packet.meta.identity()))
    }

    /// As [`JoinHandle::is_finished`](super::JoinHandle::is_finished).
    /// Suspends the calling fiber only after 128 failures in a row.
    pub fn is_finished(&self) -> bool {
        let finished = self.packet.is_finished();
        fairness::tried(finished);
        finished
    }
}

impl<T> std::fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopedJoinHandle").finish_non_exhaustive()
    }
}
