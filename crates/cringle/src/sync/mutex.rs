//! A lock that hands its value to one at a time: a gate with one permit.

use super::caller::{Caller, WaitError, WaitOptions};
use super::gate::Gate;
use super::poison::{Before, Poison, checked};
use crate::runtime::fiber::Wait;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// `std::sync::Mutex`, for fibers of any workers and for OS threads. Only the calling fiber waits,
/// and it may hold the guard over any wait.
///
/// It is fair: who has waited longest is next, and nobody overtakes. A fiber that panics with the
/// guard poisons it; one that is unwound by a cancel does not.
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
///                 fiber::yield_now(); // The others wait meanwhile, their workers do not.
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

// SAFETY: the gate lets one at a time at the value, which may so come to another thread.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

/// The lock is held until this is dropped. As std's, it stays on its thread.
///
/// ```compile_fail
/// let mutex = cringle::sync::Mutex::new(1);
/// let guard = mutex.lock().unwrap();
/// std::thread::scope(|s| { s.spawn(|| drop(guard)); });
/// ```
#[must_use = "the lock is let go of at once"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized + 'a> {
    mutex: &'a Mutex<T>,
    before: Before,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value, and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    constructor! {
        /// An unlocked one.
        pub const fn new(value: T) -> Mutex<T> {
            Mutex { gate: Gate::new(1), poison: Poison::new(), value: UnsafeCell::new(value) }
        }
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned; the error holds the value.
    pub fn into_inner(self) -> LockResult<T> {
        let Mutex { poison, value, .. } = self;
        checked(&poison, value.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the lock is the caller's.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If it is poisoned; the error holds the guard.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber takes a lock that is free, and unwinds where it would wait.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if let Err(error) = self.gate.acquire(1, WaitOptions::unwinding(Wait::Lock)) {
            error.unwind();
        }
        self.guard()
    }

    /// For `Condvar`.
    pub(super) fn lock_on(
        &self,
        options: WaitOptions,
    ) -> Result<LockResult<MutexGuard<'_, T>>, WaitError> {
        self.gate.acquire(1, options)?;
        Ok(self.guard())
    }

    /// [`lock`](Self::lock), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled while it waits. Inside is what
    /// `lock` returns.
    pub fn lock_cancellable(&self) -> io::Result<LockResult<MutexGuard<'_, T>>> {
        self.gate
            .acquire(1, WaitOptions::fallible(Wait::Lock))
            .map_err(WaitError::into_io_error)?;
        Ok(self.guard())
    }

    /// Takes the lock if it is free and nobody waits for it.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If it is not, or if it is poisoned; the error holds the guard then.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let taken = self.gate.try_acquire(1);
        Caller::current().tried(taken);
        match taken {
            true => Ok(self.guard()?),
            false => Err(TryLockError::WouldBlock),
        }
    }

    /// Whether a fiber or thread panicked with the guard.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// It is not poisoned any more.
    pub fn clear_poison(&self) {
        self.poison.clear();
    }

    /// The value, which nobody can have locked.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned; the error holds the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        checked(&self.poison, self.value.get_mut())
    }

    /// The permit was taken.
    #[inline]
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        self.gate.record_holder();
        let guard = MutexGuard { mutex: self, before: Before::new(), stays: PhantomData };
        checked(&self.poison, guard)
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// For `Condvar`, which takes the lock again later.
    pub(super) fn mutex(guard: &Self) -> &'a Mutex<T> {
        guard.mutex
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.poison.note(self.before);
        self.mutex.gate.clear_holder();
        self.mutex.gate.release(1);
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard has the gate's one permit.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Mutex");
        match self.try_lock() {
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

/// Whether std prints the word for a locked value in quotes, as newer versions do.
#[cold]
fn std_quotes_locked() -> bool {
    let lock = std::sync::Mutex::new(());
    let _held = lock.lock();
    format!("{lock:?}").contains('"')
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The value behind a lock's result, poisoned or not: for locks of the library's own.
pub(super) fn ignore_poison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}
