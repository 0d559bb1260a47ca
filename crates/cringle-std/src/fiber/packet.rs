//! The state that a fiber shares with its handle: it passes the result from one to the other.
//!
//! # The protocol
//!
//! `state` is a set of bits. The fiber writes the result and sets `STORED` when its closure has
//! ended, and `FINISHED` when the destructors of its thread-locals have. The joiner takes the
//! result after it has seen `FINISHED`. A handle that is dropped sets `DROPPED`: of the fiber and
//! the handle, the one that sets the second of `STORED` and `DROPPED` drops the result, so the
//! fiber drops none after its thread-locals.
//!
//! A joiner sets `JOINING` after it has written its waker. If the fiber finds the bit when it sets
//! `FINISHED`, it takes the waker. A joiner that gives up clears the bit, if `FINISHED` is not set.
//!
//! The result of a fiber that has made its scope fail belongs to the scope if no joiner waits: the
//! fiber writes it without setting `STORED`.
//!
//! Both sides own a reference to the packet, so its memory outlives the last touch (**I10**).

use cringle_core::cancelled::Cancelled;
use cringle_core::fiber::Wait;
use cringle_core::foreign;
use cringle_core::identity::Meta;
use cringle_core::label::Origin;
use cringle_core::wait_target::Target;
use cringle_core::waker::{Waker, park_thread_until};
use cringle_core::worker::Current;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const JOINING: u8 = 1;
const FINISHED: u8 = 1 << 1;
const STORED: u8 = 1 << 2;
const DROPPED: u8 = 1 << 3;

/// The result of a fiber, its joiner's waker, and its name and identity. See the module.
pub(super) struct Packet<T> {
    pub(super) meta: Meta,
    state: AtomicU8,
    joiner: UnsafeCell<Option<Waker>>,
    result: UnsafeCell<Option<std::thread::Result<T>>>,
}

// SAFETY: by the module's protocol one side at a time touches the cells, which is the contract of
// `state`. The result moves from the fiber's thread to the joiner's, so `T` must be `Send`. A
// handle whose result is not `Send` is not `Send` itself.
unsafe impl<T: Send> Sync for Packet<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Packet<T> {}

impl<T> Packet<T> {
    pub(super) fn new(name: Option<Arc<str>>, origin: Origin) -> Arc<Packet<T>> {
        Arc::new(Packet {
            meta: Meta::new(name, origin),
            state: AtomicU8::new(0),
            joiner: UnsafeCell::new(None),
            result: UnsafeCell::new(None),
        })
    }

    /// Emits the event of the fiber's spawn.
    #[inline]
    pub(super) fn report_spawn(&self) {
        cringle_core::emit!(DEBUG,
            name = self.meta.name(),
            id = self.meta.identity().number().get(),
            place = %self.meta.spawned(),
            "spawn"
        );
    }

    pub(super) fn is_finished(&self) -> bool {
        self.has(FINISHED)
    }

    fn has(&self, bit: u8) -> bool {
        self.state.load(Ordering::Acquire) & bit != 0
    }

    /// Stores the result of the fiber, whose closure has ended. If its handle is gone, the result
    /// is dropped, on the fiber. `is_scopes`: unless a joiner waits at the end, the scope takes it.
    pub(super) fn store(&self, result: std::thread::Result<T>, is_scopes: bool) {
        if !is_scopes && self.has(DROPPED) {
            return drop_unwanted(result);
        }
        // SAFETY: the module's contract: until STORED or FINISHED is set, only the fiber touches
        // the result.
        unsafe { *self.result.get() = Some(result) };
        if !is_scopes && self.state.fetch_or(STORED, Ordering::AcqRel) & DROPPED != 0 {
            self.discard();
        }
    }

    /// The fiber has ended. Wakes the joiner, and returns whether one waits.
    pub(super) fn finish(&self) -> bool {
        let joining = self.state.fetch_or(FINISHED, Ordering::AcqRel) & JOINING != 0;
        if joining {
            // SAFETY: the module's contract: the joiner set JOINING after it had written the waker,
            // and does not touch it again before it has seen FINISHED.
            let joiner = unsafe { (*self.joiner.get()).take() };
            joiner.expect("a joiner stores its waker").wake();
        }
        joining
    }

    /// Waits until the fiber has ended, for its only handle. Returns false if `interrupted`
    /// returned true first; it is called each time the waiting fiber runs.
    pub(super) fn wait(&self, interrupted: impl Fn() -> bool) -> bool {
        if self.is_finished() {
            return true;
        }
        let current = Current::get();
        let waker = match current {
            Some(current) => current.waker(),
            None => Waker::Thread(std::thread::current()),
        };
        if !self.store_waker(waker) {
            return true;
        }
        let Some(current) = current else {
            park_thread_until(|| self.is_finished());
            return true;
        };
        loop {
            if interrupted() {
                return self.take_back_waker();
            }
            current.suspend_for_fibers(Wait::Join, Target::of(&self.meta));
            if self.is_finished() {
                return true;
            }
        }
    }

    /// Stores the joiner's waker. Returns false if the fiber has ended meanwhile.
    fn store_waker(&self, waker: Waker) -> bool {
        // SAFETY: the module's contract: without JOINING the fiber does not touch the waker, and
        // only one handle does.
        unsafe { *self.joiner.get() = Some(waker) };
        self.state.fetch_or(JOINING, Ordering::AcqRel) & FINISHED == 0
    }

    /// Withdraws the joiner's waker. Returns true if the fiber has ended meanwhile.
    fn take_back_waker(&self) -> bool {
        self.state.fetch_and(!JOINING, Ordering::AcqRel) & FINISHED != 0
    }

    /// Takes the result, after [`wait`](Self::wait) has returned true.
    pub(super) fn take(&self) -> std::thread::Result<T> {
        debug_assert!(self.is_finished());
        self.try_take().expect("a result is taken once")
    }

    /// Takes the result of a fiber that has ended, if it was not taken.
    pub(super) fn try_take(&self) -> Option<std::thread::Result<T>> {
        debug_assert!(self.is_finished());
        // SAFETY: the module's contract: after FINISHED the fiber does not touch the result. Only
        // one handle does; a scope takes the result only after the owner of that handle has ended.
        unsafe { (*self.result.get()).take() }
    }

    /// The handle is gone: drops the result, if the fiber has stored one and no joiner took it.
    fn drop_handle(&self) {
        let mut state = self.state.load(Ordering::Acquire);
        if state & FINISHED == 0 {
            state = self.state.fetch_or(DROPPED, Ordering::AcqRel);
        }
        if state & STORED != 0 {
            self.discard();
        }
    }

    /// Drops the result. Called by the side that does not leave that to the other.
    fn discard(&self) {
        // SAFETY: the module's contract: both STORED and DROPPED are set, the second one by the
        // caller, or the fiber has ended and the caller is its handle.
        if let Some(result) = unsafe { (*self.result.get()).take() } {
            drop_unwanted(result);
        }
    }

    /// Returns whether a cancel unwound the fiber, after [`wait`](Self::wait) has returned true.
    pub(super) fn was_cancelled(&self) -> bool {
        // SAFETY: as above. The reference ends when this function returns.
        let result = unsafe { &*self.result.get() };
        matches!(result, Some(Err(payload)) if payload.is::<Cancelled>())
    }
}

/// Drops a result that no joiner took. If its destructor panics, the process aborts, as it does for
/// a thread's result.
fn drop_unwanted<T>(result: std::thread::Result<T>) {
    let what = if result.is_err() { "panic payload" } else { "result" };
    // The payload of that panic is not dropped: its destructor might panic, too.
    if let Err(_payload) = foreign::drop_value(result) {
        cringle_sys::report(format_args!("the destructor of a fiber's {what} panicked; aborting"));
        std::process::abort();
    }
}

/// Drops the result of a fiber that has made its scope fail, if neither scope nor joiner took it.
impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        if let Some(result) = self.result.get_mut().take() {
            drop_unwanted(result);
        }
    }
}

/// The packet in a handle: the only one of the fiber.
pub(super) struct HandlesPacket<T>(Arc<Packet<T>>);

impl<T> HandlesPacket<T> {
    pub(super) fn new(packet: Arc<Packet<T>>) -> HandlesPacket<T> {
        HandlesPacket(packet)
    }
}

impl<T> Deref for HandlesPacket<T> {
    type Target = Packet<T>;

    #[inline]
    fn deref(&self) -> &Packet<T> {
        &self.0
    }
}

impl<T> Drop for HandlesPacket<T> {
    fn drop(&mut self) {
        self.0.drop_handle();
    }
}
