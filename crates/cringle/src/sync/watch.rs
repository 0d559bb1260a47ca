//! A value that some change and others watch: the latest one counts, earlier ones may be missed.
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

use super::caller::{Caller, WaitError, WaitOptions};
use super::mutex::ignore_poison;
use super::rwlock::{RwLock, RwLockReadGuard};
use super::unsent::Unsent;
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use crate::runtime::fiber::Wait;
use crate::runtime::wait_target::ByAddress;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

pub use std::sync::mpsc::{RecvError, SendError};

/// A watched value, which begins as this one. No receiver has seen a change yet.
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
    /// How often the value was changed; counted with the value locked.
    version: u64,
    senders: usize,
    receivers: usize,
    waiting: Queue,
}

/// The side that changes the value. Can be cloned.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The side that watches the value. A clone has seen what its original has.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The value, which cannot change until this is dropped: do not keep it for long.
#[derive(Debug)]
#[must_use = "the value is let go of at once"]
pub struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Shared<T> {
    fn borrow(&self) -> Ref<'_, T> {
        Ref(ignore_poison(self.value.read()))
    }

    /// A change was made, and the value is still locked.
    fn publish(&self) {
        let mut woken = WakeList::default();
        {
            let mut state = self.state.lock();
            state.version += 1;
            state.waiting.grant_all(&mut woken);
        }
        woken.wake();
    }
}

impl<T> Sender<T> {
    /// Changes the value. Waits while somebody borrows it.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If no receiver is left; the error holds the new value, and the old one stays.
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

    /// [`send`](Self::send), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// The value, and a [`Cancelled`](crate::Cancelled), if the fiber is cancelled while it waits.
    /// Inside is what `send` returns.
    pub fn send_cancellable(&self, value: T) -> Result<Result<(), SendError<T>>, Unsent<T>> {
        if self.is_closed() {
            Caller::current().spend();
            return Ok(Err(SendError(value)));
        }
        match self.shared.value.write_on(WaitOptions::fallible(Wait::Lock)) {
            Ok(guard) => {
                let old = std::mem::replace(&mut *ignore_poison(guard), value);
                self.shared.publish();
                drop(old);
                Ok(Ok(()))
            }
            Err(error) => Err(Unsent::new(value, error)),
        }
    }

    /// Changes the value, whether somebody watches or not, and returns the old one.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// As [`send`](Self::send).
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|now| std::mem::swap(now, &mut value));
        value
    }

    /// Changes the value in place, whether somebody watches or not. If `f` panics, nobody is told.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// As [`send`](Self::send).
    pub fn send_modify(&self, f: impl FnOnce(&mut T)) {
        let mut guard = ignore_poison(self.shared.value.write());
        f(&mut guard);
        self.shared.publish();
    }

    /// The value. Waits while somebody changes it.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// As [`send`](Self::send).
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// One more receiver, which has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        let mut state = self.shared.state.lock();
        state.receivers += 1;
        Receiver { shared: Arc::clone(&self.shared), seen: state.version }
    }

    /// How many receivers there are.
    pub fn receiver_count(&self) -> usize {
        self.shared.state.lock().receivers
    }

    /// Whether no receiver is left.
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }
}

impl<T> Receiver<T> {
    /// The value, which is not taken for seen. Waits while somebody changes it.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// The value, which is taken for seen: [`changed`](Self::changed) waits for a later one.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// As [`borrow`](Self::borrow).
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.borrow();
        // The value is borrowed, so the count cannot change meanwhile.
        self.seen = self.shared.state.lock().version;
        value
    }

    /// Whether there is a value that was not seen.
    /// Suspends the calling fiber only after 128 failures in a row.
    ///
    /// # Errors
    ///
    /// If not, and all senders are gone.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let changed = {
            let state = self.shared.state.lock();
            match state.version != self.seen {
                true => Ok(true),
                false if state.senders == 0 => Err(RecvError),
                false => Ok(false),
            }
        };
        Caller::current().tried(changed == Ok(true));
        changed
    }

    /// Waits until there is a value that was not seen, and takes it for seen.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If there is none and all senders are gone.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds here.
    pub fn changed(&mut self) -> Result<(), RecvError> {
        self.wait(WaitOptions::unwinding(Wait::Watch)).unwrap_or_else(|error| error.unwind())
    }

    /// [`changed`](Self::changed), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled. Inside is what `changed` returns.
    pub fn changed_cancellable(&mut self) -> io::Result<Result<(), RecvError>> {
        self.wait(WaitOptions::fallible(Wait::Watch)).map_err(WaitError::into_io_error)
    }

    /// Waits until the value is as wanted, which it may be already, and takes it for seen.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// If it is not and all senders are gone.
    ///
    /// # Cancellation
    ///
    /// As [`changed`](Self::changed).
    pub fn wait_for(
        &mut self,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, RecvError> {
        while !wanted(&self.borrow_and_update()) {
            self.changed()?;
        }
        Ok(self.borrow())
    }

    fn wait(&mut self, options: WaitOptions) -> Result<Result<(), RecvError>, WaitError> {
        let caller = Caller::current();
        if let Some(error) = options.refusal(caller) {
            return Err(error);
        }
        caller.spend();
        loop {
            let waiter = Waiter::new(caller, 1, std::ptr::null_mut());
            {
                let mut state = self.shared.state.lock();
                if state.version != self.seen {
                    self.seen = state.version;
                    return Ok(Ok(()));
                }
                if state.senders == 0 {
                    return Ok(Err(RecvError));
                }
                // SAFETY: I2, I10. This frame stays until the wait below has ended, and then the
                // waiter is out of the queue.
                unsafe { state.waiting.push(&waiter) };
            }
            waiter.wait(&options, &ByAddress::of(&*self.shared), || {
                self.shared.state.lock().waiting.remove(&waiter)
            })?;
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.state.lock().senders += 1;
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.state.lock().receivers += 1;
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen }
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

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.state.lock().receivers -= 1;
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
