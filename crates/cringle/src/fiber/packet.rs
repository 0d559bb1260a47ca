//! What a fiber and its handle share: the result, on its way from one to the other.
//!
//! # The protocol
//!
//! `state` goes from `RUNNING` to `FINISHED`, perhaps by way of `JOINING` (a joiner has left its
//! waker). The fiber writes the result before it sets `FINISHED`; the joiner reads it after it has
//! seen that. The waker is written before `JOINING` is set and taken by whoever replaces that
//! state. Both sides own a count of the packet, so its memory outlives the last touch (**I10**).

use crate::runtime::cancelled::Cancelled;
use crate::runtime::fiber::Wait;
use crate::runtime::foreign;
use crate::runtime::identity::Meta;
use crate::runtime::label::Origin;
use crate::runtime::waker::Waker;
use crate::runtime::worker::Worker;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const RUNNING: u8 = 0;
const JOINING: u8 = 1;
const FINISHED: u8 = 2;

/// See the module.
pub(super) struct Packet<T> {
    pub(super) meta: Meta,
    state: AtomicU8,
    joiner: UnsafeCell<Option<Waker>>,
    result: UnsafeCell<Option<std::thread::Result<T>>>,
}

// SAFETY: the result moves from the fiber's thread to the joiner's, so it must be `Send`; the state
// makes sure that one side at a time touches the cells. Handles of fibers whose result is not
// `Send` are not `Send` themselves.
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

    pub(super) fn is_finished(&self) -> bool {
        self.state.load(Ordering::Acquire) == FINISHED
    }

    /// For the fiber: leaves the result, and wakes who waits for it. Says whether somebody does.
    pub(super) fn finish(&self, result: std::thread::Result<T>) -> bool {
        // SAFETY: until FINISHED is set, the fiber alone touches the result.
        unsafe { *self.result.get() = Some(result) };
        let joining = self.state.swap(FINISHED, Ordering::AcqRel) == JOINING;
        if joining {
            // SAFETY: JOINING was set after the waker was written, and the joiner does not touch
            // it again before it has seen FINISHED.
            let joiner = unsafe { (*self.joiner.get()).take() };
            joiner.expect("a joiner leaves its waker").wake();
        }
        joining
    }

    /// For the one handle: waits until the fiber has ended. False if the wait was interrupted first:
    /// of that the waiting fiber is asked whenever it runs.
    pub(super) fn wait(&self, interrupted: impl Fn() -> bool) -> bool {
        if self.is_finished() {
            return true;
        }
        let current = Worker::current();
        let waker = match current {
            Some((worker, fiber)) => worker.waker(fiber),
            None => Waker::Thread(std::thread::current()),
        };
        if !self.leave_waker(waker) {
            return true;
        }
        loop {
            match current {
                Some((worker, fiber)) => {
                    if interrupted() {
                        return self.take_back_waker();
                    }
                    worker.suspend_for_fibers(fiber, Wait::Join, &self.meta);
                }
                None => std::thread::park(),
            }
            if self.is_finished() {
                return true;
            }
        }
    }

    /// False if the fiber has ended meanwhile.
    fn leave_waker(&self, waker: Waker) -> bool {
        // SAFETY: in RUNNING the fiber does not touch the joiner, and there is one handle.
        unsafe { *self.joiner.get() = Some(waker) };
        let (old, new) = (RUNNING, JOINING);
        self.state.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// True if the fiber has ended meanwhile.
    fn take_back_waker(&self) -> bool {
        let (old, new) = (JOINING, RUNNING);
        self.state.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_err()
    }

    /// For the handle, once [`wait`](Self::wait) said yes.
    pub(super) fn take(&self) -> std::thread::Result<T> {
        debug_assert!(self.is_finished());
        self.take_if_there().expect("a result is taken once")
    }

    /// The same, for whoever comes last.
    pub(super) fn take_if_there(&self) -> Option<std::thread::Result<T>> {
        debug_assert!(self.is_finished());
        // SAFETY: after FINISHED the fiber does not touch the result. There is one handle, and where a
        // scope asks too, whoever had that handle has ended.
        unsafe { (*self.result.get()).take() }
    }

    /// For the handle, once [`wait`](Self::wait) said yes: whether the fiber was unwound because it
    /// was cancelled.
    pub(super) fn was_cancelled(&self) -> bool {
        // SAFETY: as above; the reference is gone when this returns.
        let result = unsafe { &*self.result.get() };
        matches!(result, Some(Err(payload)) if payload.is::<Cancelled>())
    }
}

/// Drops a result that nobody took. Its destructor may do anything; where it panics the process ends, as it does
/// for a thread's result.
pub(super) fn drop_unwanted<T>(result: std::thread::Result<T>) {
    let what = if result.is_err() { "panic payload" } else { "result" };
    // The payload of that panic is not dropped, which may panic, too.
    if let Err(_payload) = foreign::drop_value(result) {
        crate::sys::report(format_args!("the destructor of a fiber's {what} panicked; aborting"));
        std::process::abort();
    }
}

/// Where the handle is dropped after the fiber has ended, the result goes with it.
impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        if let Some(result) = self.result.get_mut().take() {
            drop_unwanted(result);
        }
    }
}
