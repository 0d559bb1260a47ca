//! std's `Mutex`, whose guards the detector sees.

use cringle_core::hazards;
use cringle_core::hazards::held::{Kind, Record};
use cringle_core::hazards::owner::Owner;
use cringle_core::label::Origin;
use std::fmt;
use std::panic::Location;
use std::sync::{LockResult, Mutex as Inner, PoisonError, TryLockError, TryLockResult};

/// `std::sync::Mutex`, which blocks the thread, with guards that the [detector](super) sees.
///
/// It is for code that must be std's, and drops its guards before each wait. A lock that may be
/// held over a wait is [`sync::Mutex`](cringle_std::sync::Mutex).
///
/// ```
/// use cringle::detect::Mutex;
/// use cringle::fiber;
///
/// static TOTAL: Mutex<u32> = Mutex::new(0);
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         for n in 0..10 {
///             s.spawn(move || {
///                 *TOTAL.lock().unwrap() += n; // The guard is dropped here.
///                 fiber::yield_now();
///             });
///         }
///     });
/// });
/// assert_eq!(*TOTAL.lock().unwrap(), 45);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    owner: Owner,
    inner: Inner<T>,
}

/// Holds the lock of a [`Mutex`] until it is dropped, and dereferences to the value.
///
/// ```
/// let mutex = cringle::detect::Mutex::new(1);
/// *mutex.lock().unwrap() += 1;
/// assert_eq!(mutex.into_inner().unwrap(), 2);
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized + 'a> {
    owner: &'a Owner,
    _record: Record,
    inner: std::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { owner: Owner::new(), inner: Inner::new(value) }
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error contains the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Acquires the lock, and blocks the thread while another caller holds it. If its holder is a
    /// suspended fiber of the same worker, the detector reports that before.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error contains the guard.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let place = Location::caller();
        if hazards::is_active() {
            match self.inner.try_lock() {
                Ok(inner) => return Ok(self.guard(inner, place)),
                Err(TryLockError::Poisoned(e)) => return Err(self.poisoned(e, place)),
                Err(TryLockError::WouldBlock) => self.owner.report_deadlock(place),
            }
        }
        match self.inner.lock() {
            Ok(inner) => Ok(self.guard(inner, place)),
            Err(e) => Err(self.poisoned(e, place)),
        }
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    ///
    /// If the lock is not free, or if it is poisoned. In that case the error contains the guard.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let place = Location::caller();
        match self.inner.try_lock() {
            Ok(inner) => Ok(self.guard(inner, place)),
            Err(TryLockError::Poisoned(e)) => Err(self.poisoned(e, place).into()),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// Returns whether a thread panicked while it held the lock.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// Clears the poison, once the value is known to be consistent again.
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// Returns the value. The exclusive borrow proves that no caller holds the lock.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error contains the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }

    #[inline]
    fn guard<'a>(
        &'a self,
        inner: std::sync::MutexGuard<'a, T>,
        place: Origin,
    ) -> MutexGuard<'a, T> {
        self.owner.set(place);
        let record = Record::new(Kind::Lock, (&raw const self.owner).cast(), place);
        MutexGuard { owner: &self.owner, _record: record, inner }
    }

    #[cold]
    fn poisoned<'a>(
        &'a self,
        error: PoisonError<std::sync::MutexGuard<'a, T>>,
        place: Origin,
    ) -> PoisonError<MutexGuard<'a, T>> {
        PoisonError::new(self.guard(error.into_inner(), place))
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.owner.clear();
    }
}

derefs!([T: ?Sized] MutexGuard<'_, T> => T, |guard| &guard.inner, mut &mut guard.inner);

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

prints_value!(MutexGuard);

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}
