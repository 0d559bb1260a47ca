//! Doing something once, while the others wait for its end.

use super::caller::{Caller, WaitError, WaitOptions};
use super::poison;
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use crate::runtime::fiber::Wait;
use crate::runtime::sync::{AtomicU8, Ordering};
use crate::runtime::wait_target::ByAddress;
use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};

const INCOMPLETE: u8 = 0;
const RUNNING: u8 = 1;
const COMPLETE: u8 = 2;
const POISONED: u8 = 3;

/// `std::sync::Once`, for fibers of any workers and for OS threads. The closure may wait: the
/// others' fibers wait for it, their workers do not.
///
/// A closure that panics poisons it. One that is unwound by a cancel does not: the next call runs
/// its own.
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

/// What the closure of [`Once::call_once_force`] is told.
pub struct OnceState {
    poisoned: bool,
}

impl OnceState {
    /// Whether an earlier closure panicked.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl Once {
    constructor! {
        /// One that has not been called.
        #[must_use]
        pub const fn new() -> Once {
            Once { state: AtomicU8::new(INCOMPLETE), queue: ShortLock::new(Queue::new()) }
        }
    }

    /// Calls `f` if no closure has been called before, and waits for its end if another caller is at
    /// it. What that closure did happens before this returns.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// # Panics
    ///
    /// If an earlier closure panicked. A closure that comes back here waits for itself, for ever.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        match self.is_completed() {
            true => Caller::current().count(),
            false => self.call(false, |_| f()),
        }
    }

    /// [`call_once`](Self::call_once), also if an earlier closure panicked.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// # Cancellation
    ///
    /// As [`call_once`](Self::call_once).
    #[inline]
    pub fn call_once_force<F: FnOnce(&OnceState)>(&self, f: F) {
        match self.is_completed() {
            true => Caller::current().count(),
            false => self.call(true, f),
        }
    }

    /// Whether a closure has come to its end. What it did happens before this returns true.
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.state.load(Ordering::Acquire) == COMPLETE
    }

    /// Waits until another caller's closure has come to its end.
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
        self.wait_on(false, WaitOptions::unwinding(Wait::Once))
            .unwrap_or_else(|error| error.unwind());
    }

    /// [`wait`](Self::wait), also if a closure panicked.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_force(&self) {
        self.wait_on(true, WaitOptions::unwinding(Wait::Once))
            .unwrap_or_else(|error| error.unwind());
    }

    /// [`wait`](Self::wait), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled while it waits.
    ///
    /// # Panics
    ///
    /// If a closure panicked.
    #[track_caller]
    pub fn wait_cancellable(&self) -> io::Result<()> {
        self.wait_on(false, WaitOptions::fallible(Wait::Once)).map_err(WaitError::into_io_error)
    }

    /// [`wait_force`](Self::wait_force), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled while it waits.
    pub fn wait_force_cancellable(&self) -> io::Result<()> {
        self.wait_on(true, WaitOptions::fallible(Wait::Once)).map_err(WaitError::into_io_error)
    }

    /// For those who have it for themselves: it is as new.
    pub(super) fn reset(&mut self) {
        *self = Once::new();
    }

    #[cold]
    #[track_caller]
    fn call(&self, force: bool, f: impl FnOnce(&OnceState)) {
        while !self.is_completed() {
            let Some(run) = self.begin(force) else {
                // Somebody is at it. It may also be unwound, and then it is anybody's turn again.
                let ended = self.wait_while_running(WaitOptions::unwinding(Wait::Once));
                ended.unwrap_or_else(|error| error.unwind());
                continue;
            };
            f(&OnceState { poisoned: run.was == POISONED });
            return run.complete();
        }
    }

    #[track_caller]
    fn wait_on(&self, force: bool, options: WaitOptions) -> Result<(), WaitError> {
        Caller::current().spend();
        while !self.is_completed() {
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

    /// Waits once for a change of the state, unless it is `enough`.
    fn wait_for(&self, options: WaitOptions, enough: impl Fn(u8) -> bool) -> Result<(), WaitError> {
        let waiter = Waiter::new(Caller::current(), 1, std::ptr::null_mut());
        {
            let mut queue = self.queue.lock();
            if enough(self.state.load(Ordering::Acquire)) {
                return Ok(());
            }
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and then the waiter
            // is out of the queue.
            unsafe { queue.push(&waiter) };
        }
        waiter.wait(&options, &ByAddress::of(self), || self.queue.lock().remove(&waiter)).map(drop)
    }

    /// Makes it the caller's turn, if it is nobody's.
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
                Ok(was) => return Some(Run { once: self, was }),
                Err(now) => state = now,
            }
        }
    }

    #[track_caller]
    fn refuse_poisoned(&self, state: u8) {
        assert!(state != POISONED, "Once instance has previously been poisoned");
    }

    /// Under the lock, so that nobody waits for a change that has been.
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

/// The caller runs its closure, until this is dropped.
struct Run<'a> {
    once: &'a Once,
    was: u8,
}

impl Run<'_> {
    fn complete(self) {
        self.once.end(COMPLETE);
        std::mem::forget(self);
    }
}

impl Drop for Run<'_> {
    /// The closure has unwound.
    fn drop(&mut self) {
        self.once.end(if poison::panics() { POISONED } else { self.was });
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState").field("poisoned", &self.poisoned).finish()
    }
}

impl Default for Once {
    fn default() -> Once {
        Once::new()
    }
}
