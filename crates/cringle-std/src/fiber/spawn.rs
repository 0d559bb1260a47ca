//! Spawning fibers.

use super::JoinHandle;
use super::body::{ScopeMember, Sent, local_body};
use super::packet::Packet;
use super::scope::Scope;
use super::scope_core::Membership;
use super::scoped_handle::ScopedJoinHandle;
use cringle_core::family::{FamilyChoice, SentFamily};
use cringle_core::label::Origin;
use cringle_core::shared::{Body, Unstarted};
use cringle_core::stack::{check_stack_bytes, default_stack_bytes};
use cringle_core::worker::{Current, Kin, Worker, fairness};
use std::io;
use std::panic::Location;
use std::sync::Arc;

/// Spawns a fiber that any worker of the runtime may run, as `std::thread::spawn` spawns a thread.
/// Never suspends the calling fiber.
///
/// The fiber waits, in the order of the spawns, among the unstarted fibers of this worker; an idle
/// worker may take it. Once started it never changes its worker. Dropping the handle detaches it.
/// Fibers that have not ended when the closure of `run` returns are cancelled, and `run` waits for
/// them.
///
/// The fiber gets its stack when it starts. If none can be mapped, it waits for the stack of
/// another fiber. If none becomes free for a second, the closure is dropped without a call, and
/// [`join`](JoinHandle::join) returns the error.
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let handle = fiber::spawn(|| "from a fiber");
///     assert_eq!(handle.join().unwrap(), "from a fiber");
/// });
/// ```
///
/// # Panics
///
/// Outside of `run`. [`Builder::spawn`] returns other failures as errors.
#[track_caller]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    expect_spawned(Builder::new().spawn(f))
}

/// Spawns a fiber on this worker. Its closure and its result need not be `Send`: it stays with its
/// caller, and moves only together with it (see `cringle::Builder::balance`). It is appended to the
/// ready fibers, and the caller continues. Never suspends the calling fiber.
///
/// ```
/// use cringle::fiber;
/// use std::{cell::Cell, rc::Rc};
///
/// cringle::run(|| {
///     let count = Rc::new(Cell::new(0));
///     let theirs = Rc::clone(&count);
///     fiber::spawn_local(move || theirs.set(theirs.get() + 1)).join().unwrap();
///     assert_eq!(count.get(), 1);
/// });
/// ```
///
/// # Panics
///
/// Outside of `run`, and if no stack can be mapped.
#[track_caller]
pub fn spawn_local<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    expect_spawned(Builder::new().spawn_local(f))
}

#[track_caller]
pub(super) fn expect_spawned<T>(spawned: io::Result<T>) -> T {
    match spawned {
        Ok(value) => value,
        Err(e) => panic!("failed to spawn a fiber: {e}"),
    }
}

/// Configures a fiber before it is spawned: its name, its stack size and its worker.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::{fiber, runtime};
///
/// cringle::Builder::new().workers(2).run(|| {
///     let handle = fiber::Builder::new()
///         .name("indexer".into())
///         .stack_size(256 * 1024)
///         .worker(1)
///         .spawn(|| (fiber::current().name().map(str::to_owned), runtime::worker()))?;
///     assert_eq!(handle.join().unwrap(), (Some("indexer".to_owned()), Some(1)));
///     Ok(())
/// })?
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until one of its spawn methods is called"]
pub struct Builder {
    name: Option<String>,
    stack_bytes: Option<usize>,
    worker: Option<usize>,
    /// The worker that starts the fiber, which may move then.
    starts_on: Option<usize>,
    origin: Option<Origin>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("stack_size", &self.stack_bytes)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Creates a builder for a fiber without a name, on any worker, with a stack of 1 MiB or of
    /// `RUST_MIN_STACK` bytes, whichever is larger.
    pub fn new() -> Builder {
        Builder::default()
    }
}

setters! {
    Builder:
    /// Names the fiber. `fiber::current().name()`, panic messages and dumps show the name. As in
    /// std, the spawn panics if the name contains a NUL byte.
    ///
    /// std's panic message names the thread, so a line with the fiber's name precedes it. A panic
    /// hook of the program replaces both lines; it can print `fiber::current().name()`.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::fiber;
    ///
    /// cringle::run(|| {
    ///     let named = fiber::Builder::new().name("indexer".into());
    ///     let handle = named.spawn(|| assert_eq!(fiber::current().name(), Some("indexer")))?;
    ///     assert_eq!(handle.thread().name(), Some("indexer"));
    ///     handle.join().unwrap();
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn name(name: String) |it| it.name = Some(name);

    /// Sets the size of the stack in bytes, rounded up to a power of two. The size is virtual:
    /// pages that are never touched use no memory.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// cringle::run(|| {
    ///     let deep = cringle::fiber::Builder::new().stack_size(16 << 20);
    ///     deep.spawn(|| std::hint::black_box([0_u8; 8 << 20])[7])?.join().unwrap();
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn stack_size(bytes: usize) |it| it.stack_bytes = Some(bytes);

    /// Sets the worker that runs the fiber, counted from 0, as GHC's `forkOn` does. No other worker
    /// takes it.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::{fiber, runtime};
    ///
    /// cringle::Builder::new().workers(2).run(|| {
    ///     let handle = fiber::Builder::new().worker(1).spawn(runtime::worker)?;
    ///     assert_eq!(handle.join().unwrap(), Some(1));
    ///     Ok(())
    /// })?
    /// # }
    /// ```
    pub fn worker(worker: usize) |it| it.worker = Some(worker);

    /// Sets the place in the program that dumps and traces show, for a fiber that the library
    /// spawns.
    pub(crate) fn origin(origin: Origin) |it| it.origin = Some(origin);

    /// Sets the worker that starts the fiber. Unlike one of [`worker`](Self::worker), the fiber may
    /// move then.
    pub(crate) fn starts_on(worker: usize) |it| it.starts_on = Some(worker);
}

impl Builder {
    /// Like [`spawn`], but returns failures as errors.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// cringle::run(|| {
    ///     let error = cringle::fiber::Builder::new().worker(99).spawn(|| ()).unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the runtime has no such worker, or if the stack fits into no address
    /// space. If no stack can be mapped, [`join`](JoinHandle::join) returns the error: see
    /// [`spawn`].
    ///
    /// # Panics
    ///
    /// Outside of `run`.
    #[inline]
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: I2. `f` and its result are 'static, so nothing that they borrow ends.
        unsafe { self.spawn_sent(None, f, None::<Membership>) }.map(JoinHandle::new)
    }

    /// Like [`spawn_local`], but returns failures as errors.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let shared = std::rc::Rc::new(1);
    /// cringle::run(move || {
    ///     let handle = cringle::fiber::Builder::new().spawn_local(move || *shared)?;
    ///     assert_eq!(handle.join().unwrap(), 1);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if [`worker`](Self::worker) names another worker than the calling one, and
    /// the system's error if no stack can be mapped.
    ///
    /// # Panics
    ///
    /// Outside of `run`.
    #[inline]
    #[track_caller]
    pub fn spawn_local<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        // SAFETY: I2. `f` and its result are 'static, so nothing that they borrow ends.
        unsafe { self.spawn_here(Kin::Callers, f, None::<Membership>) }.map(JoinHandle::new)
    }

    /// Like [`Scope::spawn`], but returns failures as errors.
    /// Never suspends the calling fiber.
    ///
    /// # Errors
    ///
    /// As for [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// Outside of `run`.
    #[track_caller]
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        // SAFETY: I2. The scope ends after the fiber has ended and its result was dropped or taken.
        let packet = unsafe { self.spawn_sent(None, f, Some(scope.core().enter())) }?;
        Ok(ScopedJoinHandle::new(packet, Arc::clone(scope.core())))
    }

    /// Like [`Scope::spawn_local`], but returns failures as errors.
    /// Never suspends the calling fiber.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::fiber;
    /// use std::cell::Cell;
    ///
    /// cringle::run(|| {
    ///     let count = Cell::new(0);
    ///     fiber::scope(|s| {
    ///         fiber::Builder::new().spawn_scoped_local(s, || count.set(1))?;
    ///         std::io::Result::Ok(())
    ///     })?;
    ///     assert_eq!(count.get(), 1);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Builder::spawn_local`].
    ///
    /// # Panics
    ///
    /// Outside of `run`.
    #[track_caller]
    pub fn spawn_scoped_local<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + 'scope,
        T: 'scope,
    {
        // SAFETY: I2. The scope ends after the fiber has ended and its result was dropped or taken.
        let packet = unsafe { self.spawn_here(Kin::Callers, f, Some(scope.core().enter())) }?;
        Ok(ScopedJoinHandle::new(packet, Arc::clone(scope.core())))
    }

    /// [`spawn_scoped_local`](Self::spawn_scoped_local) with thread-locals of its own, where they
    /// are private. What `f` shares with other fibers is as if they were threads: the caller has
    /// checked that, instead of bounds.
    #[track_caller]
    pub(crate) fn spawn_scoped_apart<'scope, F>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<()>
    where
        F: FnOnce() + 'scope,
    {
        // SAFETY: I2. The scope ends after the fiber has ended.
        unsafe { self.spawn_here(Kin::None, f, Some(scope.core().enter())) }.map(drop)
    }

    /// Spawns a fiber that any worker may start, in a family of its own. Or in the given one, if
    /// the builder names its worker.
    ///
    /// # Safety
    ///
    /// What `f` and `T` borrow outlives the fiber and the packet.
    #[track_caller]
    pub(super) unsafe fn spawn_sent<F, T, M>(
        self,
        family: Option<SentFamily>,
        f: F,
        member: Option<M>,
    ) -> io::Result<Arc<Packet<T>>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
        M: ScopeMember<T> + Send,
    {
        self.check_name();
        let outside = match Worker::here() {
            Some(_) => None,
            // A pool thread that runs a closure for a fiber of the scope.
            None => member.as_ref().and_then(|member| {
                let (shared, home) = member.membership().core().home()?;
                Some((Arc::clone(shared), home))
            }),
        };
        let workers = match &outside {
            Some((shared, _)) => shared.workers(),
            None => current_or_panic().worker.shared().workers(),
        };
        if self.worker.is_some_and(|index| index >= workers) {
            let text = format!("the runtime has no such worker: it has {workers}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let stack_bytes = self.stack_bytes();
        check_stack_bytes(stack_bytes)?;
        let origin = self.origin.unwrap_or(Location::caller());
        fairness::count();
        let packet = Packet::new(self.name.map(Arc::from), origin);
        packet.report_spawn();
        let body: Box<dyn Body + '_> = Box::new(Sent { packet: Arc::clone(&packet), member, f });
        // SAFETY: I2. The runtime runs every unstarted fiber to its end, and by this function's
        // contract what the body borrows outlives the fiber.
        let body = unsafe { std::mem::transmute::<Box<dyn Body + '_>, Box<dyn Body>>(body) };
        // A family that it joins is where it is for a reason of its own, which may end before it.
        let is_placed = self.worker.is_some() && family.is_none();
        let family = family.map_or(FamilyChoice::Own, FamilyChoice::Join);
        let unstarted = Unstarted { body, stack_bytes, origin: 0, is_placed, family };
        match (outside, self.worker.or(self.starts_on)) {
            (Some((shared, home)), index) => {
                let started = shared.start_from_outside(index.unwrap_or(home), unstarted);
                assert!(started.is_ok(), "the workers stay while a scope is open");
            }
            (None, Some(index)) => current_or_panic().worker.make_placed(index, unstarted),
            (None, None) => current_or_panic().worker.make_unstarted(unstarted),
        }
        Ok(packet)
    }

    /// Spawns a fiber on this worker, with the thread-locals of `kin`.
    ///
    /// # Safety
    ///
    /// What `f` and `T` borrow outlives the fiber and the packet.
    #[track_caller]
    pub(super) unsafe fn spawn_here<F, T, M>(
        self,
        kin: Kin,
        f: F,
        member: Option<M>,
    ) -> io::Result<Arc<Packet<T>>>
    where
        F: FnOnce() -> T,
        M: ScopeMember<T>,
    {
        self.check_name();
        let current = current_or_panic();
        current.count();
        if self.worker.is_some_and(|index| index != current.worker.index() as usize) {
            let text = "a local fiber runs on the worker that spawns it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let stack_bytes = self.stack_bytes();
        let origin = self.origin.unwrap_or(Location::caller());
        let packet = Packet::new(self.name.map(Arc::from), origin);
        packet.report_spawn();
        let body = local_body(Arc::clone(&packet), member, f);
        // SAFETY: I2. By this function's contract, what the body borrows outlives the fiber.
        let started = unsafe { current.worker.start(stack_bytes, kin, body) }?;
        if self.worker.is_some() {
            started.family().pin();
        }
        Ok(packet)
    }

    #[inline]
    #[track_caller]
    fn check_name(&self) {
        if let Some(name) = &self.name
            && let Some(at) = name.find('\0')
        {
            panic!(
                "fiber name may not contain interior null bytes: one is at byte {at} of {name:?}"
            );
        }
    }

    fn stack_bytes(&self) -> usize {
        self.stack_bytes.unwrap_or_else(default_stack_bytes)
    }
}

/// Returns the calling fiber. Panics outside of one, with a message that says what to do.
#[track_caller]
pub(super) fn current_or_panic() -> Current {
    match Current::get() {
        Some(current) => current,
        None => panic!(
            "a fiber can only be spawned inside of `cringle::run`: wrap the calling code, \
             `cringle::run(|| …)`"
        ),
    }
}
