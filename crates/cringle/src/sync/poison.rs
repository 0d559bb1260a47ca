//! Poisoning as std's, by the fiber that unwinds and not by its thread's count (**I8**): what another
//! fiber of the worker does in a destructor poisons nothing here. Nor does a cancel that unwinds a
//! fiber: it is no panic.

use crate::runtime::unwinding::Unwinding;
use crate::runtime::worker::Worker;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody panicked with the lock held.
pub(super) struct Poison(AtomicBool);

/// Whether the fiber was unwinding when it took the lock: then it is no news when it lets go of it.
#[derive(Clone, Copy)]
pub(super) struct Before {
    unwinding: bool,
}

impl Poison {
    pub(super) const fn new() -> Poison {
        Poison(AtomicBool::new(false))
    }

    #[inline]
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// For who lets go of the lock, while it still has it.
    #[inline]
    pub(super) fn note(&self, before: Before) {
        if std::thread::panicking() && !before.unwinding && panics() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Before {
    /// For who has just taken the lock.
    #[inline]
    pub(super) fn new() -> Before {
        let unwinding = match Worker::current() {
            Some((worker, fiber)) => {
                let unwinding = worker.surely_unwinds(fiber);
                if !unwinding {
                    // Whatever unwound it was caught.
                    fiber.set_unwinding(Unwinding::No);
                }
                unwinding
            }
            None => std::thread::panicking(),
        };
        Before { unwinding }
    }
}

/// Whether the caller unwinds, and not because it is cancelled.
#[cold]
pub(super) fn panics() -> bool {
    match Worker::current() {
        Some((worker, fiber)) => worker.why_it_unwinds(fiber) == Unwinding::Panic,
        None => std::thread::panicking(),
    }
}

/// As std's: what was asked for, or the same in an error if the lock is poisoned.
pub(super) fn checked<G>(poison: &Poison, guard: G) -> std::sync::LockResult<G> {
    match poison.get() {
        true => Err(std::sync::PoisonError::new(guard)),
        false => Ok(guard),
    }
}
