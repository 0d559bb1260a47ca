//! One-time initialisation: one caller runs its closure, and the others wait for its end.

use super::caller::{Caller, WaitError, WaitOptions};
use super::poison;
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use cringle_core::fiber::Wait;
use cringle_core::sync::{AtomicU8, Ordering};
use cringle_core::wait_target::Target;
use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};

const INCOMPLETE: u8 = 0;
const RUNNING: u8 = 1;
const COMPLETE: u8 = 2;
const POISONED: u8 = 3;

/// `std::sync::Once`, for fibers of any workers and for threads. The closure may wait: the fibers
/// that need its effect wait for it, their workers do not.
///
/// A closure that panics poisons the `Once`. A closure that a cancel unwinds does not: the next
/// call runs its own closure.
///
/// ```
/// use cringle::{fiber, sync::Once};
///
/// static START: Once = Once::new();
///
/// cringle::run(|| {
///     START.call_once(fiber::yield_now);
///     START.call_once(|| unreachable!());
/// });
/// assert!(START.is_completed());
/// ```
pub struct Once {
    state: AtomicU8,
    queue: ShortLock<Queue>,
}

impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

/// The argument of the closure of [`Once::call_once_force`].
///
/// ```
/// cringle::sync::Once::new().call_once_force(|state| assert!(!state.is_poisoned()));
/// ```
pub struct OnceState {
    poisoned: bool,
}

impl OnceState {
    /// Returns whether an earlier closure panicked.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl Once {
    constructor! {
        /// Creates a `Once` whose closure has not run.
        #[must_use]
        pub const fn new() -> Once {
            Once { state: AtomicU8::new(INCOMPLETE), queue: ShortLock::new(Queue::new()) }
        }
    }

    /// Runs `f` if no closure has completed, and waits for a closure that another caller runs. The
    /// effects of the completed closure happen before this call returns.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// # Panics
    ///
    /// If an earlier closure panicked. A closure that calls `call_once` on the same `Once` waits
    /// for itself for ever.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        if self.is_done() {
            Caller::current().count();
        } else {
            self.call(false, |_| f());
        }
    }

    /// Like [`call_once`](Self::call_once), but also runs `f` after an earlier closure panicked.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// # Cancellation
    ///
    /// As [`call_once`](Self::call_once).
    #[inline]
    pub fn call_once_force<F: FnOnce(&OnceState)>(&self, f: F) {
        if self.is_done() {
            Caller::current().count();
        } else {
            self.call(true, f);
        }
    }

    /// Returns whether a closure has completed. If so, its effects happen before this call returns.
    /// Suspends the calling fiber only after 128 failures in a row.
    #[inline]
    pub fn is_completed(&self) -> bool {
        let is_done = self.is_done();
        if !is_done {
            Caller::current().tried(false);
        }
        is_done
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == COMPLETE
    }

    /// Waits until another caller's closure has completed.
    /// May suspend the calling fiber.
    ///
    /// # Panics
    ///
    /// If a closure panicked.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    #[track_caller]
    pub fn wait(&self) {
        self.wait_with(false, WaitOptions::unwinding(Wait::Once))
            .unwrap_or_else(|error| error.unwind());
    }

    /// Like [`wait`](Self::wait), but continues to wait after a closure panicked.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_force(&self) {
        self.wait_with(true, WaitOptions::unwinding(Wait::Once))
            .unwrap_or_else(|error| error.unwind());
    }

    /// Like [`wait`](Self::wait), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::Once};
    ///
    /// let once = Once::new();
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(once.wait_cancellable().is_err());
    ///     });
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits.
    ///
    /// # Panics
    ///
    /// If a closure panicked.
    #[track_caller]
    pub fn wait_cancellable(&self) -> io::Result<()> {
        self.wait_with(false, WaitOptions::fallible(Wait::Once)).map_err(WaitError::into_io_error)
    }

    /// Like [`wait_force`](Self::wait_force), but returns an error if the calling fiber is
    /// cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// let once = cringle::sync::Once::new();
    /// once.call_once(|| ());
    /// once.wait_force_cancellable()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits.
    pub fn wait_force_cancellable(&self) -> io::Result<()> {
        self.wait_with(true, WaitOptions::fallible(Wait::Once)).map_err(WaitError::into_io_error)
    }

    /// Resets it. The exclusive borrow proves that no caller waits.
    pub(super) fn reset(&mut self) {
        *self = Once::new();
    }

    #[cold]
    #[track_caller]
    fn call(&self, force: bool, f: impl FnOnce(&OnceState)) {
        while !self.is_done() {
            let Some(run) = self.begin(force) else {
                // Another caller runs its closure. If a cancel unwinds that one, try again.
                let ended = self.wait_while_running(WaitOptions::unwinding(Wait::Once));
                ended.unwrap_or_else(|error| error.unwind());
                continue;
            };
            f(&OnceState { poisoned: run.previous == POISONED });
            return run.complete();
        }
    }

    #[track_caller]
    fn wait_with(&self, force: bool, options: WaitOptions) -> Result<(), WaitError> {
        Caller::current().spend();
        while !self.is_done() {
            if !force {
                self.refuse_poisoned(self.state.load(Ordering::Acquire));
            }
            self.wait_for(options, |state| state == COMPLETE || (state == POISONED && !force))?;
        }
        Ok(())
    }

    fn wait_while_running(&self, options: WaitOptions) -> Result<(), WaitError> {
        self.wait_for(options, |state| state != RUNNING)
    }

    /// Waits once for a change of the state, unless the state already is `enough`.
    fn wait_for(&self, options: WaitOptions, enough: impl Fn(u8) -> bool) -> Result<(), WaitError> {
        let waiter = Waiter::new(Caller::current(), 1, std::ptr::null_mut());
        {
            let mut queue = self.queue.lock();
            if enough(self.state.load(Ordering::Acquire)) {
                return Ok(());
            }
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and by then the
            // waiter has left the queue.
            unsafe { queue.push(&waiter) };
        }
        waiter
            .wait(&options, Target::address_of(self), || self.queue.lock().remove(&waiter))
            .map(drop)
    }

    /// Makes the caller the one that runs its closure, if no other caller does and none has
    /// completed.
    #[track_caller]
    fn begin(&self, force: bool) -> Option<Run<'_>> {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state == RUNNING || state == COMPLETE {
                return None;
            }
            if !force {
                self.refuse_poisoned(state);
            }
            let ok = Ordering::Acquire;
            match self.state.compare_exchange(state, RUNNING, ok, Ordering::Acquire) {
                Ok(previous) => return Some(Run { once: self, previous }),
                Err(now) => state = now,
            }
        }
    }

    #[track_caller]
    fn refuse_poisoned(&self, state: u8) {
        assert!(state != POISONED, "Once instance has previously been poisoned");
    }

    /// Sets the state and wakes the waiters. Under the lock, so that a caller that is about to wait
    /// either sees the new state or is woken.
    fn end(&self, state: u8) {
        let mut woken = WakeList::default();
        {
            let mut queue = self.queue.lock();
            self.state.store(state, Ordering::Release);
            queue.grant_all(&mut woken);
        }
        woken.wake();
    }
}

/// Exists while the caller runs its closure.
struct Run<'a> {
    once: &'a Once,
    previous: u8,
}

impl Run<'_> {
    fn complete(self) {
        self.once.end(COMPLETE);
        std::mem::forget(self);
    }
}

impl Drop for Run<'_> {
    /// Runs if the closure unwinds.
    fn drop(&mut self) {
        self.once.end(if poison::panics() { POISONED } else { self.previous });
    }
}

opaque_debug!(Once);

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState").field("poisoned", &self.poisoned).finish()
    }
}

default_by_new!(Once);
