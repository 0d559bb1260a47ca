//! The identity of a fiber for the rest of the process: its number, its name, its park token, and
//! the handle that wakes it. It is made on first use, and outlives the fiber and the runtime.

use super::label::{Origin, Origins};
use super::spawn_place::SpawnPlace;
use super::sync::{AtomicU8, Ordering};
use super::wait_target::{TargetInfo, TargetKind, WaitTarget};
use super::waker::Waker;
use cringle_sys::debug_info::Field;
use cringle_sys::lock::{Mutex, OnceLock};
use std::mem::offset_of;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const EMPTY: u8 = 0;
const PARKED: u8 = 1;
const NOTIFIED: u8 = 2;

/// See the module.
pub struct Identity {
    number: NonZeroU64,
    name: Option<Arc<str>>,
    token: Token,
    home: OnceLock<Waker>,
    /// The same where fibers move, and the number of the worker that it names.
    host: Mutex<Option<(u32, Waker)>>,
}

impl Identity {
    pub(crate) fn new(name: Option<Arc<str>>) -> Arc<Identity> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Identity {
            number: NonZeroU64::new(number).expect("fewer than 2⁶⁴ identities in a process"),
            name,
            token: Token::new(),
            home: OnceLock::new(),
            host: Mutex::new(None),
        })
    }

    pub fn number(&self) -> NonZeroU64 {
        self.number
    }

    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Sets the handle that wakes the fiber. The fiber calls this before it first parks.
    pub fn set_home(&self, home: impl FnOnce() -> Waker) {
        self.home.get_or_init(home);
    }

    /// Sets the handle that wakes the fiber where fibers move. The fiber calls this before it
    /// parks, with the number of its worker.
    pub fn set_host(&self, worker: u32, waker: impl FnOnce() -> Waker) {
        let mut host = self.host.lock();
        if host.as_ref().is_none_or(|(known, _)| *known != worker) {
            *host = Some((worker, waker()));
        }
    }

    /// Makes the token available, and wakes the fiber if it is parked. Everything before this call
    /// happens before the return of the `park` that takes the token.
    pub fn unpark(&self) {
        if self.token.make_available() {
            match self.home.get() {
                Some(home) => home.wake(),
                None => self.last_host().wake(),
            }
        }
    }

    fn last_host(&self) -> Waker {
        let host = self.host.lock();
        let (_, waker) = host.as_ref().expect("a parked fiber has set its home or host");
        waker.clone()
    }

    /// See [`Token::take_or_park`].
    pub fn take_token_or_park(&self) -> bool {
        self.token.take_or_park()
    }

    /// See [`Token::unparked`].
    pub fn unparked(&self) -> bool {
        self.token.unparked()
    }
}

/// The token that `unpark` makes available and `park` takes. `loom_tests` explores its
/// interleavings.
pub(super) struct Token(AtomicU8);

impl Token {
    pub(super) fn new() -> Token {
        Token(AtomicU8::new(EMPTY))
    }

    /// For any thread: makes the token available. True if the fiber is parked and must be woken.
    pub(super) fn make_available(&self) -> bool {
        self.0.swap(NOTIFIED, Ordering::Release) == PARKED
    }

    /// For the fiber: takes the token if it is available. Otherwise marks the fiber as parked and
    /// returns false.
    ///
    /// The fiber then suspends. An `unpark` in between finds it parked and sends a wake-up to the
    /// fiber's own worker, which handles it only after the fiber is suspended. So no wake-up is
    /// lost.
    pub(super) fn take_or_park(&self) -> bool {
        let (old, new) = (EMPTY, PARKED);
        if self.0.compare_exchange(old, new, Ordering::Acquire, Ordering::Acquire).is_ok() {
            return false;
        }
        // It is notified, because only the fiber itself marks it parked. The swap reads the last
        // `unpark`'s store, and so acquires everything before that `unpark`.
        self.0.swap(EMPTY, Ordering::Acquire);
        true
    }

    /// For the fiber after a wait: takes the token if it is available.
    pub(super) fn unparked(&self) -> bool {
        self.0.swap(EMPTY, Ordering::Acquire) == NOTIFIED
    }
}

/// The name and origin of a fiber, shared by the fiber and its handle.
pub struct Meta {
    name: OnceLock<Arc<str>>,
    spawned: Origin,
    /// Of a thread that is a fiber.
    thread: Option<&'static SpawnPlace>,
    identity: OnceLock<Arc<Identity>>,
}

impl Meta {
    pub fn new(name: Option<Arc<str>>, spawned: Origin) -> Meta {
        let identity = OnceLock::new();
        let meta = Meta { name: OnceLock::new(), spawned, thread: None, identity };
        if let Some(name) = name {
            meta.rename(name);
        }
        meta
    }

    /// The same for a thread that is a fiber, and was started at this place.
    pub fn of_thread(spawned: Origin, thread: &'static SpawnPlace) -> Meta {
        Meta { thread: Some(thread), ..Meta::new(None, spawned) }
    }

    /// Where a thread that is a fiber was started.
    pub fn thread(&self) -> Option<&'static SpawnPlace> {
        self.thread
    }

    /// Names a fiber that has no name.
    pub(crate) fn rename(&self, name: Arc<str>) {
        self.name.get_or_init(|| name);
    }

    pub(crate) fn shared_name(&self) -> Option<&Arc<str>> {
        self.name.get()
    }

    /// The place that spawned it.
    pub fn spawned(&self) -> Origin {
        self.spawned
    }

    pub(crate) fn origins(&self) -> Origins {
        let name = self.name.get().cloned();
        Origins { name, spawned: Some(self.spawned), thread: self.thread }
    }

    pub fn name(&self) -> Option<&str> {
        self.name.get().map(|name| &**name)
    }

    pub fn identity(&self) -> &Arc<Identity> {
        self.identity.get_or_init(|| Identity::new(self.name.get().cloned()))
    }
}

/// Where a debugger finds the parts of a [`Meta`].
pub const FIELDS: &[Field] = &[
    Field::new("meta.name", offset_of!(Meta, name) + OnceLock::<Arc<str>>::VALUE),
    Field::new("meta.spawned", offset_of!(Meta, spawned)),
    Field::new("meta.thread", offset_of!(Meta, thread)),
];

/// The target of a `join`.
impl WaitTarget for Meta {
    const KIND: TargetKind = TargetKind::FiberEnd;
    const PARTS: &[usize] = &[];

    fn info(&self) -> TargetInfo {
        TargetInfo::FiberEnd(self.origins())
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("number", &self.number).field("name", &self.name).finish()
    }
}
