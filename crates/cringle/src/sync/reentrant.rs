//! A lock that its holder may take again: std's `ReentrantLock`, which is not stable there. The holder
//! is a fiber, or a thread outside of any.
//!
//! The owner and the depth are behind an OS lock, held for a few instructions and over no wait (**I6**).
//! Who finds itself the owner goes in; everybody else goes through the gate, and is the owner only then.

use super::caller::WaitOptions;
use super::gate::Gate;
use crate::fiber::{ThreadId, current};
use crate::runtime::fiber::Wait;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard};

pub(crate) struct ReentrantLock<T> {
    gate: Gate,
    owner: Mutex<Option<Owner>>,
    value: T,
}

struct Owner {
    who: ThreadId,
    /// The OS thread that it is on, and stays on (**I3**).
    thread: usize,
    depth: usize,
}

fn this_thread() -> usize {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

// SAFETY: one fiber or thread at a time has access to the value, which may so come to another thread.
unsafe impl<T: Send> Sync for ReentrantLock<T> {}

/// The lock is held until this is dropped. It stays with its fiber.
pub(crate) struct ReentrantGuard<'a, T> {
    lock: &'a ReentrantLock<T>,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value, and nothing else.
unsafe impl<T: Sync> Sync for ReentrantGuard<'_, T> {}

impl<T> ReentrantLock<T> {
    constructor! {
        pub(crate) const fn new(value: T) -> ReentrantLock<T> {
            ReentrantLock { gate: Gate::new(1), owner: Mutex::new(None), value }
        }
    }

    /// Waits until the lock is the caller's, unless it is already. A cancelled fiber unwinds where it
    /// would wait.
    pub(crate) fn lock(&self) -> ReentrantGuard<'_, T> {
        let who = current().id();
        if self.enter_again(who) {
            return self.guard();
        }
        if let Err(error) = self.gate.acquire(1, WaitOptions::unwinding(Wait::Lock)) {
            error.unwind();
        }
        self.own(who)
    }

    /// For a process that ends, on the thread that ends it, which comes back to no fiber: lends the value
    /// if nobody has it, or somebody of this very thread. Needs no thread-local with a destructor.
    pub(crate) fn at_exit(&self, f: impl FnOnce(&T)) {
        let is_ours = || self.owner().as_ref().is_some_and(|owner| owner.thread == this_thread());
        if self.gate.try_acquire(1) {
            f(&self.value);
            self.gate.release(1);
        } else if is_ours() {
            f(&self.value);
        }
    }

    fn enter_again(&self, who: ThreadId) -> bool {
        match &mut *self.owner() {
            Some(owner) if owner.who == who => {
                owner.depth += 1;
                true
            }
            _ => false,
        }
    }

    fn own(&self, who: ThreadId) -> ReentrantGuard<'_, T> {
        self.gate.record_holder();
        *self.owner() = Some(Owner { who, thread: this_thread(), depth: 1 });
        self.guard()
    }

    fn guard(&self) -> ReentrantGuard<'_, T> {
        ReentrantGuard { lock: self, stays: PhantomData }
    }

    fn owner(&self) -> MutexGuard<'_, Option<Owner>> {
        self.owner.lock().expect("no code panics under this lock")
    }
}

impl<T> Drop for ReentrantGuard<'_, T> {
    fn drop(&mut self) {
        let mut place = self.lock.owner();
        let owner = place.as_mut().expect("a guard's lock is held");
        owner.depth -= 1;
        if owner.depth == 0 {
            *place = None;
            drop(place);
            self.lock.gate.clear_holder();
            self.lock.gate.release(1);
        }
    }
}

impl<T> Deref for ReentrantGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.lock.value
    }
}
