//! A fair lock around no value, which fibers of any workers, and threads, may hold across waits.
//!
//! It is a [`Gate`] with one permit: a release hands the lock to the waiter that arrived first. It
//! is not poisoned, and does not spend from the fairness budget: the calls that use it do.

use super::caller::{WaitError, WaitOptions};
use super::gate::Gate;
use cringle_core::fiber::Wait;
use std::io;

/// See the module.
pub struct FairLock(Gate);

/// Holds the lock until it is dropped.
pub struct FairLockGuard<'a>(&'a FairLock);

impl FairLock {
    /// Acquires the lock. Fails only if the calling fiber is cancelled while it would wait.
    pub fn lock(&self) -> io::Result<FairLockGuard<'_>> {
        let acquired = self.0.acquire_unspent(1, WaitOptions::fallible(Wait::Lock));
        acquired.map_err(WaitError::into_io_error)?;
        self.0.record_holder();
        Ok(FairLockGuard(self))
    }
}

impl Default for FairLock {
    fn default() -> FairLock {
        FairLock(Gate::new(1))
    }
}

impl Drop for FairLockGuard<'_> {
    fn drop(&mut self) {
        self.0.0.clear_holder();
        self.0.0.release(1);
    }
}
