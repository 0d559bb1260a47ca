//! Scoped fibers, which borrow from the frame that waits for them.
//!
//! The promise is std's: `scope` neither returns nor unwinds before every fiber spawned in it has
//! ended and its result was dropped or taken. So the fibers may borrow from the frame (**I2**).

use super::scope_core::{ScopeCore, run_scope};
use super::scoped_handle::ScopedJoinHandle;
use super::spawn::{Builder, expect_spawned};
use cringle_core::unwinding;
use cringle_core::worker::{Current, Kin, fairness};
use std::marker::PhantomData;
use std::sync::Arc;

/// Runs `f` with a scope in which fibers may borrow data from outside of it, and returns when all
/// of them have ended: `std::thread::scope`, for fibers. For a scope that ends early when one of
/// its fibers fails, see [`try_scope`](super::try_scope).
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
/// The compiler rejects a borrow of data that the fiber may outlive,
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
/// If `f` panics, with its payload; else if a function passed to [`Scope::on_exit`] panics, with
/// its payload; else if a fiber panicked whose handle was not joined. If the caller is cancelled
/// and a cancel unwound fibers of the scope, the caller unwinds as a cancelled fiber does.
///
/// # Cancellation
///
/// A cancel does not interrupt the wait for the fibers, since they borrow from this frame. The
/// fibers are cancelled with the caller, and by [`Scope::cancel`].
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    fairness::spend();
    let scope = Scope::new();
    match run_scope(&scope.core, || f(&scope), &mut || ()) {
        Err(payload) => unwinding::resume(payload),
        Ok(value) => {
            raise_unclaimed(&scope.core);
            value
        }
    }
}

/// Unwinds the owner of a scope whose fibers have panicked, or were cancelled with the owner.
#[inline]
#[track_caller]
fn raise_unclaimed(core: &ScopeCore) {
    assert!(!core.has_unclaimed_panic(), "a scoped fiber panicked");
    if core.has_unclaimed_cancel()
        && let Some(current) = Current::get()
    {
        // The fibers were cancelled, and this one with them: no panic and no message.
        current.interrupt_if_cancelled();
    }
}

/// [`scope`] for fibers that catch all panics and cancels. A fiber that gets no stack fails
/// nevertheless, and the caller learns of that in another way.
#[track_caller]
pub(super) fn scope_of_caught<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    fairness::spend();
    let scope = Scope::new();
    run_scope(&scope.core, || f(&scope), &mut || ())
        .unwrap_or_else(|payload| unwinding::resume(payload))
}

/// A scope in which fibers can be spawned: see [`scope`].
///
/// ```
/// use cringle::fiber;
///
/// fn spawn_two<'scope>(s: &'scope fiber::Scope<'scope, '_>) {
///     s.spawn(|| println!("first"));
///     s.spawn(|| println!("second"));
/// }
///
/// cringle::run(|| fiber::scope(|s| spawn_two(s)));
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    core: Arc<ScopeCore>,
    /// Invariant, as in std: otherwise a scope could be used as one with a longer lifetime.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    #[track_caller]
    pub(super) fn new() -> Self {
        Scope { core: ScopeCore::new(), scope: PhantomData, env: PhantomData }
    }

    pub(super) fn core(&self) -> &Arc<ScopeCore> {
        &self.core
    }

    /// Spawns a fiber that any worker may run. On a thread that is no worker (in
    /// [`unblock`](super::unblock)), the fiber starts on the worker of the scope's owner.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// use cringle::fiber;
    ///
    /// cringle::run(|| {
    ///     let numbers = [1, 2, 3];
    ///     let sum = fiber::scope(|s| s.spawn(|| numbers.iter().sum::<i32>()).join().unwrap());
    ///     assert_eq!(sum, 6);
    /// });
    /// ```
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
    /// Outside of `run`.
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        expect_spawned(Builder::new().spawn_scoped(self, f))
    }

    /// Spawns a fiber on the calling fiber's worker. It may borrow data that is not `Sync`.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// use cringle::fiber;
    /// use std::cell::Cell;
    ///
    /// cringle::run(|| {
    ///     let count = Cell::new(0);
    ///     fiber::scope(|s| {
    ///         s.spawn_local(|| count.set(count.get() + 1));
    ///         s.spawn_local(|| count.set(count.get() + 1));
    ///     });
    ///     assert_eq!(count.get(), 2);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of `run`, on a thread that is no worker, and if no stack can be mapped.
    #[track_caller]
    pub fn spawn_local<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + 'scope,
        T: 'scope,
    {
        expect_spawned(Builder::new().spawn_scoped_local(self, f))
    }

    /// Spawns a fiber that serves the others. When all other fibers have ended, the scope cancels
    /// it and waits for its end. Any worker may run it.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// use cringle::fiber;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use std::time::Duration;
    ///
    /// cringle::run(|| {
    ///     let ticks = AtomicU32::new(0);
    ///     fiber::scope(|s| {
    ///         s.spawn_daemon(|| {
    ///             loop {
    ///                 fiber::sleep(Duration::from_millis(1));
    ///                 ticks.fetch_add(1, Ordering::Relaxed);
    ///             }
    ///         });
    ///         s.spawn(|| fiber::sleep(Duration::from_millis(5)));
    ///     });
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// As [`spawn`](Self::spawn). A panic of the daemon counts as a panic of any other fiber of the
    /// scope.
    #[track_caller]
    pub fn spawn_daemon<F>(&'scope self, f: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        // SAFETY: I2. The scope ends after the fiber has ended and its result was dropped.
        drop(expect_spawned(unsafe {
            Builder::new().spawn_sent(None, f, Some(self.core.enter_daemon()))
        }));
    }

    /// Like [`spawn_daemon`](Self::spawn_daemon), but on the calling fiber's worker.
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
    /// As [`spawn_local`](Self::spawn_local).
    #[track_caller]
    pub fn spawn_daemon_local<F>(&'scope self, f: F)
    where
        F: FnOnce() + 'scope,
    {
        // SAFETY: I2. The scope ends after the fiber has ended and its result was dropped.
        drop(expect_spawned(unsafe {
            Builder::new().spawn_here(Kin::Callers, f, Some(self.core.enter_daemon()))
        }));
    }

    /// Cancels the scope: its fibers, fibers that are spawned in it later, and the waits of the
    /// closure passed to [`scope`]. A [`join`](ScopedJoinHandle::join) of one of the fibers still
    /// waits for that fiber's end, which the cancel brings about. Can be called from any fiber and
    /// thread, and returns at once.
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

    /// Returns whether the scope is cancelled, by [`cancel`](Self::cancel) or with its caller.
    ///
    /// ```
    /// cringle::run(|| {
    ///     cringle::fiber::scope(|s| {
    ///         assert!(!s.is_cancelled());
    ///         s.cancel();
    ///         assert!(s.is_cancelled());
    ///     });
    /// });
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// Registers a function that the fiber that opened the scope calls when the scope's fibers have
    /// ended, also if the scope panicked or was cancelled. No cancel reaches `f`. The functions are
    /// called in the reverse order of their registration.
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
    /// If `f` panics, the other functions are still called. The scope then ends with the first of
    /// these panics, unless its closure panicked.
    pub fn on_exit<F>(&'scope self, f: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        // SAFETY: I2. The scope calls `f` before it ends.
        unsafe { self.core.add_exit(Box::new(f)) };
    }

    /// Like [`on_exit`](Self::on_exit), but calls `f` on the worker of the calling fiber, so that
    /// it may use data that is not `Send`.
    ///
    /// ```
    /// use cringle::fiber;
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// let ended = cringle::run(|| {
    ///     let ended = Rc::new(Cell::new(false));
    ///     fiber::scope(|s| s.on_exit_local(|| ended.set(true)));
    ///     ended.get()
    /// });
    /// assert!(ended);
    /// ```
    ///
    /// # Panics
    ///
    /// On a thread that is no worker of the scope's runtime: no fiber could call `f` on it at the
    /// end.
    #[track_caller]
    pub fn on_exit_local<F>(&'scope self, f: F)
    where
        F: FnOnce() + 'scope,
    {
        let home = self.core.home_or_panic();
        // SAFETY: I2, I3. The scope calls `f` on this worker before it ends.
        unsafe { self.core.add_exit_here(Box::new(f), home) };
    }
}

// As for std's scopes.
impl std::panic::RefUnwindSafe for Scope<'_, '_> {}

brief_debug!(Scope<'a, 'b>, |it| running: it.core.running());
