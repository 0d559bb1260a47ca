//! A condition variable: a queue that a caller enters before it releases the mutex.

use super::caller::{Caller, WaitError, WaitOptions, deadline};
use super::mutex::{Mutex, MutexGuard};
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use cringle_core::fiber::Wait;
use cringle_core::wait_target::Target;
use std::io;
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

/// `std::sync::Condvar`, for fibers of any workers and for threads, with this module's [`Mutex`].
/// Notifications go to the waiter that arrived first.
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

/// Whether a wait with a timeout ended because the time had passed.
///
/// ```
/// use cringle::sync::{Condvar, Mutex};
/// use std::time::Duration;
///
/// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
/// let guard = mutex.lock().unwrap();
/// let (_guard, result) = condvar.wait_timeout(guard, Duration::from_millis(1)).unwrap();
/// println!("timed out: {}", result.timed_out());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the time had passed.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

type Waited<'a, T> = LockResult<MutexGuard<'a, T>>;
type WaitedFor<'a, T> = LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>;

impl Condvar {
    constructor! {
        /// Creates a condition variable without waiters.
        pub const fn new() -> Condvar {
            Condvar { queue: ShortLock::new(Queue::new()) }
        }
    }

    /// Releases the mutex, waits for a notification, and acquires the mutex again. As std's, it may
    /// also wake spuriously.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If the mutex is poisoned when it is acquired again. The error contains the guard.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here, without the mutex. A notification that it had received goes
    /// to the next waiter.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> Waited<'a, T> {
        let result = self.wait_with(guard, WaitOptions::unwinding(Wait::Condvar));
        result.map(without_timeout_result).unwrap_or_else(|error| error.unwind())
    }

    /// Like [`wait`](Self::wait), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::{Condvar, Mutex}};
    ///
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(condvar.wait_cancellable(mutex.lock().unwrap()).is_err());
    ///     });
    /// });
    /// assert!(mutex.try_lock().is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled. It does not
    /// hold the mutex then. The inner result is what `wait` returns.
    pub fn wait_cancellable<'a, T>(&self, guard: MutexGuard<'a, T>) -> io::Result<Waited<'a, T>> {
        let result = self.wait_with(guard, WaitOptions::fallible(Wait::Condvar));
        result.map(without_timeout_result).map_err(WaitError::into_io_error)
    }

    /// Waits while the condition holds.
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

    /// Like [`wait_while`](Self::wait_while), but returns an error if the calling fiber is
    /// cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::sync::{Condvar, Mutex};
    ///
    /// let (done, condvar) = (Mutex::new(true), Condvar::new());
    /// let guard = condvar.wait_while_cancellable(done.lock().unwrap(), |done| !*done)?;
    /// assert!(*guard.unwrap());
    /// # std::io::Result::Ok(())
    /// ```
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

    /// Like [`wait`](Self::wait), but waits at most `timeout`. Acquiring the mutex again may take
    /// longer.
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
        self.wait_with(guard, options).unwrap_or_else(|error| error.unwind())
    }

    /// Like [`wait_timeout`](Self::wait_timeout), but returns an error if the calling fiber is
    /// cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let limit = Duration::from_millis(1);
    /// let waited = condvar.wait_timeout_cancellable(mutex.lock().unwrap(), limit)?;
    /// assert!(waited.is_ok());
    /// # std::io::Result::Ok(())
    /// ```
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
        self.wait_with(guard, options).map_err(WaitError::into_io_error)
    }

    /// Like [`wait_while`](Self::wait_while), but waits at most `timeout`. If the condition still
    /// holds then, the result says that the time has passed.
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
        self.wait_while_with(guard, options, condition).unwrap_or_else(|error| error.unwind())
    }

    /// Like [`wait_timeout_while`](Self::wait_timeout_while), but returns an error if the calling
    /// fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (done, condvar) = (Mutex::new(true), Condvar::new());
    /// let guard = done.lock().unwrap();
    /// let limit = Duration::from_secs(1);
    /// let waited = condvar.wait_timeout_while_cancellable(guard, limit, |done| !*done)?;
    /// assert!(!waited.unwrap().1.timed_out());
    /// # std::io::Result::Ok(())
    /// ```
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
        self.wait_while_with(guard, options, condition).map_err(WaitError::into_io_error)
    }

    /// Wakes the first waiter, if there is one.
    pub fn notify_one(&self) {
        let woken = self.queue.lock().pop().map(|waiter| waiter.grant());
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        let mut woken = WakeList::default();
        self.queue.lock().grant_all(&mut woken);
        woken.wake();
    }

    fn wait_while_with<'a, T>(
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
            guard = match self.wait_with(guard, options)? {
                Ok((guard, _)) => guard,
                poisoned => return Ok(poisoned),
            };
        }
    }

    fn wait_with<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        options: WaitOptions,
    ) -> Result<WaitedFor<'a, T>, WaitError> {
        let mutex: &'a Mutex<T> = MutexGuard::mutex(&guard);
        let waiter = Waiter::new(Caller::current(), 1, std::ptr::null_mut());
        // SAFETY: I2, I10. This frame stays until the wait below has ended, and by then the waiter
        // has left the queue. Releasing the mutex in between runs no code that could unwind.
        unsafe { self.queue.lock().push(&waiter) };
        drop(guard);
        let timed_out = match waiter
            .wait(&options, Target::address_of(self), || self.queue.lock().remove(&waiter))
        {
            Ok(_) => false,
            Err(WaitError::TimedOut) => true,
            Err(WaitError::Cancelled) => return Err(WaitError::Cancelled),
        };
        let result = WaitTimeoutResult(timed_out);
        match mutex.lock_with(options.until(None)) {
            Ok(locked) => Ok(locked
                .map(|guard| (guard, result))
                .map_err(|e| PoisonError::new((e.into_inner(), result)))),
            Err(error) => {
                // This caller cannot use its notification, so the next waiter gets it.
                if !timed_out {
                    self.notify_one();
                }
                Err(error)
            }
        }
    }
}

fn without_timeout_result<'a, T>(waited: WaitedFor<'a, T>) -> Waited<'a, T> {
    waited.map(|(guard, _)| guard).map_err(|e| PoisonError::new(e.into_inner().0))
}

default_by_new!(Condvar);

opaque_debug!(Condvar);
