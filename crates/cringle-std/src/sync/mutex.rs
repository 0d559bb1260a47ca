//! A mutual-exclusion lock: a gate with one permit around a value.

use super::caller::{Caller, WaitError, WaitOptions};
use super::gate::Gate;
use super::poison::{Poison, UnwindingAtLock, checked};
use cringle_core::fiber::Wait;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// `std::sync::Mutex`, for fibers of any workers and for threads. Only the calling fiber waits, and
/// it may hold the guard across any wait.
///
/// It is fair: the lock goes to the waiter that arrived first, and no caller overtakes a waiter. A
/// fiber that panics while it holds the guard poisons the lock; a fiber that a cancel unwinds does
/// not.
///
/// ```
/// use cringle::{fiber, sync::Mutex};
///
/// static TOTAL: Mutex<u32> = Mutex::new(0);
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         for n in 0..10 {
///             s.spawn(move || {
///                 let mut total = TOTAL.lock().unwrap();
///                 fiber::yield_now(); // The other fibers wait for the lock; their workers do not.
///                 *total += n;
///             });
///         }
///     });
/// });
/// assert_eq!(*TOTAL.lock().unwrap(), 45);
/// ```
pub struct Mutex<T: ?Sized> {
    gate: Gate,
    poison: Poison,
    value: UnsafeCell<T>,
}

// SAFETY: the contract of `Send`: the mutex owns its value, which is `Send`, and moves with it.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: the gate's contract: it has one permit, so one guard at a time gives access to the value.
// The access may come from any thread: `T: Send`.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

/// Holds the lock of a [`Mutex`] until it is dropped, and dereferences to the value. As std's
/// guard, it stays on its thread.
///
/// ```
/// let mutex = cringle::sync::Mutex::new(1);
/// *mutex.lock().unwrap() += 1;
/// assert_eq!(mutex.into_inner().unwrap(), 2);
/// ```
///
/// ```compile_fail
/// let mutex = cringle::sync::Mutex::new(1);
/// let guard = mutex.lock().unwrap();
/// std::thread::scope(|s| { s.spawn(|| drop(guard)); });
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized + 'a> {
    mutex: &'a Mutex<T>,
    at_lock: UnwindingAtLock,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a borrowed guard gives only shared access to the value, which is `Sync`.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    constructor! {
        /// Creates an unlocked mutex.
        pub const fn new(value: T) -> Mutex<T> {
            Mutex { gate: Gate::new(1), poison: Poison::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error contains the value.
    pub fn into_inner(self) -> LockResult<T> {
        let Mutex { poison, value, .. } = self;
        checked(&poison, value.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Acquires the lock, and waits while another caller holds it.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error contains the guard.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber acquires a free lock, and unwinds where it would wait.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.gate.acquire_or_unwind(1, Wait::Lock);
        self.guard()
    }

    /// Acquires the lock, for `Condvar`.
    pub(super) fn lock_with(
        &self,
        options: WaitOptions,
    ) -> Result<LockResult<MutexGuard<'_, T>>, WaitError> {
        self.gate.acquire(1, options)?;
        Ok(self.guard())
    }

    /// Like [`lock`](Self::lock), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::Mutex};
    ///
    /// let mutex = Mutex::new(());
    /// cringle::run(|| {
    ///     let held = mutex.lock();
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(mutex.lock_cancellable().is_err());
    ///     });
    ///     drop(held);
    ///     assert!(mutex.lock_cancellable().unwrap().is_ok());
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits. The inner result is what `lock` returns.
    pub fn lock_cancellable(&self) -> io::Result<LockResult<MutexGuard<'_, T>>> {
        self.gate.acquire_cancellable(1, Wait::Lock)?;
        Ok(self.guard())
    }

    /// Acquires the lock if it is free and no caller waits for it.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If the lock is not free, or if it is poisoned. In that case the error contains the guard.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let result = self.try_once();
        Caller::current().tried(!matches!(result, Err(TryLockError::WouldBlock)));
        result
    }

    /// [`try_lock`](Self::try_lock), which never suspends.
    #[inline]
    fn try_once(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if self.gate.try_acquire(1) { Ok(self.guard()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Returns whether a fiber or thread panicked while it held the lock.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// Clears the poison, once the value is known to be consistent again.
    pub fn clear_poison(&self) {
        self.poison.clear();
    }

    /// Returns the value. The exclusive borrow proves that no caller holds the lock.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error contains the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        checked(&self.poison, self.value.get_mut())
    }

    /// Makes the guard for a permit that was acquired.
    #[inline]
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        self.gate.record_holder();
        let guard =
            MutexGuard { mutex: self, at_lock: UnwindingAtLock::now(), not_send: PhantomData };
        checked(&self.poison, guard)
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Returns the mutex of a guard, for `Condvar`, which locks it again later.
    pub(super) fn mutex(guard: &Self) -> &'a Mutex<T> {
        guard.mutex
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.poison.record(self.at_lock);
        self.mutex.gate.clear_holder();
        self.mutex.gate.release(1);
    }
}

derefs! {
    [T: ?Sized] MutexGuard<'_, T> => T,
    // SAFETY: the gate's contract: the guard holds the only permit.
    |guard| unsafe { &*guard.mutex.value.get() },
    // SAFETY: the guard holds the gate's only permit, and is borrowed exclusively.
    mut unsafe { &mut *guard.mutex.value.get() }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Mutex");
        match self.try_once() {
            Ok(guard) => fields.field("data", &&*guard),
            Err(TryLockError::Poisoned(e)) => fields.field("data", &&**e.get_ref()),
            Err(TryLockError::WouldBlock) if std_quotes_locked() => {
                fields.field("data", &"<locked>")
            }
            Err(TryLockError::WouldBlock) => fields.field("data", &format_args!("<locked>")),
        };
        fields.field("poisoned", &self.is_poisoned()).finish_non_exhaustive()
    }
}

/// Returns whether std's `Debug` prints `<locked>` in quotes, as newer versions do.
#[cold]
fn std_quotes_locked() -> bool {
    let lock = std::sync::Mutex::new(());
    let _held = lock.lock();
    format!("{lock:?}").contains('"')
}

made_of_value!(Mutex);

prints_value!(MutexGuard);

/// Returns the value of a lock's result, poisoned or not. For the library's own locks.
pub(super) fn ignore_poison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}
