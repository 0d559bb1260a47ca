//! Waiting for a condition under a mutex: a queue, entered before the mutex is let go of.

use super::caller::{Caller, Left, Terms, deadline};
use super::mutex::{Mutex, MutexGuard};
use super::queue::{Guarded, Queue, Waiter, Woken};
use crate::runtime::about::At;
use crate::runtime::fiber::Wait;
use std::fmt;
use std::io;
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

/// `std::sync::Condvar`, for fibers of any workers and for OS threads, with this module's
/// [`Mutex`]. Who has waited longest is notified first.
///
/// ```
/// use cringle::{fiber, sync::{Condvar, Mutex}};
///
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// cringle::run(|| {
///     fiber::scope(|s| {
///         s.spawn(|| {
///             *ready.lock().unwrap() = true;
///             changed.notify_one();
///         });
///         let guard = changed.wait_while(ready.lock().unwrap(), |ready| !*ready);
///         assert!(*guard.unwrap());
///     });
/// });
/// ```
pub struct Condvar {
    queue: Guarded<Queue>,
}

/// Whether a wait with a limit ended because its time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was up.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

type Waited<'a, T> = LockResult<MutexGuard<'a, T>>;
type WaitedFor<'a, T> = LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>;

impl Condvar {
    constructor! {
        /// One that nobody waits for.
        pub const fn new() -> Condvar {
            Condvar { queue: Guarded::new(Queue::new()) }
        }
    }

    /// Lets go of the mutex and waits for a notification; then takes the mutex again. As with std's,
    /// it may also return for no reason.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the mutex is poisoned when it is taken again; the error holds the guard.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here, without the mutex. A notification that it had been given goes
    /// to the next one.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> Waited<'a, T> {
        let result = self.wait_on(guard, Terms::unwinding(Wait::Condvar));
        result.map(forget_time).unwrap_or_else(|left| left.unwind())
    }

    /// [`wait`](Self::wait), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled; the mutex was let go of then.
    /// Inside is what `wait` returns.
    pub fn wait_cancellable<'a, T>(&self, guard: MutexGuard<'a, T>) -> io::Result<Waited<'a, T>> {
        let result = self.wait_on(guard, Terms::reporting(Wait::Condvar));
        result.map(forget_time).map_err(Left::error)
    }

    /// Waits until the condition does not hold any more.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Cancellation
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_while<'a, T, F>(&self, guard: MutexGuard<'a, T>, mut condition: F) -> Waited<'a, T>
    where
        F: FnMut(&mut T) -> bool,
    {
        Caller::current().spend();
        let mut guard = guard;
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// [`wait_while`](Self::wait_while), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`wait_cancellable`](Self::wait_cancellable).
    pub fn wait_while_cancellable<'a, T, F>(
        &self,
        guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> io::Result<Waited<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        Caller::current().spend();
        let mut guard = guard;
        while condition(&mut *guard) {
            guard = match self.wait_cancellable(guard)? {
                Ok(guard) => guard,
                poisoned => return Ok(poisoned),
            };
        }
        Ok(Ok(guard))
    }

    /// [`wait`](Self::wait) for this long at most. Taking the mutex again may take longer.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Cancellation
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> WaitedFor<'a, T> {
        let terms = Terms::unwinding(Wait::Condvar).until(deadline(timeout));
        self.wait_on(guard, terms).unwrap_or_else(|left| left.unwind())
    }

    /// [`wait_timeout`](Self::wait_timeout), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`wait_cancellable`](Self::wait_cancellable).
    pub fn wait_timeout_cancellable<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> io::Result<WaitedFor<'a, T>> {
        let terms = Terms::reporting(Wait::Condvar).until(deadline(timeout));
        self.wait_on(guard, terms).map_err(Left::error)
    }

    /// [`wait_while`](Self::wait_while) for this long at most. The time was up if the condition
    /// still holds.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Cancellation
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_timeout_while<'a, T, F>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: F,
    ) -> WaitedFor<'a, T>
    where
        F: FnMut(&mut T) -> bool,
    {
        let terms = Terms::unwinding(Wait::Condvar).until(deadline(timeout));
        self.wait_on_while(guard, terms, condition).unwrap_or_else(|left| left.unwind())
    }

    /// [`wait_timeout_while`](Self::wait_timeout_while), for a fiber that wants to be told that it is
    /// cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As [`wait_cancellable`](Self::wait_cancellable).
    pub fn wait_timeout_while_cancellable<'a, T, F>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: F,
    ) -> io::Result<WaitedFor<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        let terms = Terms::reporting(Wait::Condvar).until(deadline(timeout));
        self.wait_on_while(guard, terms, condition).map_err(Left::error)
    }

    /// Wakes the one who has waited longest, if anybody waits.
    pub fn notify_one(&self) {
        let woken = self.queue.hold().pop().map(|taken| taken.give());
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        let mut woken = Woken::default();
        self.queue.hold().give_all(&mut woken);
        woken.wake();
    }

    fn wait_on_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        terms: Terms,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Result<WaitedFor<'a, T>, Left> {
        Caller::current().spend();
        loop {
            if !condition(&mut *guard) {
                return Ok(Ok((guard, WaitTimeoutResult(false))));
            }
            if terms.is_late() {
                return Ok(Ok((guard, WaitTimeoutResult(true))));
            }
            guard = match self.wait_on(guard, terms)? {
                Ok((guard, _)) => guard,
                poisoned => return Ok(poisoned),
            };
        }
    }

    fn wait_on<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        terms: Terms,
    ) -> Result<WaitedFor<'a, T>, Left> {
        let mutex: &'a Mutex<T> = MutexGuard::mutex(&guard);
        let waiter = Waiter::new(Caller::current(), 1, std::ptr::null_mut());
        // SAFETY: I2, I10. This frame stays until the wait below has ended, and then the waiter is
        // out of the queue; letting go of the mutex in between runs no code that could unwind.
        unsafe { self.queue.hold().push(&waiter) };
        drop(guard);
        let timed_out =
            match waiter.wait(&terms, &At::of(self), || self.queue.hold().remove(&waiter)) {
                Ok(_) => false,
                Err(Left::TimedOut) => true,
                Err(Left::Cancelled) => return Err(Left::Cancelled),
            };
        let result = WaitTimeoutResult(timed_out);
        match mutex.lock_on(terms.until(None)) {
            Ok(locked) => Ok(locked
                .map(|guard| (guard, result))
                .map_err(|e| PoisonError::new((e.into_inner(), result)))),
            Err(left) => {
                // It may have been the one notification of somebody who can use it.
                if !timed_out {
                    self.notify_one();
                }
                Err(left)
            }
        }
    }
}

fn forget_time<'a, T>(waited: WaitedFor<'a, T>) -> Waited<'a, T> {
    waited.map(|(guard, _)| guard).map_err(|e| PoisonError::new(e.into_inner().0))
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
