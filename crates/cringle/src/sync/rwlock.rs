//! A lock for many readers or one writer: a gate of which a reader takes one permit and a writer all.

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
use std::ptr::NonNull;
use std::sync::{LockResult, TryLockError, TryLockResult};

/// `std::sync::RwLock`, for fibers of any workers and for OS threads. Only the calling fiber waits,
/// and it may hold a guard over any wait.
///
/// It is fair: a reader that comes after a waiting writer waits behind it, so a fiber that already
/// reads and asks to read once more may wait for ever, as with std's.
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

// SAFETY: the gate lets writers at the value one at a time, and then no reader; the value may so
// come to another thread (`Send`), and be seen by several (`Sync`).
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

/// The value is read until this is dropped. As std's, it stays on its thread.
#[must_use = "the lock is let go of at once"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    /// Not a `&'a RwLock<T>`, which is invariant in `T`. A pointer and no reference, as a writer may be
    /// at the value before the guard's drop has returned.
    value: NonNull<T>,
    gate: &'a Gate,
    stays: PhantomData<*const ()>,
}

/// The value is the caller's until this is dropped. As std's, it stays on its thread.
#[must_use = "the lock is let go of at once"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
    lock: &'a RwLock<T>,
    before: Before,
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value, and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T> RwLock<T> {
    constructor! {
        /// An unlocked one.
        pub const fn new(value: T) -> RwLock<T> {
            let gate = Gate::new(Gate::MAX);
            RwLock { gate, poison: Poison::new(), value: UnsafeCell::new(value) }
        }
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned; the error holds the value.
    pub fn into_inner(self) -> LockResult<T> {
        let RwLock { poison, value, .. } = self;
        checked(&poison, value.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until the caller may read.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned; the error holds the guard.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber takes a lock that is free, and unwinds where it would wait.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        if let Err(error) = self.gate.acquire(1, WaitOptions::unwinding(Wait::Lock)) {
            error.unwind();
        }
        self.reading()
    }

    /// Waits until the caller may write.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned; the error holds the guard.
    ///
    /// # Cancellation
    ///
    /// As [`read`](Self::read).
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        if let Err(error) = self.gate.acquire(Gate::MAX, WaitOptions::unwinding(Wait::Lock)) {
            error.unwind();
        }
        self.writing()
    }

    /// [`read`](Self::read), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled while it waits. Inside is what
    /// `read` returns.
    pub fn read_cancellable(&self) -> io::Result<LockResult<RwLockReadGuard<'_, T>>> {
        self.gate
            .acquire(1, WaitOptions::fallible(Wait::Lock))
            .map_err(WaitError::into_io_error)?;
        Ok(self.reading())
    }

    /// [`write`](Self::write), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled while it waits. Inside is what
    /// `write` returns.
    pub fn write_cancellable(&self) -> io::Result<LockResult<RwLockWriteGuard<'_, T>>> {
        self.write_on(WaitOptions::fallible(Wait::Lock)).map_err(WaitError::into_io_error)
    }

    pub(super) fn write_on(
        &self,
        options: WaitOptions,
    ) -> Result<LockResult<RwLockWriteGuard<'_, T>>, WaitError> {
        self.gate.acquire(Gate::MAX, options)?;
        Ok(self.writing())
    }

    /// Reads if nobody writes, or waits to.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If somebody does, or if the lock is poisoned; the error holds the guard then.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let taken = self.gate.try_acquire(1);
        Caller::current().tried(taken);
        match taken {
            true => Ok(self.reading()?),
            false => Err(TryLockError::WouldBlock),
        }
    }

    /// Writes if nobody reads or writes, or waits to.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If somebody does, or if the lock is poisoned; the error holds the guard then.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let taken = self.gate.try_acquire(Gate::MAX);
        Caller::current().tried(taken);
        match taken {
            true => Ok(self.writing()?),
            false => Err(TryLockError::WouldBlock),
        }
    }

    /// Whether a fiber or thread panicked while it wrote.
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

    #[inline]
    fn reading(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        checked(&self.poison, self.read_guard())
    }

    /// A permit was taken.
    #[inline]
    fn read_guard(&self) -> RwLockReadGuard<'_, T> {
        let value = NonNull::new(self.value.get()).expect("a cell has an address");
        RwLockReadGuard { value, gate: &self.gate, stays: PhantomData }
    }

    #[inline]
    fn writing(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.gate.record_holder();
        let guard = RwLockWriteGuard { lock: self, before: Before::new(), stays: PhantomData };
        checked(&self.poison, guard)
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Goes on as a reader; no other writer comes in between.
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let lock = guard.lock;
        // It has not panicked yet: nothing is to be noted.
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
        self.lock.poison.note(self.before);
        self.lock.gate.clear_holder();
        self.lock.gate.release(Gate::MAX);
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard has one of the gate's permits, so no writer has all.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard has all of the gate's permits.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("RwLock");
        match self.try_read() {
            Ok(guard) => fields.field("data", &&*guard),
            Err(TryLockError::Poisoned(e)) => fields.field("data", &&**e.get_ref()),
            Err(TryLockError::WouldBlock) => fields.field("data", &format_args!("<locked>")),
        };
        fields.field("poisoned", &self.is_poisoned()).finish_non_exhaustive()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
