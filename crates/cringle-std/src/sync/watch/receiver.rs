//! The side of a watched value that waits for changes.

use super::{RecvError, Shared};
use crate::sync::caller::{Caller, WaitError, WaitOptions};
use crate::sync::rwlock::RwLockReadGuard;
use cringle_core::fiber::Wait;
use std::io;
use std::sync::Arc;

/// The side that watches the value. It can be cloned; a clone has seen what the original has seen.
///
/// ```
/// let (sender, mut receiver) = cringle::sync::watch::channel(1);
/// sender.send(2).unwrap();
/// receiver.changed().unwrap();
/// assert_eq!(receiver.clone().has_changed(), Ok(false));
/// ```
pub struct Receiver<T> {
    pub(super) shared: Arc<Shared<T>>,
    /// The number of the last change that was seen.
    pub(super) seen: u64,
}

/// A borrow of the value, which cannot change until this is dropped: do not hold it for long.
///
/// ```
/// let (sender, receiver) = cringle::sync::watch::channel(String::from("value"));
/// assert_eq!(receiver.borrow().len(), 5);
/// # drop(sender);
/// ```
#[derive(Debug)]
pub struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<'a, T> Ref<'a, T> {
    pub(super) fn new(value: RwLockReadGuard<'a, T>) -> Ref<'a, T> {
        Ref(value)
    }
}

derefs!([T] Ref<'_, T> => T, |guard| &guard.0);

impl<T> Receiver<T> {
    /// Borrows the value, and does not mark it as seen. Waits while a sender changes it.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::watch::channel(1);
    /// sender.send(2).unwrap();
    /// assert_eq!(*receiver.borrow(), 2);
    /// assert_eq!(receiver.has_changed(), Ok(true));
    /// ```
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    #[must_use = "if unused, the value is released at once"]
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// Borrows the value and marks it as seen: [`changed`](Self::changed) waits for a later one.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let (sender, mut receiver) = cringle::sync::watch::channel(1);
    /// sender.send(2).unwrap();
    /// assert_eq!(*receiver.borrow_and_update(), 2);
    /// assert_eq!(receiver.has_changed(), Ok(false));
    /// ```
    ///
    /// # Cancellation
    ///
    /// As [`borrow`](Self::borrow).
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let options = WaitOptions::unwinding(Wait::Lock);
        let value = self.shared.borrow_and_update(&mut self.seen, options);
        value.unwrap_or_else(|error| error.unwind())
    }

    /// Returns whether the current value has not been seen.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::watch::channel(1);
    /// assert_eq!(receiver.has_changed(), Ok(false));
    /// sender.send(2).unwrap();
    /// assert_eq!(receiver.has_changed(), Ok(true));
    /// ```
    ///
    /// # Errors
    ///
    /// If the value has been seen, and all senders were dropped.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let changed = {
            let state = self.shared.state.lock();
            if state.version != self.seen {
                Ok(true)
            } else if state.senders == 0 {
                Err(RecvError)
            } else {
                Ok(false)
            }
        };
        Caller::current().tried(changed == Ok(true));
        changed
    }

    /// Waits for a value that has not been seen, and marks it as seen.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::watch};
    ///
    /// cringle::run(|| {
    ///     let (sender, mut receiver) = watch::channel(1);
    ///     fiber::spawn(move || sender.send(2).unwrap());
    ///     receiver.changed().unwrap();
    ///     assert_eq!(*receiver.borrow(), 2);
    ///     assert!(receiver.changed().is_err(), "the sender was dropped");
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// If the value has been seen, and all senders were dropped.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here.
    pub fn changed(&mut self) -> Result<(), RecvError> {
        let options = WaitOptions::unwinding(Wait::Watch);
        self.shared.wait(&mut self.seen, options).unwrap_or_else(|error| error.unwind())
    }

    /// Like [`changed`](Self::changed), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::watch};
    ///
    /// cringle::run(|| {
    ///     let (_sender, mut receiver) = watch::channel(1);
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(receiver.changed_cancellable().is_err());
    ///     });
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled. The inner
    /// result is what `changed` returns.
    pub fn changed_cancellable(&mut self) -> io::Result<Result<(), RecvError>> {
        let options = WaitOptions::fallible(Wait::Watch);
        self.shared.wait(&mut self.seen, options).map_err(WaitError::into_io_error)
    }

    /// Waits until `wanted` returns true for the value, beginning with the current one. Borrows it
    /// and marks it as seen. A caller that needs no value drops the borrow:
    /// `receiver.wait_for(…)?;`.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::watch};
    ///
    /// cringle::run(|| {
    ///     let (sender, mut receiver) = watch::channel(0);
    ///     fiber::spawn(move || (1..=3).for_each(|n| sender.send(n).unwrap()));
    ///     receiver.wait_for(|n| *n > 0)?;
    ///     assert_eq!(*receiver.wait_for(|n| *n >= 3)?, 3);
    ///     Ok::<(), watch::RecvError>(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the value is not the wanted one, and all senders were dropped.
    ///
    /// # Cancellation
    ///
    /// As [`changed`](Self::changed).
    pub fn wait_for(&mut self, wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
        let options = WaitOptions::unwinding;
        self.wait_for_with(wanted, options).unwrap_or_else(|error| error.unwind())
    }

    /// Like [`wait_for`](Self::wait_for), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{sync::watch, time};
    /// use std::time::Duration;
    ///
    /// cringle::run(|| {
    ///     let (_sender, mut ready) = watch::channel(false);
    ///     let limit = Duration::from_millis(1);
    ///     let late = time::timeout(limit, || ready.wait_for_cancellable(|is| *is).map(drop));
    ///     assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits. The inner result is what `wait_for` returns.
    pub fn wait_for_cancellable(
        &mut self,
        wanted: impl FnMut(&T) -> bool,
    ) -> io::Result<Result<Ref<'_, T>, RecvError>> {
        self.wait_for_with(wanted, WaitOptions::fallible).map_err(WaitError::into_io_error)
    }

    fn wait_for_with(
        &mut self,
        mut wanted: impl FnMut(&T) -> bool,
        options: fn(Wait) -> WaitOptions,
    ) -> Result<Result<Ref<'_, T>, RecvError>, WaitError> {
        let Receiver { shared, seen } = self;
        loop {
            let value = shared.borrow_and_update(seen, options(Wait::Lock))?;
            if wanted(&value) {
                return Ok(Ok(value));
            }
            drop(value);
            if let Err(ended) = shared.wait(seen, options(Wait::Watch))? {
                return Ok(Err(ended));
            }
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.state.lock().receivers += 1;
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.state.lock().receivers -= 1;
    }
}

opaque_debug!(Receiver<T>);
