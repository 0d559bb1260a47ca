//! A readers-writer lock: a gate of which a reader takes one permit and a writer takes all.

use super::caller::{Caller, WaitError, WaitOptions};
use super::gate::Gate;
use super::poison::{Poison, UnwindingAtLock, checked};
use cringle_core::fiber::Wait;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::{LockResult, TryLockError, TryLockResult};

/// `std::sync::RwLock`, for fibers of any workers and for threads. Only the calling fiber waits,
/// and it may hold a guard across any wait.
///
/// It is fair: a reader that arrives after a waiting writer waits behind it. So a fiber that holds
/// a read guard and acquires another one may wait for ever, as with std's.
///
/// ```
/// use cringle::{fiber, sync::RwLock};
///
/// let table = RwLock::new(vec![1, 2]);
/// cringle::run(|| {
///     fiber::scope(|s| {
///         s.spawn(|| assert!(table.read().unwrap().starts_with(&[1, 2])));
///         s.spawn(|| table.write().unwrap().push(3));
///     });
/// });
/// assert_eq!(table.into_inner().unwrap(), [1, 2, 3]);
/// ```
pub struct RwLock<T: ?Sized> {
    gate: Gate,
    poison: Poison,
    value: UnsafeCell<T>,
}

// SAFETY: the contract of `Send`: the lock owns its value, which is `Send`, and moves with it.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: the gate's contract: a writer holds all permits, and so alone has access, from any thread
// (`T: Send`). Several
// readers, from several threads, have shared access (`T: Sync`).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

/// Holds a [`RwLock`] for reading until it is dropped, and dereferences to the value. As std's
/// guard, it stays on its thread.
///
/// ```
/// let lock = cringle::sync::RwLock::new(1);
/// let (first, second) = (lock.read().unwrap(), lock.read().unwrap());
/// assert_eq!(*first + *second, 2);
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    /// Covariant in `T`, unlike `&'a RwLock<T>`. A pointer and not a reference: a writer may access
    /// the value before the guard's drop has returned.
    value: NonNull<T>,
    gate: &'a Gate,
    not_send: PhantomData<*const ()>,
}

/// Holds a [`RwLock`] for writing until it is dropped, and dereferences to the value. As std's
/// guard, it stays on its thread.
///
/// ```
/// let lock = cringle::sync::RwLock::new(1);
/// *lock.write().unwrap() = 2;
/// assert_eq!(*lock.read().unwrap(), 2);
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
    lock: &'a RwLock<T>,
    at_lock: UnwindingAtLock,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a borrowed guard gives only shared access to the value, which is `Sync`.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: a borrowed guard gives only shared access to the value, which is `Sync`.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T> RwLock<T> {
    constructor! {
        /// Creates an unlocked lock.
        pub const fn new(value: T) -> RwLock<T> {
            let gate = Gate::new(Gate::MAX);
            RwLock { gate, poison: Poison::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error contains the value.
    pub fn into_inner(self) -> LockResult<T> {
        let RwLock { poison, value, .. } = self;
        checked(&poison, value.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Acquires the lock for reading, and waits while a writer holds it or waits for it.
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
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.gate.acquire_or_unwind(1, Wait::Lock);
        self.reading()
    }

    /// Acquires the lock for writing, and waits while another caller holds it.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned. The error contains the guard.
    ///
    /// # Cancellation
    ///
    /// As [`read`](Self::read).
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.gate.acquire_or_unwind(Gate::MAX, Wait::Lock);
        self.writing()
    }

    /// Like [`read`](Self::read), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::RwLock};
    ///
    /// let lock = RwLock::new(());
    /// cringle::run(|| {
    ///     let writer = lock.write().unwrap();
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(lock.read_cancellable().is_err());
    ///     });
    ///     drop(writer);
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits. The inner result is what `read` returns.
    pub fn read_cancellable(&self) -> io::Result<LockResult<RwLockReadGuard<'_, T>>> {
        self.read_with(WaitOptions::fallible(Wait::Lock)).map_err(WaitError::into_io_error)
    }

    pub(super) fn read_with(
        &self,
        options: WaitOptions,
    ) -> Result<LockResult<RwLockReadGuard<'_, T>>, WaitError> {
        self.gate.acquire(1, options)?;
        Ok(self.reading())
    }

    /// Like [`write`](Self::write), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::RwLock};
    ///
    /// let lock = RwLock::new(());
    /// cringle::run(|| {
    ///     let reader = lock.read().unwrap();
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(lock.write_cancellable().is_err());
    ///     });
    ///     drop(reader);
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits. The inner result is what `write` returns.
    pub fn write_cancellable(&self) -> io::Result<LockResult<RwLockWriteGuard<'_, T>>> {
        self.write_with(WaitOptions::fallible(Wait::Lock)).map_err(WaitError::into_io_error)
    }

    pub(super) fn write_with(
        &self,
        options: WaitOptions,
    ) -> Result<LockResult<RwLockWriteGuard<'_, T>>, WaitError> {
        self.gate.acquire(Gate::MAX, options)?;
        Ok(self.writing())
    }

    /// Acquires the lock for reading if no writer holds it or waits for it.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If a writer holds the lock or waits for it, or if the lock is poisoned. In that case the
    /// error contains the guard.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let result = self.try_once();
        Caller::current().tried(!matches!(result, Err(TryLockError::WouldBlock)));
        result
    }

    /// [`try_read`](Self::try_read), which never suspends.
    #[inline]
    fn try_once(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        if self.gate.try_acquire(1) { Ok(self.reading()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Acquires the lock for writing if no caller holds it or waits for it.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If another caller holds the lock or waits for it, or if the lock is poisoned. In that case
    /// the error contains the guard.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let taken = self.gate.try_acquire(Gate::MAX);
        Caller::current().tried(taken);
        if taken { Ok(self.writing()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// Returns whether a fiber or thread panicked while it held the lock for writing.
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

    #[inline]
    fn reading(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        checked(&self.poison, self.read_guard())
    }

    /// Makes the guard for a permit that was acquired.
    #[inline]
    fn read_guard(&self) -> RwLockReadGuard<'_, T> {
        let value = NonNull::new(self.value.get()).expect("a cell has an address");
        RwLockReadGuard { value, gate: &self.gate, not_send: PhantomData }
    }

    #[inline]
    fn writing(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.gate.record_holder();
        let at_lock = UnwindingAtLock::now();
        checked(&self.poison, RwLockWriteGuard { lock: self, at_lock, not_send: PhantomData })
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Turns a write guard into a read guard. No other writer holds the lock in between.
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let lock = guard.lock;
        // The holder does not unwind here, so no poison is recorded.
        std::mem::forget(guard);
        lock.gate.clear_holder();
        lock.gate.release(Gate::MAX - 1);
        lock.read_guard()
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.gate.release(1);
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.poison.record(self.at_lock);
        self.lock.gate.clear_holder();
        self.lock.gate.release(Gate::MAX);
    }
}

derefs! {
    [T: ?Sized] RwLockReadGuard<'_, T> => T,
    // SAFETY: the gate's contract: the guard holds a permit, so no writer holds all of them.
    |guard| unsafe { guard.value.as_ref() }
}

derefs! {
    [T: ?Sized] RwLockWriteGuard<'_, T> => T,
    // SAFETY: the gate's contract: the guard holds all permits.
    |guard| unsafe { &*guard.lock.value.get() },
    // SAFETY: the guard holds all of the gate's permits, and is borrowed exclusively.
    mut unsafe { &mut *guard.lock.value.get() }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("RwLock");
        match self.try_once() {
            Ok(guard) => fields.field("data", &&*guard),
            Err(TryLockError::Poisoned(e)) => fields.field("data", &&**e.get_ref()),
            Err(TryLockError::WouldBlock) => fields.field("data", &format_args!("<locked>")),
        };
        fields.field("poisoned", &self.is_poisoned()).finish_non_exhaustive()
    }
}

made_of_value!(RwLock);

prints_value!(RwLockReadGuard, RwLockWriteGuard);
