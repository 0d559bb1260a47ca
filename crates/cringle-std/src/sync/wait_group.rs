//! A group whose members can be waited for.

use super::caller::{Caller, WaitError, WaitOptions};
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use cringle_core::fiber::Wait;
use cringle_core::wait_target::Target;
use std::io;
use std::sync::Arc;

/// A group that gains a member by `clone`, loses one by `drop`, and can be waited for. For fibers
/// of any workers and for threads.
///
/// ```
/// use cringle::{fiber, sync::WaitGroup};
///
/// cringle::run(|| {
///     let group = WaitGroup::new();
///     for _ in 0..10 {
///         let member = group.clone();
///         fiber::spawn(move || drop(member));
///     }
///     group.wait();
/// });
/// ```
pub struct WaitGroup {
    group: Arc<ShortLock<Group>>,
}

struct Group {
    members: usize,
    queue: Queue,
}

impl WaitGroup {
    /// Creates a group with one member, the returned one.
    ///
    /// ```
    /// cringle::sync::WaitGroup::new().wait();
    /// ```
    #[must_use]
    pub fn new() -> WaitGroup {
        let group = Group { members: 1, queue: Queue::new() };
        WaitGroup { group: Arc::new(ShortLock::new(group)) }
    }

    /// Leaves the group and waits until all other members have left it.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::sync::WaitGroup;
    ///
    /// let group = WaitGroup::new();
    /// let member = group.clone();
    /// std::thread::spawn(move || drop(member));
    /// cringle::run(|| group.wait());
    /// ```
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait. It has left the group then.
    pub fn wait(self) {
        self.leave_and_wait(WaitOptions::unwinding(Wait::Group))
            .unwrap_or_else(|error| error.unwind());
    }

    /// Like [`wait`](Self::wait), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::WaitGroup};
    ///
    /// cringle::run(|| {
    ///     let group = WaitGroup::new();
    ///     let member = group.clone();
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(group.wait_cancellable().is_err());
    ///     });
    ///     drop(member);
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits.
    pub fn wait_cancellable(self) -> io::Result<()> {
        self.leave_and_wait(WaitOptions::fallible(Wait::Group)).map_err(WaitError::into_io_error)
    }

    fn leave_and_wait(self, options: WaitOptions) -> Result<(), WaitError> {
        let caller = Caller::current();
        caller.spend();
        let group = Arc::clone(&self.group);
        drop(self);
        let waiter = Waiter::new(caller, 1, std::ptr::null_mut());
        {
            let mut locked = group.lock();
            if locked.members == 0 {
                return Ok(());
            }
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and by then the
            // waiter has left the queue.
            unsafe { locked.queue.push(&waiter) };
        }
        waiter
            .wait(&options, Target::address_of(&*group), || group.lock().queue.remove(&waiter))
            .map(drop)
    }
}

impl Clone for WaitGroup {
    fn clone(&self) -> WaitGroup {
        self.group.lock().members += 1;
        WaitGroup { group: Arc::clone(&self.group) }
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        let mut woken = WakeList::default();
        {
            let mut group = self.group.lock();
            group.members -= 1;
            if group.members == 0 {
                group.queue.grant_all(&mut woken);
            }
        }
        woken.wake();
    }
}

default_by_new!(WaitGroup);

opaque_debug!(WaitGroup);
