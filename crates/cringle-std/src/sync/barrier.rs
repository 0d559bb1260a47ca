//! A barrier, at which a number of callers wait for each other.

use super::caller::{Caller, WaitError, WaitOptions};
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use cringle_core::fiber::Wait;
use cringle_core::wait_target::Target;
use std::fmt;
use std::io;

/// `std::sync::Barrier`, for fibers of any workers and for threads.
///
/// ```
/// use cringle::{fiber, sync::Barrier};
///
/// let barrier = Barrier::new(3);
/// cringle::run(|| {
///     fiber::scope(|s| {
///         let wait = || barrier.wait().is_leader();
///         let handles = [s.spawn(wait), s.spawn(wait), s.spawn(wait)];
///         let leaders = handles.map(|handle| usize::from(handle.join().unwrap()));
///         assert_eq!(leaders.iter().sum::<usize>(), 1);
///     });
/// });
/// ```
pub struct Barrier {
    count: usize,
    state: ShortLock<Arrivals>,
}

struct Arrivals {
    arrived: usize,
    queue: Queue,
}

/// The result of [`Barrier::wait`], which tells the last caller from the others.
///
/// ```
/// let result = cringle::sync::Barrier::new(1).wait();
/// assert!(result.is_leader());
/// ```
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns whether this caller arrived last.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    constructor! {
        /// Creates a barrier for `count` callers; 0 means 1.
        #[must_use]
        pub const fn new(count: usize) -> Barrier {
            Barrier { count, state: ShortLock::new(Arrivals { arrived: 0, queue: Queue::new() }) }
        }
    }

    /// Waits until all callers have arrived. The barrier can then be used again.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber that would wait unwinds, and does not count as a caller that has arrived.
    pub fn wait(&self) -> BarrierWaitResult {
        self.meet(WaitOptions::unwinding(Wait::Barrier)).unwrap_or_else(|error| error.unwind())
    }

    /// Like [`wait`](Self::wait), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::Barrier};
    ///
    /// let barrier = Barrier::new(2);
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(barrier.wait_cancellable().is_err());
    ///     });
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled. It does not
    /// count as a caller that has arrived.
    pub fn wait_cancellable(&self) -> io::Result<BarrierWaitResult> {
        self.meet(WaitOptions::fallible(Wait::Barrier)).map_err(WaitError::into_io_error)
    }

    fn meet(&self, options: WaitOptions) -> Result<BarrierWaitResult, WaitError> {
        let caller = Caller::current();
        caller.spend();
        let waiter = Waiter::new(caller, 1, std::ptr::null_mut());
        {
            let mut state = self.state.lock();
            if state.arrived + 1 >= self.count {
                state.arrived = 0;
                let mut woken = WakeList::default();
                state.queue.grant_all(&mut woken);
                drop(state);
                woken.wake();
                return Ok(BarrierWaitResult(true));
            }
            state.arrived += 1;
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and by then the
            // waiter has left the queue.
            unsafe { state.queue.push(&waiter) };
        }
        let withdraw = || {
            let mut state = self.state.lock();
            let was_queued = state.queue.remove(&waiter);
            state.arrived -= usize::from(was_queued);
            was_queued
        };
        waiter.wait(&options, Target::address_of(self), withdraw).map(|_| BarrierWaitResult(false))
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult").field("is_leader", &self.is_leader()).finish()
    }
}

opaque_debug!(Barrier);
