//! The label of a running fiber, which threads other than its worker may read.
//!
//! Only the worker itself looks into its fibers (**I3**). The watchdog, and the dump of a worker
//! that does not answer, read the label instead: atomics and a lock, in the fiber's block. Blocks
//! live as long as their worker, and a [`Roster`] keeps readers away from a worker that has ended
//! (**I2**).

use super::fiber::Running;
use super::identity::Meta;
use super::spawn_place::SpawnPlace;
use cringle_sys::lock::{Mutex, MutexGuard};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A place in the program's source.
pub type Origin = &'static Location<'static>;

/// A fiber's name and the place that spawned it, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    pub name: Option<Arc<str>>,
    pub spawned: Option<Origin>,
    /// Of a thread that is a fiber.
    pub thread: Option<&'static SpawnPlace>,
}

impl Origins {
    /// Describes the fiber with the place that spawned it.
    pub fn in_full(&self) -> String {
        let spawned = || self.spawned.map(Location::to_string);
        let place = self.thread.map(|thread| thread.text().to_owned()).or_else(spawned);
        describe_fiber(self.name.as_deref(), place.as_deref())
    }
}

/// Describes a fiber by its name and the place that spawned it.
pub fn describe_fiber(name: Option<&str>, place: Option<&str>) -> String {
    match (name, place) {
        (Some(name), Some(place)) => format!("fiber '{name}' (spawned at {place})"),
        (Some(name), None) => format!("fiber '{name}'"),
        (None, Some(place)) => format!("a fiber (spawned at {place})"),
        (None, None) => "fiber <not begun>".into(),
    }
}

/// The part of a fiber's block that other threads may read.
#[derive(Default)]
pub struct Label {
    spawned: AtomicPtr<Location<'static>>,
    thread: AtomicPtr<SpawnPlace>,
    /// Written only when a named fiber starts or ends.
    name: Mutex<Option<Arc<str>>>,
    /// The watchdog has reported this fiber.
    is_reported: AtomicBool,
}

impl Label {
    /// Labels the block when a fiber's body begins.
    #[inline]
    pub(super) fn set(&self, meta: &Meta) {
        self.spawned.store(std::ptr::from_ref(meta.spawned()).cast_mut(), Ordering::Relaxed);
        let thread = meta.thread().map_or(std::ptr::null(), std::ptr::from_ref);
        self.thread.store(thread.cast_mut(), Ordering::Relaxed);
        self.is_reported.store(false, Ordering::Relaxed);
        if let Some(name) = meta.shared_name() {
            *self.name() = Some(Arc::clone(name));
        }
    }

    /// Clears the label when the fiber ends.
    #[inline]
    pub(super) fn clear(&self, meta: &Meta) {
        self.spawned.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.thread.store(std::ptr::null_mut(), Ordering::Relaxed);
        if meta.shared_name().is_some() {
            *self.name() = None;
        }
    }

    /// Reads the label from any thread. While one fiber replaces another in the block, each part
    /// may be of either.
    pub fn read(&self) -> Origins {
        // SAFETY: I2. The pointer is null, or comes from a `&'static`, which lives for ever.
        let spawned = unsafe { self.spawned.load(Ordering::Relaxed).as_ref() };
        // SAFETY: I2. As above.
        let thread = unsafe { self.thread.load(Ordering::Relaxed).as_ref() };
        Origins { name: self.name().clone(), spawned, thread }
    }

    /// Marks the fiber as reported. True for the first call of each fiber.
    pub fn report_once(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }

    fn name(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.name.lock()
    }
}

/// Access for other threads to the fiber that a worker runs. The lock is held while a reader looks
/// into the block, so [`close`](Self::close) waits for readers.
#[derive(Default)]
pub struct Roster {
    running: Mutex<Option<RunningPtr>>,
    /// The same for debuggers, which take no lock.
    shown: AtomicPtr<Running>,
}

struct RunningPtr(NonNull<Running>);

// SAFETY: I2. `Running` is atomic, and it lives until `Roster::close` has removed this pointer.
unsafe impl Send for RunningPtr {}

impl Roster {
    /// Lets other threads in. The worker calls [`close`](Self::close) before `running` or any of
    /// its blocks goes away.
    pub(super) fn open(&self, running: &Running) {
        *self.lock() = Some(RunningPtr(NonNull::from(running)));
        self.shown.store(std::ptr::from_ref(running).cast_mut(), Ordering::Release);
    }

    /// Keeps other threads out, after the last reader has left.
    pub(super) fn close(&self) {
        self.shown.store(std::ptr::null_mut(), Ordering::Release);
        *self.lock() = None;
    }

    /// Where a debugger finds the running fiber; null before the worker begins, and after it ends.
    pub fn shown(&self) -> &AtomicPtr<Running> {
        &self.shown
    }

    /// Calls `f` with the label of the fiber that the worker runs; `None` if it runs none.
    pub fn look<R>(&self, f: impl FnOnce(&Label) -> R) -> Option<R> {
        let guard = self.lock();
        let RunningPtr(running) = guard.as_ref()?;
        // SAFETY: I2. The worker frees `running` and its blocks after `close`, which waits for this
        // lock.
        unsafe { running.as_ref().label() }.map(f)
    }

    /// Returns a number that differs between the running fibers of a worker; 0 if none runs.
    pub fn running_number(&self) -> usize {
        self.look(|label| std::ptr::from_ref(label) as usize).unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Option<RunningPtr>> {
        self.running.lock()
    }
}
