//! A lock that its holder may acquire again: std's `ReentrantLock`, which is unstable. The holder
//! is a fiber, or a thread outside of any fiber.
//!
//! An OS lock guards the owner and the depth. It is held for a few instructions and across no wait
//! (**I6**). A caller that finds itself the owner enters; every other caller passes the gate first,
//! and becomes the owner then.

use super::caller::{Caller, CallerId};
use super::gate::Gate;
use cringle_core::fiber::Wait;
use cringle_sys::lock::{Mutex, MutexGuard};
use std::marker::PhantomData;

pub(crate) struct ReentrantLock<T> {
    gate: Gate,
    owner: Mutex<Option<Owner>>,
    value: T,
}

struct Owner {
    id: CallerId,
    /// The OS thread that it runs on, and stays on (**I3**).
    os_thread: usize,
    depth: usize,
}

fn this_os_thread() -> usize {
    // SAFETY: `pthread_self` takes no pointer and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

// SAFETY: the gate's contract: one caller at a time has access to the value, from any thread
// (`T: Send`).
unsafe impl<T: Send> Sync for ReentrantLock<T> {}

/// Holds the lock until it is dropped, and stays with its fiber.
pub(crate) struct ReentrantGuard<'a, T> {
    lock: &'a ReentrantLock<T>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a borrowed guard gives only shared access to the value, which is `Sync`.
unsafe impl<T: Sync> Sync for ReentrantGuard<'_, T> {}

impl<T> ReentrantLock<T> {
    constructor! {
        pub(crate) const fn new(value: T) -> ReentrantLock<T> {
            ReentrantLock { gate: Gate::new(1), owner: Mutex::new(None), value }
        }
    }

    /// Acquires the lock, unless the caller already holds it. A cancelled fiber unwinds where it
    /// would wait.
    pub(crate) fn lock(&self) -> ReentrantGuard<'_, T> {
        let id = Caller::id();
        if self.enter_again(id) {
            return self.guard();
        }
        self.gate.acquire_or_unwind(1, Wait::Lock);
        self.own(id)
    }

    /// Lends the value to a process that exits, if no caller holds the lock, or if a caller on this
    /// very thread does: the thread does not return to that fiber. Uses no thread-local with a
    /// destructor.
    pub(crate) fn at_exit(&self, f: impl FnOnce(&T)) {
        let is_ours =
            || self.owner().as_ref().is_some_and(|owner| owner.os_thread == this_os_thread());
        if self.gate.try_acquire(1) {
            f(&self.value);
            self.gate.release(1);
        } else if is_ours() {
            f(&self.value);
        }
    }

    fn enter_again(&self, id: CallerId) -> bool {
        match &mut *self.owner() {
            Some(owner) if owner.id == id => {
                owner.depth += 1;
                true
            }
            _ => false,
        }
    }

    fn own(&self, id: CallerId) -> ReentrantGuard<'_, T> {
        self.gate.record_holder();
        *self.owner() = Some(Owner { id, os_thread: this_os_thread(), depth: 1 });
        self.guard()
    }

    fn guard(&self) -> ReentrantGuard<'_, T> {
        ReentrantGuard { lock: self, not_send: PhantomData }
    }

    fn owner(&self) -> MutexGuard<'_, Option<Owner>> {
        self.owner.lock()
    }
}

impl<T> Drop for ReentrantGuard<'_, T> {
    fn drop(&mut self) {
        let mut slot = self.lock.owner();
        let owner = slot.as_mut().expect("a guard's lock has an owner");
        owner.depth -= 1;
        if owner.depth == 0 {
            *slot = None;
            drop(slot);
            self.lock.gate.clear_holder();
            self.lock.gate.release(1);
        }
    }
}

derefs!([T] ReentrantGuard<'_, T> => T, |guard| &guard.lock.value);
