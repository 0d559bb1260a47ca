//! Scopes that fail as a whole.

use super::packet::Packet;
use super::scope::ScopedJoinHandle;
use super::scope_core::{Membership, ScopeCore, run_scope};
use super::spawn::{Builder, expect_spawned};
use crate::runtime::cancelled::Cancelled;
use crate::runtime::foreign;
use crate::runtime::unwinding;
use crate::runtime::worker::{Worker, fairness};
use std::any::Any;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Runs `f` with a scope whose fibers succeed or fail together: the first that fails, by an `Err` or
/// a panic, cancels the others and what `f` itself waits for; when all have ended, its error is
/// returned, or its panic raised. So does `f`.
/// May suspend the calling fiber.
///
/// A failure is whose who asks for it: one that a [`join`](ScopedJoinHandle::join) was already waiting
/// for cancels nobody, and one that a `join` has taken is not reported again.
///
/// ```
/// use cringle::{fiber, fs::File};
/// use std::io::{self, ErrorKind};
/// use std::time::Duration;
///
/// let result = cringle::run(|| {
///     fiber::try_scope(|s| {
///         s.spawn(|| File::open("/no such file"));
///         // This one is cut short, an hour early.
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
/// The first failure, see above. `E` is made of an [`io::Error`] where the scope is
/// [cancelled](TryScope::cancel) and `f` was in a wait that has no room for an error.
///
/// # Panics
///
/// With the first failure, if it is a panic; else with that of a function given to
/// [`TryScope::on_exit`].
///
/// # Cancellation
///
/// As [`scope`](super::scope()): a cancelled caller's fibers are cancelled, and waited for.
#[track_caller]
pub fn try_scope<'env, F, T, E>(f: F) -> Result<T, E>
where
    F: for<'scope> FnOnce(&'scope TryScope<'scope, 'env, E>) -> Result<T, E>,
    E: From<io::Error>,
{
    fairness::spend();
    let scope = TryScope {
        core: ScopeCore::new(),
        failures: Arc::new(Failures { list: Mutex::default(), expected: AtomicBool::new(false) }),
        scope: PhantomData,
        env: PhantomData,
    };
    let mut own_is_first = false;
    let result = run_scope(
        &scope.core,
        || f(&scope),
        |result| {
            if !matches!(result, Ok(Ok(_))) {
                own_is_first = scope.failures.list().is_empty();
                scope.core.cancel();
            }
        },
    );
    // Taken out in any case: what is in there may borrow from what the scope is in.
    let others = match (scope.failures.first(), own_is_first) {
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
            if scope.core.has_unclaimed_cancel()
                && let Some((worker, fiber)) = Worker::current()
                && worker.is_interrupted(fiber)
            {
                // Fibers were cut short with the caller: what they were to do is not done.
                return Err(E::from(fiber.cancel_error()));
            }
            result
        }
        (None, Err(payload)) => match own_cancel(&scope.core, &*payload) {
            Some(error) => Err(E::from(error)),
            None => unwinding::resume(payload),
        },
    }
}

/// Drops what the scope is not left with.
fn discard<T>(value: T) {
    if let Err(payload) = foreign::drop_value(value) {
        foreign::discard(payload);
    }
}

/// The error for a body that was unwound because its scope was cancelled, and nothing outside of it.
fn own_cancel(core: &ScopeCore, payload: &(dyn Any + Send)) -> Option<io::Error> {
    let reason = core.members().cause()?;
    let outside = Worker::current().is_some_and(|(worker, fiber)| worker.is_interrupted(fiber));
    (payload.is::<Cancelled>() && !outside).then(|| reason.error())
}

/// See [`try_scope`].
pub struct TryScope<'scope, 'env: 'scope, E> {
    core: Arc<ScopeCore>,
    failures: Arc<Failures<E>>,
    /// Invariant, as std's: else a scope could be taken for a longer one.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env, E> TryScope<'scope, 'env, E> {
    /// Starts a fiber of this scope that any worker may run.
    /// Never suspends the calling fiber.
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
        let place = Place::new(self, self.core.enter());
        // SAFETY: I2. The scope does not end before the fiber and what it returned have.
        let packet = expect_spawned(unsafe { Builder::new().spawn_sent(f, Some(place)) });
        ScopedJoinHandle::new(packet, Arc::clone(&self.core))
    }

    /// Starts a fiber of this scope on the calling fiber's worker; it may borrow what is not `Sync`.
    /// Never suspends the calling fiber.
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
        let place = Place::new(self, self.core.enter());
        // SAFETY: I2. The scope does not end before the fiber and what it returned have.
        let packet = expect_spawned(unsafe { Builder::new().spawn_here(f, Some(place)) });
        ScopedJoinHandle::new(packet, Arc::clone(&self.core))
    }

    /// Starts a fiber that serves the others: see [`Scope::spawn_daemon`](super::Scope::spawn_daemon).
    /// If it fails before it is cancelled, the scope does.
    /// Never suspends the calling fiber.
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
        let place = Place::new(self, self.core.enter_daemon());
        // SAFETY: I2. The scope does not end before the fiber and what it returned have.
        drop(expect_spawned(unsafe { Builder::new().spawn_sent(f, Some(place)) }));
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
        F: FnOnce() -> Result<(), E> + 'scope,
        E: Send + 'scope,
    {
        let place = Place::new(self, self.core.enter_daemon());
        // SAFETY: I2. The scope does not end before the fiber and what it returned have.
        drop(expect_spawned(unsafe { Builder::new().spawn_here(f, Some(place)) }));
    }

    /// Cancels the scope: see [`Scope::cancel`](super::Scope::cancel). Errors of its fibers that come
    /// later are no failures of the scope: they were asked for.
    pub fn cancel(&self) {
        self.failures.expected.store(true, Ordering::Relaxed);
        self.core.cancel();
    }

    /// Whether the scope is cancelled: by [`cancel`](Self::cancel), by a failure, or with what it is
    /// in.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// Has `f` called at the end: see [`Scope::on_exit`](super::Scope::on_exit).
    pub fn on_exit<F>(&'scope self, f: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        // SAFETY: I2. The scope calls it before it ends.
        unsafe { self.core.add_exit(Box::new(f), None) };
    }

    /// Like [`on_exit`](Self::on_exit), on the worker of the calling fiber.
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

impl<E> std::fmt::Debug for TryScope<'_, '_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running = self.core.running();
        f.debug_struct("TryScope").field("running", &running).finish_non_exhaustive()
    }
}

/// How a fiber failed.
enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

/// Results from which a failure can be had, unless a `join` has taken it.
trait Failed<E> {
    fn take_failure(&self) -> Option<Failure<E>>;
}

impl<T, E> Failed<E> for Packet<Result<T, E>> {
    fn take_failure(&self) -> Option<Failure<E>> {
        match self.take_if_there()? {
            Ok(Ok(_)) => unreachable!("it was a failure"),
            Ok(Err(error)) => Some(Failure::Error(error)),
            Err(payload) => Some(Failure::Panic(payload)),
        }
    }
}

/// Failures of a scope's fibers, in the order they came.
struct Failures<E> {
    list: Mutex<Vec<Unclaimed<E>>>,
    /// The scope was cancelled on purpose: errors are expected.
    expected: AtomicBool,
}

struct Unclaimed<E>(Arc<dyn Failed<E>>);

// SAFETY: what is taken out of it is an `E`, which is `Send` (the bound of each `spawn`), or a payload;
// what is left is empty.
unsafe impl<E> Send for Unclaimed<E> {}

impl<E> Failures<E> {
    fn list(&self) -> MutexGuard<'_, Vec<Unclaimed<E>>> {
        self.list.lock().expect("no code panics under this lock")
    }

    /// The first that nobody has taken. The others are dropped.
    fn first(&self) -> Option<Failure<E>> {
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

/// A fiber's place in such a scope.
struct Place<E> {
    membership: Membership,
    failures: Arc<Failures<E>>,
}

impl<E> Place<E> {
    fn new(scope: &TryScope<'_, '_, E>, membership: Membership) -> Place<E> {
        Place { membership, failures: Arc::clone(&scope.failures) }
    }
}

impl<T, E> super::spawn::Place<Result<T, E>> for Place<E> {
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
            // A cancelled fiber fails by this, not of itself; whoever cancelled it knows.
            Err(payload) => !payload.is::<Cancelled>(),
        }
    }

    fn fail(&self, packet: &Arc<Packet<Result<T, E>>>) {
        let failed: Arc<dyn Failed<E> + '_> = Arc::clone(packet) as _;
        // SAFETY: I2. The scope takes it out and drops it before it ends, and with it what `T` borrows.
        let failed =
            unsafe { std::mem::transmute::<Arc<dyn Failed<E> + '_>, Arc<dyn Failed<E>>>(failed) };
        self.failures.list().push(Unclaimed(failed));
        self.membership.core().cancel();
    }
}
