//! Mutual exclusion: [`std::sync::Mutex`] without poison.

use super::futex::{Futex, Word};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::Ordering;

pub(super) const FREE: u32 = 0;
const LOCKED: u32 = 1;
/// Locked, and a thread may wait: the one that unlocks it wakes one.
const CONTENDED: u32 = 2;

#[inline]
pub(super) fn acquire(word: &impl Word) {
    if !word.change(FREE, LOCKED) {
        acquire_contended(word);
    }
}

#[cold]
fn acquire_contended<W: Word>(word: &W) {
    let mut state = spin(word);
    if state == FREE && word.change(FREE, LOCKED) {
        return;
    }
    loop {
        // A thread that has waited does not know whether others wait, so it assumes that they do.
        if state != CONTENDED && word.swap(CONTENDED, Ordering::Acquire) == FREE {
            return;
        }
        word.wait(CONTENDED);
        state = spin(word);
    }
}

/// Looks at a locked word for a while, unless other threads wait already.
fn spin<W: Word>(word: &W) -> u32 {
    let mut state = word.load();
    for _ in 0..W::SPINS {
        if state != LOCKED {
            break;
        }
        std::hint::spin_loop();
        state = word.load();
    }
    state
}

#[inline]
pub(super) fn release(word: &impl Word) {
    if word.swap(FREE, Ordering::Release) == CONTENDED {
        word.wake_one();
    }
}

/// The number of locks that the running code holds, for assertions of **I6**. Code on a fiber with
/// thread-locals of its own has a number of its own.
#[cfg(debug_assertions)]
pub mod held {
    use std::cell::Cell;

    thread_local! {
        static HELD: Cell<u32> = const { Cell::new(0) };
    }

    /// Returns the number of locks of the library that the calling thread holds.
    pub fn count() -> u32 {
        HELD.get()
    }

    pub(super) fn begin() {
        HELD.set(HELD.get() + 1);
    }

    pub(super) fn end() {
        HELD.set(HELD.get() - 1);
    }
}

/// See the [module](super).
pub struct Mutex<T: ?Sized> {
    word: Futex,
    value: UnsafeCell<T>,
}

// SAFETY: I14. The lock gives access to one thread at a time, as std's does, under the same bounds.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: I14. As above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

impl<T> Mutex<T> {
    /// A lock that no thread holds.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { word: Futex::new(FREE), value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        acquire(&self.word);
        MutexGuard::new(self)
    }

    /// Returns `None` if the lock is held.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let acquired = self.word.change(FREE, LOCKED);
        acquired.then(|| MutexGuard::new(self))
    }

    /// Unlocks it in a child of `fork`, if a thread of the parent held it.
    ///
    /// # Safety
    ///
    /// I14: the caller is the only thread of the process, and has no guard. What the lock guards
    /// may be used in any state that it has under the lock.
    pub unsafe fn unlock_in_child(&self) {
        self.word.swap(FREE, Ordering::Relaxed);
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(guard) => debug.field("data", &&*guard).finish(),
            None => debug.field("data", &format_args!("<locked>")).finish(),
        }
    }
}

/// Keeps the lock until it is dropped.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    pub(super) mutex: &'a Mutex<T>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: I14. A shared guard gives shared access to the value only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    #[inline]
    fn new(mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        #[cfg(debug_assertions)]
        held::begin();
        MutexGuard { mutex, not_send: PhantomData }
    }

    pub(super) fn word(&self) -> &'a Futex {
        &self.mutex.word
    }
}

derefs! {
    [T: ?Sized] MutexGuard<'_, T> => T,
    // SAFETY: I14. This guard holds the lock.
    |guard| unsafe { &*guard.mutex.value.get() },
    // SAFETY: I14. This guard holds the lock, and is borrowed exclusively.
    mut unsafe { &mut *guard.mutex.value.get() }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        held::end();
        release(&self.mutex.word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_holds_it() {
        const ROUNDS: usize = 20_000;
        let counter = Mutex::new(0);
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..ROUNDS).for_each(|_| *counter.lock() += 1));
            }
        });
        assert_eq!(*counter.lock(), 4 * ROUNDS);
    }

    #[test]
    fn a_sleeping_waiter_is_woken() {
        let mutex = Mutex::new(false);
        let guard = mutex.lock();
        thread::scope(|s| {
            s.spawn(|| *mutex.lock() = true);
            // The other thread has stopped spinning when it has marked the word.
            while mutex.word.load() != CONTENDED {
                thread::yield_now();
            }
            drop(guard);
        });
        assert!(*mutex.lock());
    }

    #[test]
    fn a_panic_releases_it_unpoisoned() {
        let mutex = Mutex::new(1);
        let result = std::panic::catch_unwind(|| {
            let _guard = mutex.lock();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(result.is_err());
        assert_eq!(mutex.try_lock().as_deref(), Some(&1));
    }
}
