//! Poisoning as in std, but decided by the fiber and not by its thread's panic count (**I8**): a
//! fiber that is suspended in a destructor of its panic poisons no lock of another fiber. A cancel
//! that unwinds a fiber is no panic, and poisons nothing.

use cringle_core::unwinding::Unwinding;
use cringle_core::worker::Current;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a fiber or thread panicked while it held the lock.
pub(super) struct Poison(AtomicBool);

/// Whether the caller was already unwinding when it acquired the lock. Such a caller does not
/// poison the lock when it releases it.
#[derive(Clone, Copy)]
pub(super) struct UnwindingAtLock(bool);

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

    /// Poisons the lock if its holder, which is about to release it, panics.
    #[inline]
    pub(super) fn record(&self, at_lock: UnwindingAtLock) {
        if std::thread::panicking() && !at_lock.0 && panics() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl UnwindingAtLock {
    /// Returns the state of the caller, which has just acquired the lock.
    #[inline]
    pub(super) fn now() -> UnwindingAtLock {
        let unwinding = match Current::get() {
            Some(current) => {
                let unwinding = current.surely_unwinds();
                if !unwinding {
                    // An earlier unwinding of the fiber was caught.
                    current.fiber.set_unwinding(Unwinding::No);
                }
                unwinding
            }
            None => std::thread::panicking(),
        };
        UnwindingAtLock(unwinding)
    }
}

/// Returns whether the caller unwinds because of a panic, not because it is cancelled.
#[cold]
pub(super) fn panics() -> bool {
    match Current::get() {
        Some(current) => current.why_it_unwinds() == Unwinding::Panic,
        None => std::thread::panicking(),
    }
}

/// Returns `guard`, as an error if the lock is poisoned.
pub(super) fn checked<G>(poison: &Poison, guard: G) -> std::sync::LockResult<G> {
    if poison.get() { Err(std::sync::PoisonError::new(guard)) } else { Ok(guard) }
}
