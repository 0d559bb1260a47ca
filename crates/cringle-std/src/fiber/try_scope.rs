//! Scopes that fail as a whole.

use super::body::ScopeMember;
use super::packet::Packet;
use super::scope::Scope;
use super::scope_core::{Membership, ScopeCore, run_scope};
use super::scoped_handle::ScopedJoinHandle;
use super::spawn::{Builder, expect_spawned};
use cringle_core::cancelled;
use cringle_core::cancelled::Cancelled;
use cringle_core::foreign;
use cringle_core::unwinding;
use cringle_core::worker::{Current, Kin, fairness};
use cringle_sys::lock::{Mutex, MutexGuard};
use std::any::Any;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `f` with a scope whose fibers succeed or fail together. The first failure, an `Err` or a
/// panic of a fiber or of `f`, cancels the other fibers and the waits of `f`. When all have ended,
/// the call returns that error or resumes that panic.
/// May suspend the calling fiber.
///
/// A failure goes to the [`join`](ScopedJoinHandle::join) of the fiber if one is already waiting:
/// the scope does not fail then, and nothing is cancelled. A failure that a later `join` takes is
/// not reported by the scope.
///
/// ```
/// use cringle::{fiber, fs::File};
/// use std::io::{self, ErrorKind};
/// use std::time::Duration;
///
/// let result = cringle::run(|| {
///     fiber::try_scope(|s| {
///         s.spawn(|| File::open("/no such file"));
///         // The failure cancels this fiber, an hour early.
///         s.spawn_local(|| fiber::sleep_cancellable(Duration::from_secs(3600)));
///         Ok(())
///     })
/// });
/// let error: io::Error = result.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// ```
///
/// # Errors
///
/// The first failure. If the scope was [cancelled](TryScope::cancel) and unwound a wait of `f`, the
/// error is made from an [`io::Error`].
///
/// Where a `?` follows the call, the compiler cannot infer the type of the errors (E0282, E0283):
/// end the closure with `io::Result::Ok(value)`.
///
/// # Panics
///
/// With the payload of the first failure, if that is a panic; else if a function passed to
/// [`TryScope::on_exit`] panics, with its payload.
///
/// # Cancellation
///
/// As [`scope`](super::scope()): the fibers of a cancelled caller are cancelled, and the call waits
/// for them.
#[track_caller]
pub fn try_scope<'env, F, T, E>(f: F) -> Result<T, E>
where
    F: for<'scope> FnOnce(&'scope TryScope<'scope, 'env, E>) -> Result<T, E>,
    E: From<io::Error>,
{
    fairness::spend();
    let scope = TryScope {
        scope: Scope::new(),
        failures: Arc::new(Failures { list: Mutex::default(), expected: AtomicBool::new(false) }),
    };
    let core = scope.scope.core();
    let (succeeded, mut own_is_first) = (Cell::new(false), false);
    let body = || f(&scope).inspect(|_| succeeded.set(true));
    let result = run_scope(core, body, &mut || {
        if !succeeded.get() {
            own_is_first = scope.failures.list().is_empty();
            core.cancel();
        }
    });
    // Empty the list in any case: the failures may borrow from outside the scope.
    let others = match (scope.failures.take_first(), own_is_first) {
        (Some(failure), true) => {
            discard(failure);
            None
        }
        (others, _) => others,
    };
    match (others, result) {
        (Some(failure), result) => {
            discard(result);
            match failure {
                Failure::Error(error) => Err(error),
                Failure::Panic(payload) => unwinding::resume(payload),
            }
        }
        (None, Ok(result)) => {
            if core.has_unclaimed_cancel()
                && let Some(current) = Current::get()
                && current.is_interrupted()
            {
                // A cancel unwound fibers before their work was done, and the caller is cancelled
                // too.
                return Err(E::from(current.fiber.cancel_error()));
            }
            result
        }
        (None, Err(payload)) => match own_cancel(core, &*payload) {
            Some(error) => Err(E::from(error)),
            None => unwinding::resume(payload),
        },
    }
}

/// Drops a value whose destructor may panic, and drops the payload of that panic.
fn discard<T>(value: T) {
    if let Err(payload) = foreign::drop_value(value) {
        foreign::discard(payload);
    }
}

/// Returns the error for a body that was unwound by a cancel of its own scope, and not of the
/// caller.
fn own_cancel(core: &ScopeCore, payload: &(dyn Any + Send)) -> Option<io::Error> {
    let reason = core.members().cause()?;
    let outside = Current::get().is_some_and(|current| current.is_interrupted());
    (payload.is::<Cancelled>() && !outside).then(|| cancelled::error_of(reason))
}

/// A scope in which fibers can be spawned that succeed or fail together: see [`try_scope`].
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::fiber;
/// use std::io;
///
/// fn spawn_two<'scope>(s: &'scope fiber::TryScope<'scope, '_, io::Error>) {
///     s.spawn(|| Ok(println!("first")));
///     s.spawn(|| Ok(println!("second")));
/// }
///
/// cringle::run(|| {
///     fiber::try_scope(|s| {
///         spawn_two(s);
///         Ok(())
///     })
/// })
/// # }
/// ```
pub struct TryScope<'scope, 'env: 'scope, E> {
    scope: Scope<'scope, 'env>,
    failures: Arc<Failures<E>>,
}

impl<'scope, 'env, E> TryScope<'scope, 'env, E> {
    fn member(&self) -> TryMembership<E> {
        self.with_failures(self.scope.core().enter())
    }

    fn daemon_member(&self) -> TryMembership<E> {
        self.with_failures(self.scope.core().enter_daemon())
    }

    fn with_failures(&self, membership: Membership) -> TryMembership<E> {
        TryMembership { membership, failures: Arc::clone(&self.failures) }
    }

    /// Spawns a fiber that any worker may run.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// use cringle::fiber;
    ///
    /// let answer = cringle::run(|| {
    ///     fiber::try_scope(|s| {
    ///         let handle = s.spawn(|| std::io::Result::Ok(42));
    ///         handle.join().unwrap()
    ///     })
    /// })?;
    /// assert_eq!(answer, 42);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Scope::spawn`](super::Scope::spawn).
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, Result<T, E>>
    where
        F: FnOnce() -> Result<T, E> + Send + 'scope,
        T: Send + 'scope,
        E: Send + 'scope,
    {
        let member = self.member();
        // SAFETY: I2. The scope ends after the fiber has ended and its result was dropped.
        let packet = expect_spawned(unsafe { Builder::new().spawn_sent(None, f, Some(member)) });
        ScopedJoinHandle::new(packet, Arc::clone(self.scope.core()))
    }

    /// Spawns a fiber on the calling fiber's worker. It may borrow data that is not `Sync`.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::fiber;
    /// use std::cell::Cell;
    ///
    /// cringle::run(|| {
    ///     let count = Cell::new(0);
    ///     fiber::try_scope(|s| {
    ///         s.spawn_local(|| Ok(count.set(count.get() + 1)));
    ///         std::io::Result::Ok(())
    ///     })?;
    ///     assert_eq!(count.get(), 1);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Scope::spawn_local`](super::Scope::spawn_local).
    #[track_caller]
    pub fn spawn_local<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, Result<T, E>>
    where
        F: FnOnce() -> Result<T, E> + 'scope,
        T: 'scope,
        E: Send + 'scope,
    {
        let member = self.member();
        // SAFETY: I2. The scope ends after the fiber has ended and its result was dropped.
        let packet =
            expect_spawned(unsafe { Builder::new().spawn_here(Kin::Callers, f, Some(member)) });
        ScopedJoinHandle::new(packet, Arc::clone(self.scope.core()))
    }

    /// Spawns a fiber that serves the others: see
    /// [`Scope::spawn_daemon`](super::Scope::spawn_daemon). If it fails before the scope cancels
    /// it, the scope fails.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::{fiber, time};
    /// use std::time::Duration;
    ///
    /// cringle::run(|| {
    ///     fiber::try_scope(|s| {
    ///         s.spawn_daemon(|| time::sleep(Duration::from_secs(3600)));
    ///         s.spawn(|| time::sleep(Duration::from_millis(1)));
    ///         Ok(())
    ///     })
    /// })
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// As [`spawn`](Self::spawn).
    #[track_caller]
    pub fn spawn_daemon<F>(&'scope self, f: F)
    where
        F: FnOnce() -> Result<(), E> + Send + 'scope,
        E: Send + 'scope,
    {
        let member = self.daemon_member();
        // SAFETY: I2. The scope ends after the fiber has ended and its result was dropped.
        drop(expect_spawned(unsafe { Builder::new().spawn_sent(None, f, Some(member)) }));
    }

    /// Like [`spawn_daemon`](Self::spawn_daemon), but on the calling fiber's worker.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::{fiber, time};
    /// use std::{rc::Rc, time::Duration};
    ///
    /// cringle::run(|| {
    ///     let pause = Rc::new(Duration::from_secs(3600));
    ///     fiber::try_scope(|s| {
    ///         s.spawn_daemon_local(|| time::sleep(*pause));
    ///         Ok(())
    ///     })
    /// })
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// As [`spawn_local`](Self::spawn_local).
    #[track_caller]
    pub fn spawn_daemon_local<F>(&'scope self, f: F)
    where
        F: FnOnce() -> Result<(), E> + 'scope,
        E: Send + 'scope,
    {
        let member = self.daemon_member();
        // SAFETY: I2. The scope ends after the fiber has ended and its result was dropped.
        drop(expect_spawned(unsafe { Builder::new().spawn_here(Kin::Callers, f, Some(member)) }));
    }

    /// Cancels the scope: see [`Scope::cancel`](super::Scope::cancel). Later errors of its fibers
    /// are expected, and are no failures of the scope.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::{fiber, time};
    /// use std::time::Duration;
    ///
    /// cringle::run(|| {
    ///     fiber::try_scope(|s| {
    ///         s.spawn_local(|| time::sleep(Duration::from_secs(3600)));
    ///         s.cancel();
    ///         Ok(())
    ///     })
    /// })
    /// # }
    /// ```
    pub fn cancel(&self) {
        self.failures.expected.store(true, Ordering::Relaxed);
        self.scope.cancel();
    }

    /// Returns whether the scope is cancelled, by [`cancel`](Self::cancel), by a failure, or with
    /// its caller.
    ///
    /// ```
    /// cringle::run(|| {
    ///     cringle::fiber::try_scope(|s| {
    ///         s.cancel();
    ///         assert!(s.is_cancelled());
    ///         std::io::Result::Ok(())
    ///     })
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.scope.is_cancelled()
    }

    /// Registers a function that is called at the end: see
    /// [`Scope::on_exit`](super::Scope::on_exit).
    ///
    /// ```
    /// cringle::run(|| {
    ///     cringle::fiber::try_scope(|s| {
    ///         s.on_exit(|| println!("the fibers have ended"));
    ///         std::io::Result::Ok(())
    ///     })
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_exit<F>(&'scope self, f: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        self.scope.on_exit(f);
    }

    /// Like [`on_exit`](Self::on_exit), but calls `f` on the worker of the calling fiber.
    ///
    /// ```
    /// let name = std::rc::Rc::new("scope");
    /// cringle::run(|| {
    ///     cringle::fiber::try_scope(|s| {
    ///         s.on_exit_local(|| println!("the fibers of the {name} have ended"));
    ///         std::io::Result::Ok(())
    ///     })
    /// })?;
    /// # std::io::Result::Ok(())
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
        self.scope.on_exit_local(f);
    }
}

brief_debug!(TryScope<'a, 'b, E>, |it| running: it.scope.core().running());

/// How a fiber failed.
enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

/// The packet of a fiber that failed, whose result a `join` may have taken.
trait FailedPacket<E> {
    fn take_failure(&self) -> Option<Failure<E>>;
}

impl<T, E> FailedPacket<E> for Packet<Result<T, E>> {
    fn take_failure(&self) -> Option<Failure<E>> {
        match self.try_take()? {
            Ok(Ok(_)) => unreachable!("only failed fibers are listed"),
            Ok(Err(error)) => Some(Failure::Error(error)),
            Err(payload) => Some(Failure::Panic(payload)),
        }
    }
}

/// The failures of a scope's fibers, in the order in which they occurred.
struct Failures<E> {
    list: Mutex<Vec<Unclaimed<E>>>,
    /// The program cancelled the scope, so errors are expected.
    expected: AtomicBool,
}

struct Unclaimed<E>(Arc<dyn FailedPacket<E>>);

// SAFETY: I10. Another thread takes out an `E`, which is `Send` by the bound of each `spawn`, or a
// payload, which is `Send`. The packet's `T` is not there: the fiber failed.
unsafe impl<E> Send for Unclaimed<E> {}

impl<E> Failures<E> {
    fn list(&self) -> MutexGuard<'_, Vec<Unclaimed<E>>> {
        self.list.lock()
    }

    /// Takes the first failure that no `join` has taken, and drops the others.
    fn take_first(&self) -> Option<Failure<E>> {
        let list = std::mem::take(&mut *self.list());
        let mut first = None;
        for unclaimed in list {
            match unclaimed.0.take_failure() {
                failure if first.is_none() => first = failure,
                failure => discard(failure),
            }
        }
        first
    }
}

/// A fiber's membership in a scope that fails with it.
struct TryMembership<E> {
    membership: Membership,
    failures: Arc<Failures<E>>,
}

impl<T, E> ScopeMember<Result<T, E>> for TryMembership<E> {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn is_failure(&self, result: &std::thread::Result<Result<T, E>>) -> bool {
        match result {
            Ok(Ok(_)) => false,
            Ok(Err(_)) => {
                let ended_on_purpose = self.membership.is_dismissed();
                !ended_on_purpose && !self.failures.expected.load(Ordering::Relaxed)
            }
            // A cancel is no failure of the fiber's own.
            Err(payload) => !payload.is::<Cancelled>(),
        }
    }

    fn fail(&self, packet: &Arc<Packet<Result<T, E>>>) {
        type Erased<'a, E> = Arc<dyn FailedPacket<E> + 'a>;
        let failed: Erased<'_, E> = Arc::clone(packet) as _;
        // SAFETY: I2. The scope empties the list before it ends, so the packet does not outlive
        // what `T` borrows.
        let failed = unsafe { std::mem::transmute::<Erased<'_, E>, Erased<'static, E>>(failed) };
        self.failures.list().push(Unclaimed(failed));
        self.membership.core().cancel();
    }
}
