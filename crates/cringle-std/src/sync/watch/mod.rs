//! A value that senders change and receivers watch. Receivers see the latest value and may miss
//! earlier ones.
//!
//! ```
//! use cringle::{fiber, sync::watch};
//!
//! cringle::run(|| {
//!     let (sender, mut receiver) = watch::channel("starting");
//!     fiber::spawn(move || sender.send("ready").unwrap());
//!     receiver.changed().unwrap();
//!     assert_eq!(*receiver.borrow(), "ready");
//! });
//! ```

mod receiver;

use super::caller::{Caller, WaitError, WaitOptions};
use super::mutex::ignore_poison;
use super::rwlock::RwLock;
use super::unsent::Unsent;
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use cringle_core::fiber::Wait;
use cringle_core::wait_target::Target;

use std::sync::Arc;

pub use receiver::{Receiver, Ref};
pub use std::sync::mpsc::{RecvError, SendError};

/// Creates a watched value. The receiver has seen the initial value.
///
/// ```
/// let (sender, receiver) = cringle::sync::watch::channel(1);
/// assert_eq!(*receiver.borrow(), 1);
/// assert_eq!(receiver.has_changed(), Ok(false));
/// # drop(sender);
/// ```
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let state = State { version: 0, senders: 1, receivers: 1, waiting: Queue::new() };
    let shared = Arc::new(Shared { value: RwLock::new(value), state: ShortLock::new(state) });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, seen: 0 })
}

struct Shared<T> {
    value: RwLock<T>,
    state: ShortLock<State>,
}

struct State {
    /// The number of changes. It is incremented while the value is locked.
    version: u64,
    senders: usize,
    receivers: usize,
    waiting: Queue,
}

/// The side that changes the value. It can be cloned.
///
/// ```
/// let (sender, receiver) = cringle::sync::watch::channel(1);
/// sender.clone().send(2).unwrap();
/// assert_eq!(*receiver.borrow(), 2);
/// ```
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Shared<T> {
    fn borrow(&self) -> Ref<'_, T> {
        Ref::new(ignore_poison(self.value.read()))
    }

    /// Announces a change. The value is still locked.
    fn publish(&self) {
        let mut woken = WakeList::default();
        {
            let mut state = self.state.lock();
            state.version += 1;
            state.waiting.grant_all(&mut woken);
        }
        woken.wake();
    }

    fn borrow_and_update(
        &self,
        seen: &mut u64,
        options: WaitOptions,
    ) -> Result<Ref<'_, T>, WaitError> {
        let value = Ref::new(ignore_poison(self.value.read_with(options)?));
        // While the value is borrowed, the version cannot change.
        *seen = self.state.lock().version;
        Ok(value)
    }

    fn wait(
        &self,
        seen: &mut u64,
        options: WaitOptions,
    ) -> Result<Result<(), RecvError>, WaitError> {
        let caller = Caller::current();
        if let Some(error) = options.refusal(caller) {
            return Err(error);
        }
        caller.spend();
        loop {
            let waiter = Waiter::new(caller, 1, std::ptr::null_mut());
            {
                let mut state = self.state.lock();
                if state.version != *seen {
                    *seen = state.version;
                    return Ok(Ok(()));
                }
                if state.senders == 0 {
                    return Ok(Err(RecvError));
                }
                // SAFETY: I2, I10. This frame stays until the wait below has ended, and by then the
                // waiter has left the queue.
                unsafe { state.waiting.push(&waiter) };
            }
            waiter.wait(&options, Target::address_of(self), || {
                self.state.lock().waiting.remove(&waiter)
            })?;
        }
    }
}

impl<T> Sender<T> {
    /// Changes the value. Waits while a caller borrows it.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::watch::channel(1);
    /// sender.send(2).unwrap();
    /// assert_eq!(*receiver.borrow(), 2);
    /// drop(receiver);
    /// assert_eq!(sender.send(3).unwrap_err().0, 3);
    /// ```
    ///
    /// # Errors
    ///
    /// If all receivers were dropped. The error contains the new value, and the old one stays.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            Caller::current().spend();
            return Err(SendError(value));
        }
        self.send_replace(value);
        Ok(())
    }

    /// Like [`send`](Self::send), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::watch};
    ///
    /// let (sender, receiver) = watch::channel(1);
    /// cringle::run(|| {
    ///     let borrowed = receiver.borrow();
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert_eq!(sender.send_cancellable(2).unwrap_err().into_inner(), 2);
    ///     });
    ///     drop(borrowed);
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// The value and a [`Cancelled`](cringle_core::cancelled::Cancelled), if the fiber is cancelled
    /// while it waits. The inner result is what `send` returns.
    pub fn send_cancellable(&self, value: T) -> Result<Result<(), SendError<T>>, Unsent<T>> {
        if self.is_closed() {
            Caller::current().spend();
            return Ok(Err(SendError(value)));
        }
        match self.shared.value.write_with(WaitOptions::fallible(Wait::Lock)) {
            Ok(guard) => {
                // The guard is dropped before the old value, whose destructor may wait.
                let (mut old, mut guard) = (value, ignore_poison(guard));
                std::mem::swap(&mut *guard, &mut old);
                self.shared.publish();
                Ok(Ok(()))
            }
            Err(error) => Err(Unsent::new(value, error)),
        }
    }

    /// Changes the value, even without receivers, and returns the old one.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let (sender, _) = cringle::sync::watch::channel(1);
    /// assert_eq!(sender.send_replace(2), 1);
    /// assert_eq!(*sender.borrow(), 2);
    /// ```
    ///
    /// # Cancellation
    ///
    /// As [`send`](Self::send).
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|now| std::mem::swap(now, &mut value));
        value
    }

    /// Changes the value in place, even without receivers. If `f` panics, no receiver sees a
    /// change.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::watch::channel(vec![1]);
    /// sender.send_modify(|list| list.push(2));
    /// assert_eq!(*receiver.borrow(), [1, 2]);
    /// ```
    ///
    /// # Cancellation
    ///
    /// As [`send`](Self::send).
    pub fn send_modify(&self, f: impl FnOnce(&mut T)) {
        let mut guard = ignore_poison(self.shared.value.write());
        f(&mut guard);
        self.shared.publish();
    }

    /// Borrows the value. Waits while a sender changes it.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let (sender, _receiver) = cringle::sync::watch::channel(1);
    /// assert_eq!(*sender.borrow(), 1);
    /// ```
    ///
    /// # Cancellation
    ///
    /// As [`send`](Self::send).
    #[must_use = "if unused, the value is released at once"]
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// Creates a receiver, which has seen the current value.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::watch::channel(1);
    /// drop(receiver);
    /// let late = sender.subscribe();
    /// sender.send(2).unwrap();
    /// assert_eq!(late.has_changed(), Ok(true));
    /// ```
    pub fn subscribe(&self) -> Receiver<T> {
        let mut state = self.shared.state.lock();
        state.receivers += 1;
        Receiver { shared: Arc::clone(&self.shared), seen: state.version }
    }

    /// Returns the number of receivers.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::watch::channel(1);
    /// let second = receiver.clone();
    /// assert_eq!(sender.receiver_count(), 2);
    /// # drop(second);
    /// ```
    pub fn receiver_count(&self) -> usize {
        self.shared.state.lock().receivers
    }

    /// Returns whether all receivers were dropped.
    ///
    /// ```
    /// let (sender, receiver) = cringle::sync::watch::channel(1);
    /// drop(receiver);
    /// assert!(sender.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.state.lock().senders += 1;
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut woken = WakeList::default();
        {
            let mut state = self.shared.state.lock();
            state.senders -= 1;
            if state.senders == 0 {
                state.waiting.refuse_all(&mut woken);
            }
        }
        woken.wake();
    }
}

opaque_debug!(Sender<T>);
