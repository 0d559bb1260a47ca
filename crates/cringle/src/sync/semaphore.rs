//! A number of permits: a gate that users count by.

use super::caller::{Caller, WaitError, WaitOptions};
use super::gate::Gate;
use crate::runtime::fiber::Wait;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Permits for so many at once, for fibers of any workers and for OS threads. Only the calling fiber
/// waits, and it may hold a [`Permit`] over any wait.
///
/// It is fair: who has waited longest is next, also if others would need fewer.
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
    /// Permits that are free or taken.
    total: AtomicUsize,
}

/// Permits that are given back when this is dropped: from anywhere.
#[must_use = "the permits are given back at once"]
#[clippy::has_significant_drop]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Semaphore {
    /// As many permits as there can be.
    pub const MAX_PERMITS: usize = Gate::MAX;

    constructor! {
        /// One with this many free permits.
        ///
        /// # Panics
        ///
        /// If they are more than [`MAX_PERMITS`](Self::MAX_PERMITS).
        pub const fn new(permits: usize) -> Semaphore {
            Semaphore { gate: Gate::new(permits), total: AtomicUsize::new(permits) }
        }
    }

    /// Waits for a permit.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber takes a permit that is free, and unwinds where it would wait.
    pub fn acquire(&self) -> Permit<'_> {
        self.acquire_many(1)
    }

    /// Waits for this many permits, and takes them together.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_many(&self, count: usize) -> Permit<'_> {
        if let Err(error) = self.gate.acquire(count, WaitOptions::unwinding(Wait::Permit)) {
            error.unwind();
        }
        Permit { semaphore: self, count }
    }

    /// [`acquire`](Self::acquire), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled while it waits.
    pub fn acquire_cancellable(&self) -> io::Result<Permit<'_>> {
        self.acquire_many_cancellable(1)
    }

    /// [`acquire_many`](Self::acquire_many), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled while it waits.
    pub fn acquire_many_cancellable(&self, count: usize) -> io::Result<Permit<'_>> {
        self.gate
            .acquire(count, WaitOptions::fallible(Wait::Permit))
            .map_err(WaitError::into_io_error)?;
        Ok(Permit { semaphore: self, count })
    }

    /// Takes a permit if one is free and nobody waits.
    /// Suspends the calling fiber only after 128 failures in a row.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes this many permits if they are free and nobody waits.
    /// Suspends the calling fiber only after 128 failures in a row.
    pub fn try_acquire_many(&self, count: usize) -> Option<Permit<'_>> {
        let taken = self.gate.try_acquire(count);
        Caller::current().tried(taken);
        taken.then(|| Permit { semaphore: self, count })
    }

    /// Adds permits to those there are.
    ///
    /// # Panics
    ///
    /// If there were more than [`MAX_PERMITS`](Self::MAX_PERMITS) then, free and taken ones together.
    pub fn add_permits(&self, count: usize) {
        let add = |total: usize| total.checked_add(count).filter(|&sum| sum <= Gate::MAX);
        let added = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        assert!(added.is_ok(), "a semaphore would have too many permits");
        self.gate.release(count);
    }

    /// The permits that are free now.
    pub fn available(&self) -> usize {
        self.gate.available()
    }
}

impl Permit<'_> {
    /// The permits are not given back: the semaphore has so many fewer from now on.
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

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("count", &self.count).finish_non_exhaustive()
    }
}
