//! A counting semaphore: a gate whose permits the program counts.

use super::caller::Caller;
use super::gate::Gate;
use cringle_core::fiber::Wait;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of permits, for fibers of any workers and for threads. Only the calling fiber waits,
/// and it may hold a [`Permit`] across any wait.
///
/// It is fair: permits go to the waiter that arrived first, even if a later one needs fewer.
///
/// ```
/// use cringle::{fiber, sync::Semaphore};
///
/// let two_at_once = Semaphore::new(2);
/// cringle::run(|| {
///     fiber::scope(|s| {
///         for _ in 0..10 {
///             s.spawn(|| {
///                 let _permit = two_at_once.acquire();
///                 assert!(two_at_once.available() <= 1);
///                 fiber::yield_now();
///             });
///         }
///     });
/// });
/// assert_eq!(two_at_once.available(), 2);
/// ```
pub struct Semaphore {
    gate: Gate,
    /// The number of permits, free and acquired.
    total: AtomicUsize,
}

/// Permits of a [`Semaphore`], which are released when it is dropped, on any thread.
///
/// ```
/// let semaphore = cringle::sync::Semaphore::new(1);
/// let permit = semaphore.acquire();
/// assert_eq!(semaphore.available(), 0);
/// drop(permit);
/// assert_eq!(semaphore.available(), 1);
/// ```
#[must_use = "if unused, the permits are released at once"]
#[clippy::has_significant_drop]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Semaphore {
    /// The largest number of permits.
    ///
    /// ```
    /// use cringle::sync::Semaphore;
    ///
    /// // A writer takes all permits, a reader one.
    /// let file = Semaphore::new(Semaphore::MAX_PERMITS);
    /// let reader = file.acquire();
    /// assert!(file.try_acquire_many(Semaphore::MAX_PERMITS).is_none());
    /// drop(reader);
    /// assert!(file.try_acquire_many(Semaphore::MAX_PERMITS).is_some());
    /// ```
    pub const MAX_PERMITS: usize = Gate::MAX;

    constructor! {
        /// Creates a semaphore with this many free permits.
        ///
        /// ```
        /// static UPLOADS: cringle::sync::Semaphore = cringle::sync::Semaphore::new(8);
        /// assert_eq!(UPLOADS.available(), 8);
        /// ```
        ///
        /// # Panics
        ///
        /// If `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
        pub const fn new(permits: usize) -> Semaphore {
            Semaphore { gate: Gate::new(permits), total: AtomicUsize::new(permits) }
        }
    }

    /// Acquires a permit, and waits until one is free.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let semaphore = cringle::sync::Semaphore::new(1);
    /// let permit = cringle::run(|| semaphore.acquire());
    /// assert!(semaphore.try_acquire().is_none());
    /// # drop(permit);
    /// ```
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber acquires a free permit, and unwinds where it would wait.
    pub fn acquire(&self) -> Permit<'_> {
        self.acquire_many(1)
    }

    /// Acquires `count` permits together, and waits until they are free.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let semaphore = cringle::sync::Semaphore::new(3);
    /// let permits = semaphore.acquire_many(2);
    /// assert_eq!(semaphore.available(), 1);
    /// # drop(permits);
    /// ```
    ///
    /// # Cancellation
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_many(&self, count: usize) -> Permit<'_> {
        self.gate.acquire_or_unwind(count, Wait::Permit);
        Permit { semaphore: self, count }
    }

    /// Like [`acquire`](Self::acquire), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::Semaphore};
    ///
    /// let semaphore = Semaphore::new(0);
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(semaphore.acquire_cancellable().is_err());
    ///     });
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits.
    pub fn acquire_cancellable(&self) -> io::Result<Permit<'_>> {
        self.acquire_many_cancellable(1)
    }

    /// Like [`acquire_many`](Self::acquire_many), but returns an error if the calling fiber is
    /// cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let semaphore = cringle::sync::Semaphore::new(3);
    /// let permits = semaphore.acquire_many_cancellable(3)?;
    /// assert_eq!(semaphore.available(), 0);
    /// # drop(permits);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits.
    pub fn acquire_many_cancellable(&self, count: usize) -> io::Result<Permit<'_>> {
        self.gate.acquire_cancellable(count, Wait::Permit)?;
        Ok(Permit { semaphore: self, count })
    }

    /// Acquires a permit if one is free and no caller waits.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// ```
    /// let semaphore = cringle::sync::Semaphore::new(1);
    /// let permit = semaphore.try_acquire().unwrap();
    /// assert!(semaphore.try_acquire().is_none());
    /// # drop(permit);
    /// ```
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.try_acquire_many(1)
    }

    /// Acquires `count` permits if they are free and no caller waits.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// ```
    /// let semaphore = cringle::sync::Semaphore::new(2);
    /// assert!(semaphore.try_acquire_many(3).is_none());
    /// assert!(semaphore.try_acquire_many(2).is_some());
    /// ```
    pub fn try_acquire_many(&self, count: usize) -> Option<Permit<'_>> {
        let taken = self.gate.try_acquire(count);
        Caller::current().tried(taken);
        taken.then(|| Permit { semaphore: self, count })
    }

    /// Adds `count` free permits.
    ///
    /// ```
    /// let semaphore = cringle::sync::Semaphore::new(0);
    /// semaphore.add_permits(2);
    /// assert_eq!(semaphore.available(), 2);
    /// ```
    ///
    /// # Panics
    ///
    /// If the free and acquired permits together would exceed [`MAX_PERMITS`](Self::MAX_PERMITS).
    pub fn add_permits(&self, count: usize) {
        let add = |total: usize| total.checked_add(count).filter(|&sum| sum <= Gate::MAX);
        let added = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        assert!(added.is_ok(), "a semaphore would have too many permits");
        self.gate.release(count);
    }

    /// Returns the number of free permits.
    ///
    /// ```
    /// assert_eq!(cringle::sync::Semaphore::new(4).available(), 4);
    /// ```
    pub fn available(&self) -> usize {
        self.gate.available()
    }
}

impl Permit<'_> {
    /// Removes the permits from the semaphore for good, instead of releasing them.
    ///
    /// ```
    /// let semaphore = cringle::sync::Semaphore::new(2);
    /// semaphore.acquire().forget();
    /// assert_eq!(semaphore.available(), 1);
    /// ```
    pub fn forget(self) {
        self.semaphore.total.fetch_sub(self.count, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.gate.release(self.count);
    }
}

brief_debug!(Semaphore, |it| available: it.available());

brief_debug!(Permit<'a>, |it| count: it.count);
