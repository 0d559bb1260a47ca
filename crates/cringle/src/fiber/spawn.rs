//! Making fibers.

use super::JoinHandle;
use super::packet::{Packet, drop_unwanted};
use super::scope::{Scope, ScopedJoinHandle};
use super::scope_core::Membership;
use crate::runtime::fiber::FiberRef;
use crate::runtime::fiber::body::{run_body, with_identity};
use crate::runtime::foreign;
use crate::runtime::label::Origin;
use crate::runtime::lent_frame::LentFrame;
use crate::runtime::shared::{Body, Unstarted};
use crate::runtime::stack::{check_stack_bytes, default_stack_bytes};
use crate::runtime::worker::{Here, Worker, fairness};
use crate::tracing_events;
use std::io;
use std::panic::Location;
use std::sync::Arc;

/// Starts a fiber that any worker of the runtime may run, as `std::thread::spawn` starts a thread.
/// Never suspends the calling fiber.
///
/// It waits in the order it was made among the unstarted fibers of this worker; an idle worker may
/// take it. Once started it never changes its worker. Dropping the handle detaches it. Fibers that
/// are left when the closure of [`run`](crate::run) returns are cancelled and waited for.
///
/// It gets its stack when it starts. Where none can be mapped it waits for the stack of another fiber; if none
/// becomes free for a second, its closure is dropped uncalled, and [`join`](JoinHandle::join) returns the error.
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
/// Outside of [`run`](crate::run). ([`Builder::spawn`] reports other failures.)
#[track_caller]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    expect_spawned(Builder::new().spawn(f))
}

/// Starts a fiber on this worker. What it captures and returns need not be `Send`: it never leaves
/// the thread. It is appended to the ready fibers, and the caller goes on.
/// Never suspends the calling fiber.
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
/// Outside of [`run`](crate::run), and where no stack can be mapped.
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

/// Names a fiber, sizes its stack, places it on a worker.
///
/// ```
/// use cringle::{fiber, runtime};
///
/// cringle::Builder::new().workers(2).run(|| {
///     let handle = fiber::Builder::new()
///         .name("indexer".into())
///         .stack_size(256 * 1024)
///         .worker(1)
///         .spawn(|| (fiber::current().name().map(str::to_owned), runtime::worker()))?;
///     assert_eq!(handle.join().unwrap(), (Some("indexer".to_owned()), Some(1)));
///     Ok::<(), std::io::Error>(())
/// })??;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "no fiber is made until one of the spawn methods is called"]
pub struct Builder {
    name: Option<String>,
    stack_bytes: Option<usize>,
    worker: Option<usize>,
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
    /// A fiber without a name, with a stack of 1 MiB (or `RUST_MIN_STACK`, if that is more), on
    /// any worker.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the fiber: for `fiber::current().name()`, panic messages and reports. As in std, the spawn panics
    /// if the name contains a NUL byte.
    ///
    /// std's panic message names the thread, so a line with the fiber's name precedes it. A panic hook of your
    /// own replaces both; it can print `fiber::current().name()`.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// The size of its stack in bytes, rounded up to a power of two. It is virtual: pages that are never
    /// touched cost nothing.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Has the given worker run it (counted from 0), as GHC's `forkOn` does. It is not stolen.
    pub fn worker(mut self, worker: usize) -> Builder {
        self.worker = Some(worker);
        self
    }

    /// For a fiber that the library makes for somebody: it is told of by where that was asked for.
    pub(crate) fn origin(mut self, origin: Origin) -> Builder {
        self.origin = Some(origin);
        self
    }

    /// Like [`spawn`], and reports failures.
    /// Never suspends the calling fiber.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the runtime has no such worker, or for a stack that fits into no address
    /// space. That no stack can be mapped is an error of [`join`](JoinHandle::join): see [`spawn`].
    ///
    /// # Panics
    ///
    /// Outside of [`run`](crate::run).
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: nothing that `f` or its result borrows can end: they are 'static.
        unsafe { self.spawn_sent(f, None::<Membership>) }.map(JoinHandle::new)
    }

    /// Like [`spawn_local`], and reports failures.
    /// Never suspends the calling fiber.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where [`worker`](Self::worker) names another worker than this one, and what
    /// the system says where no stack can be mapped.
    ///
    /// # Panics
    ///
    /// Outside of [`run`](crate::run).
    #[track_caller]
    pub fn spawn_local<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        // SAFETY: nothing that `f` or its result borrows can end: they are 'static.
        unsafe { self.spawn_here(f, None::<Membership>) }.map(JoinHandle::new)
    }

    /// Like [`Scope::spawn`], and reports failures.
    /// Never suspends the calling fiber.
    ///
    /// # Errors
    ///
    /// As for [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// Outside of [`run`](crate::run).
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
        // SAFETY: I2. The scope does not end before the fiber and what it returned have.
        let packet = unsafe { self.spawn_sent(f, Some(scope.core().enter())) }?;
        Ok(ScopedJoinHandle::new(packet, Arc::clone(scope.core())))
    }

    /// Like [`Scope::spawn_local`], and reports failures.
    /// Never suspends the calling fiber.
    ///
    /// # Errors
    ///
    /// As for [`Builder::spawn_local`].
    ///
    /// # Panics
    ///
    /// Outside of [`run`](crate::run).
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
        // SAFETY: I2. The scope does not end before the fiber and what it returned have.
        let packet = unsafe { self.spawn_here(f, Some(scope.core().enter())) }?;
        Ok(ScopedJoinHandle::new(packet, Arc::clone(scope.core())))
    }

    /// # Safety
    ///
    /// What `f` and `T` borrow outlives the fiber and the packet.
    #[track_caller]
    pub(super) unsafe fn spawn_sent<F, T, P>(
        self,
        f: F,
        place: Option<P>,
    ) -> io::Result<Arc<Packet<T>>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
        P: Place<T> + Send,
    {
        self.check_name();
        let outside = match Worker::here() {
            Some(_) => None,
            // A thread that a fiber of the scope waits for.
            None => place.as_ref().and_then(|place| {
                let (shared, home) = place.membership().core().home()?;
                Some((Arc::clone(shared), home))
            }),
        };
        let workers = match &outside {
            Some((shared, _)) => shared.workers(),
            None => current_or_panic().0.workers(),
        };
        if self.worker.is_some_and(|index| index >= workers) {
            let text = format!("there is no such worker: the runtime has {workers}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let stack_bytes = self.stack_bytes();
        check_stack_bytes(stack_bytes)?;
        let origin = self.origin.unwrap_or(Location::caller());
        fairness::count();
        tracing_events::debug!(name = self.name.as_deref(), place = %origin, "spawn");
        let packet = Packet::new(self.name.map(Arc::from), origin);
        let body: Box<dyn Body + '_> = Box::new(Sent { packet: Arc::clone(&packet), place, f });
        // SAFETY: I2. The caller vouches for what the body borrows; the runtime runs every
        // unstarted fiber to its end.
        let body = unsafe { std::mem::transmute::<Box<dyn Body + '_>, Box<dyn Body>>(body) };
        let unstarted = Unstarted { body, stack_bytes, origin: 0 };
        match (outside, self.worker) {
            (Some((shared, home)), index) => {
                let started = shared.start_from_outside(index.unwrap_or(home), unstarted);
                assert!(started.is_ok(), "the workers stay while a scope is open");
            }
            (None, Some(index)) => current_or_panic().0.make_placed(index, unstarted),
            (None, None) => current_or_panic().0.make_unstarted(unstarted),
        }
        Ok(packet)
    }

    /// # Safety
    ///
    /// What `f` and `T` borrow outlives the fiber and the packet.
    #[track_caller]
    pub(super) unsafe fn spawn_here<F, T, P>(
        self,
        f: F,
        place: Option<P>,
    ) -> io::Result<Arc<Packet<T>>>
    where
        F: FnOnce() -> T,
        P: Place<T>,
    {
        self.check_name();
        let (worker, fiber) = current_or_panic();
        worker.count(fiber);
        if self.worker.is_some_and(|index| index != worker.index() as usize) {
            let text = "a local fiber runs on the worker that makes it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let stack_bytes = self.stack_bytes();
        let origin = self.origin.unwrap_or(Location::caller());
        tracing_events::debug!(name = self.name.as_deref(), place = %origin, "spawn");
        let packet = Packet::new(self.name.map(Arc::from), origin);
        let body = body(Arc::clone(&packet), place, f);
        // SAFETY: I2. Handed on to the caller.
        unsafe { worker.start(stack_bytes, body) }?;
        Ok(packet)
    }

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

/// The calling fiber; a panic that says what to wrap where there is none.
#[track_caller]
pub(super) fn current_or_panic() -> (Here, FiberRef) {
    match Worker::current() {
        Some(current) => current,
        None => panic!(
            "a fiber can only be spawned inside of `cringle::run`: wrap the calling code, \
             `cringle::run(|| …)`"
        ),
    }
}

/// A fiber's place in a scope of some kind, until it is dropped.
pub(super) trait Place<T> {
    fn membership(&self) -> &Membership;

    /// Whether the scope fails if the fiber ends so, and nobody is there to take it.
    fn is_failure(&self, _result: &std::thread::Result<T>) -> bool {
        false
    }

    /// The fiber has failed, and nobody was there.
    fn fail(&self, _packet: &Arc<Packet<T>>) {}
}

impl<T> Place<T> for Membership {
    fn membership(&self) -> &Membership {
        self
    }
}

/// A fiber that any worker may start.
struct Sent<F, T, P> {
    packet: Arc<Packet<T>>,
    place: Option<P>,
    f: F,
}

impl<F, T, P> Body for Sent<F, T, P>
where
    F: FnOnce() -> T + Send,
    T: Send,
    P: Place<T> + Send,
{
    fn run(self: Box<Self>) {
        let Sent { packet, place, f } = *self;
        let lent = begin(place.as_ref());
        let result = run_body(&packet.meta, f);
        end(packet, place, result, lent);
    }

    fn fail(self: Box<Self>, e: io::Error) {
        let Sent { packet, place, f } = *self;
        let lent = begin(place.as_ref());
        let dropped = with_identity(&packet.meta, || foreign::drop_value(f));
        // The error is the result, like a panic's payload.
        let result = dropped.and_then(|()| Err(Box::new(e) as Box<dyn std::any::Any + Send>));
        end(packet, place, result, lent);
    }
}

/// All that a local fiber does, from first to last.
fn body<F, T, P>(packet: Arc<Packet<T>>, place: Option<P>, f: F) -> impl FnOnce()
where
    F: FnOnce() -> T,
    P: Place<T>,
{
    move || {
        let lent = begin(place.as_ref());
        let result = run_body(&packet.meta, f);
        end(packet, place, result, lent);
    }
}

/// The fiber enters its scope. The scope's owner waits for it, and a joiner for its packet.
fn begin<T>(place: Option<&impl Place<T>>) -> LentFrame {
    let (worker, fiber) = Worker::current().expect("a fiber's body runs on a worker");
    let lent = LentFrame::begin();
    match place {
        Some(place) => place.membership().begin(worker, fiber),
        None => worker.enter_root(fiber),
    }
    lent
}

/// The fiber leaves its result, and then its scope.
fn end<T>(
    packet: Arc<Packet<T>>,
    place: Option<impl Place<T>>,
    result: std::thread::Result<T>,
    lent: LentFrame,
) {
    let failed = place.as_ref().is_some_and(|place| {
        place.membership().note(&result);
        place.is_failure(&result)
    });
    let taken = packet.finish(result);
    if let Some(place) = place.as_ref().filter(|_| failed && !taken) {
        place.fail(&packet);
    }
    // The result, if nobody wants it, goes before the scope may end: it may borrow from there.
    if let Some(packet) = Arc::into_inner(packet)
        && let Some(result) = packet.take_if_there()
    {
        // Its destructor is the fiber's code like any other: it may wait, and make locals.
        with_identity(&packet.meta, || drop_unwanted(result));
    }
    drop(place);
    lent.end();
}
