//! What a fiber has to say for itself, when somebody asks who waits for what.

use super::fiber::Running;
use super::identity::Meta;
use crate::driver::About;
use std::ffi::CString;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Where in the program's text something was begun.
pub(crate) type Origin = &'static Location<'static>;

/// The part of a fiber's block that other threads may read, too: a worker that is kept from answering is
/// told by it. (The block stays as long as its worker: see [`Roster`].)
#[derive(Default)]
pub(crate) struct Label {
    spawned: AtomicPtr<Location<'static>>,
    /// Locked by its own worker when a fiber with a name starts and ends, and by who looks.
    name: Mutex<Option<Arc<str>>>,
    /// The watchdog has named this one.
    named: AtomicBool,
}

/// What is known of a fiber's making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) spawned: Option<Origin>,
}

impl Label {
    /// A fiber's body begins.
    #[inline]
    pub(super) fn set(&self, meta: &Meta) {
        self.spawned.store(std::ptr::from_ref(meta.spawned()).cast_mut(), Ordering::Relaxed);
        self.named.store(false, Ordering::Relaxed);
        if let Some(name) = meta.shared_name() {
            *self.name() = Some(Arc::clone(name));
        }
    }

    /// It has ended.
    #[inline]
    pub(super) fn clear(&self, meta: &Meta) {
        self.spawned.store(std::ptr::null_mut(), Ordering::Relaxed);
        if meta.shared_name().is_some() {
            *self.name() = None;
        }
    }

    /// From any thread. If one fiber has just made room for another, what is told is either's.
    pub(super) fn read(&self) -> Origins {
        // SAFETY: what is stored is null or a `&'static`.
        let spawned = unsafe { self.spawned.load(Ordering::Relaxed).as_ref() };
        Origins { name: self.name().clone(), spawned }
    }

    /// Whether this is the first time that the fiber is to be named.
    pub(super) fn is_news(&self) -> bool {
        !self.named.swap(true, Ordering::Relaxed)
    }

    fn name(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.name.lock().expect("no code panics under this lock")
    }
}

/// Where a worker says which fiber it runs, while its blocks are there: who looks into one from another
/// thread holds the lock.
#[derive(Default)]
pub(super) struct Roster(Mutex<Option<Place>>);

struct Place(NonNull<Running>);

// SAFETY: what it points to is atomic, and is there while the place is: see `Roster`.
unsafe impl Send for Place {}

impl Roster {
    /// The worker begins. It says so by [`close`](Self::close) before what is lent here goes, and its blocks.
    pub(super) fn open(&self, running: &Running) {
        *self.place() = Some(Place(NonNull::from(running)));
    }

    /// The worker's blocks are about to go. Who looks is waited for.
    pub(super) fn close(&self) {
        *self.place() = None;
    }

    /// Reads the label of the fiber that the worker runs.
    pub(super) fn look<R>(&self, f: impl FnOnce(&Label) -> R) -> Option<R> {
        let place = self.place();
        let Place(running) = place.as_ref()?;
        // SAFETY: I2. The worker and its blocks go after `close`, and that waits for this lock.
        unsafe { running.as_ref().label() }.map(f)
    }

    /// Tells the fiber that the worker runs from others: 0 for none.
    pub(super) fn who_runs(&self) -> usize {
        self.look(|label| std::ptr::from_ref(label) as usize).unwrap_or(0)
    }

    fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.0.lock().expect("no code panics under this lock")
    }
}

/// Who holds something: a fiber by its block and (the low half of) its generation, which tell it from
/// all others of its worker that are not 65,536 tenants of the same block apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag(u64);

impl Tag {
    pub(crate) const NOBODY: Tag = Tag(0);
    /// A thread outside of any fiber.
    pub(crate) const THREAD: Tag = Tag(1);

    /// Addresses of user space have 48 bits at most.
    #[inline]
    pub(super) fn of_block(address: usize, generation: u32) -> Tag {
        Tag(((address as u64) << 16) | u64::from(generation as u16))
    }

    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn of_number(number: u64) -> Tag {
        Tag(number)
    }
}

/// The scope that a fiber belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeOrigin {
    pub(crate) opened: Origin,
    /// Whose it is, and on which worker.
    pub(crate) owner: Option<(u32, super::fiber::FiberId)>,
}

/// What a fiber waits for, while it waits: asked on the fiber's own worker.
pub(crate) trait Subject {
    fn tell(&self) -> Told;
}

/// What a [`Subject`] says.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// A lock or permits: where, who holds it, and how many are free.
    Gate { address: usize, holder: Tag, free: usize },
    /// A fiber's end.
    End(Origins),
    /// So many fibers of a scope.
    Members(usize),
    /// A plain call on a thread of the pool.
    Call { about: About, path: Option<CString> },
    /// Something at this address.
    At(usize),
}

/// Something that is told by its address alone.
pub(crate) struct At(usize);

impl At {
    #[inline]
    pub(crate) fn of<T>(what: &T) -> At {
        At(std::ptr::from_ref(what) as usize)
    }
}

impl Subject for At {
    fn tell(&self) -> Told {
        Told::At(self.0)
    }
}

/// The permits of a lock for readers and writers: a writer has all of them.
pub(crate) const MOST_PERMITS: usize = usize::MAX >> 3;
