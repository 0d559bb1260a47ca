//! Waiting for a condition under a mutex: a queue, entered before the mutex is let go of.

use super::caller::{Caller, WaitError, WaitOptions, deadline};
use super::mutex::{Mutex, MutexGuard};
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use crate::runtime::fiber::Wait;
use crate::runtime::wait_target::ByAddress;
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
    queue: ShortLock<Queue>,
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
            Condvar { queue: ShortLock::new(Queue::new()) }
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
        let result = self.wait_on(guard, WaitOptions::unwinding(Wait::Condvar));
        result.map(forget_time).unwrap_or_else(|error| error.unwind())
    }

    /// [`wait`](Self::wait), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled; the mutex was let go of then.
    /// Inside is what `wait` returns.
    pub fn wait_cancellable<'a, T>(&self, guard: MutexGuard<'a, T>) -> io::Result<Waited<'a, T>> {
        let result = self.wait_on(guard, WaitOptions::fallible(Wait::Condvar));
        result.map(forget_time).map_err(WaitError::into_io_error)
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
        let options = WaitOptions::unwinding(Wait::Condvar).until(deadline(timeout));
        self.wait_on(guard, options).unwrap_or_else(|error| error.unwind())
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
        let options = WaitOptions::fallible(Wait::Condvar).until(deadline(timeout));
        self.wait_on(guard, options).map_err(WaitError::into_io_error)
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
        let options = WaitOptions::unwinding(Wait::Condvar).until(deadline(timeout));
        self.wait_on_while(guard, options, condition).unwrap_or_else(|error| error.unwind())
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
        let options = WaitOptions::fallible(Wait::Condvar).until(deadline(timeout));
        self.wait_on_while(guard, options, condition).map_err(WaitError::into_io_error)
    }

    /// Wakes the one who has waited longest, if anybody waits.
    pub fn notify_one(&self) {
        let woken = self.queue.lock().pop().map(|taken| taken.grant());
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        let mut woken = WakeList::default();
        self.queue.lock().grant_all(&mut woken);
        woken.wake();
    }

    fn wait_on_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        options: WaitOptions,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Result<WaitedFor<'a, T>, WaitError> {
        Caller::current().spend();
        loop {
            if !condition(&mut *guard) {
                return Ok(Ok((guard, WaitTimeoutResult(false))));
            }
            if options.is_late() {
                return Ok(Ok((guard, WaitTimeoutResult(true))));
            }
            guard = match self.wait_on(guard, options)? {
                Ok((guard, _)) => guard,
                poisoned => return Ok(poisoned),
            };
        }
    }

    fn wait_on<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        options: WaitOptions,
    ) -> Result<WaitedFor<'a, T>, WaitError> {
        let mutex: &'a Mutex<T> = MutexGuard::mutex(&guard);
        let waiter = Waiter::new(Caller::current(), 1, std::ptr::null_mut());
        // SAFETY: I2, I10. This frame stays until the wait below has ended, and then the waiter is
        // out of the queue; letting go of the mutex in between runs no code that could unwind.
        unsafe { self.queue.lock().push(&waiter) };
        drop(guard);
        let timed_out = match waiter
            .wait(&options, &ByAddress::of(self), || self.queue.lock().remove(&waiter))
        {
            Ok(_) => false,
            Err(WaitError::TimedOut) => true,
            Err(WaitError::Cancelled) => return Err(WaitError::Cancelled),
        };
        let result = WaitTimeoutResult(timed_out);
        match mutex.lock_on(options.until(None)) {
            Ok(locked) => Ok(locked
                .map(|guard| (guard, result))
                .map_err(|e| PoisonError::new((e.into_inner(), result)))),
            Err(error) => {
                // It may have been the one notification of somebody who can use it.
                if !timed_out {
                    self.notify_one();
                }
                Err(error)
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
