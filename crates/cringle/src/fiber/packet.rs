//! The state that a fiber shares with its handle: it passes the result from one to the other.
//!
//! # The protocol
//!
//! `state` goes from `RUNNING` to `FINISHED`, possibly through `JOINING` (a joiner has stored its
//! waker). The fiber writes the result before it sets `FINISHED`; the joiner reads it after it has
//! seen `FINISHED`. The waker is written before `JOINING` is set, and taken by the side that
//! replaces that state. Both sides own a reference to the packet, so its memory outlives the last
//! touch (**I10**).

use crate::runtime::cancelled::Cancelled;
use crate::runtime::fiber::Wait;
use crate::runtime::foreign;
use crate::runtime::identity::Meta;
use crate::runtime::label::Origin;
use crate::runtime::wait_target::Target;
use crate::runtime::waker::{Waker, park_thread_until};
use crate::runtime::worker::Current;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const RUNNING: u8 = 0;
const JOINING: u8 = 1;
const FINISHED: u8 = 2;

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
            state: AtomicU8::new(RUNNING),
            joiner: UnsafeCell::new(None),
            result: UnsafeCell::new(None),
        })
    }

    /// Emits the event of the fiber's spawn.
    #[inline]
    pub(super) fn report_spawn(&self) {
        crate::tracing_events::debug!(
            name = self.meta.name(),
            id = self.meta.identity().number().get(),
            place = %self.meta.spawned(),
            "spawn"
        );
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state.load(Ordering::Acquire) == FINISHED
    }

    /// Stores the fiber's result and wakes the joiner. Returns whether a joiner waits.
    pub(super) fn finish(&self, result: std::thread::Result<T>) -> bool {
        // SAFETY: the module's contract: until FINISHED is set, only the fiber touches the result.
        unsafe { *self.result.get() = Some(result) };
        let joining = self.state.swap(FINISHED, Ordering::AcqRel) == JOINING;
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
        // SAFETY: the module's contract: in RUNNING the fiber does not touch the waker, and only
        // one handle does.
        unsafe { *self.joiner.get() = Some(waker) };
        let (old, new) = (RUNNING, JOINING);
        self.state.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Withdraws the joiner's waker. Returns true if the fiber has ended meanwhile.
    fn take_back_waker(&self) -> bool {
        let (old, new) = (JOINING, RUNNING);
        self.state.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_err()
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

    /// Returns whether a cancel unwound the fiber, after [`wait`](Self::wait) has returned true.
    pub(super) fn was_cancelled(&self) -> bool {
        // SAFETY: as above. The reference ends when this function returns.
        let result = unsafe { &*self.result.get() };
        matches!(result, Some(Err(payload)) if payload.is::<Cancelled>())
    }
}

/// Drops a result that no joiner took. If its destructor panics, the process aborts, as it does for
/// a thread's result.
pub(super) fn drop_unwanted<T>(result: std::thread::Result<T>) {
    let what = if result.is_err() { "panic payload" } else { "result" };
    // The payload of that panic is not dropped: its destructor might panic, too.
    if let Err(_payload) = foreign::drop_value(result) {
        crate::sys::report(format_args!("the destructor of a fiber's {what} panicked; aborting"));
        std::process::abort();
    }
}

/// Drops an untaken result, if the handle is dropped after the fiber has ended.
impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        if let Some(result) = self.result.get_mut().take() {
            drop_unwanted(result);
        }
    }
}
