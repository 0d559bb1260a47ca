//! Waiting until all members of a group are done.

use super::caller::{Caller, Left, Terms};
use super::queue::{Guarded, Queue, Waiter, Woken};
use crate::runtime::about::At;
use crate::runtime::fiber::Wait;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A group that grows by `clone`, shrinks as its members are dropped, and can be waited for. For
/// fibers of any workers and for OS threads.
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
    group: Arc<Group>,
}

struct Group {
    state: Guarded<State>,
}

struct State {
    members: usize,
    queue: Queue,
}

impl WaitGroup {
    /// A group of this one member.
    #[must_use]
    pub fn new() -> WaitGroup {
        let state = State { members: 1, queue: Queue::new() };
        WaitGroup { group: Arc::new(Group { state: Guarded::new(state) }) }
    }

    /// Leaves the group and waits until all others have left it.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait; it has left the group then.
    pub fn wait(self) {
        self.leave_and_wait(Terms::unwinding(Wait::Group)).unwrap_or_else(|left| left.unwind());
    }

    /// [`wait`](Self::wait), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled while it waits.
    pub fn wait_cancellable(self) -> io::Result<()> {
        self.leave_and_wait(Terms::reporting(Wait::Group)).map_err(Left::error)
    }

    fn leave_and_wait(self, terms: Terms) -> Result<(), Left> {
        let caller = Caller::current();
        caller.spend();
        let group = Arc::clone(&self.group);
        drop(self);
        let waiter = Waiter::new(caller, 1, std::ptr::null_mut());
        {
            let mut state = group.state.hold();
            if state.members == 0 {
                return Ok(());
            }
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and then the waiter
            // is out of the queue.
            unsafe { state.queue.push(&waiter) };
        }
        waiter
            .wait(&terms, &At::of(&group.state), || group.state.hold().queue.remove(&waiter))
            .map(drop)
    }
}

impl Clone for WaitGroup {
    fn clone(&self) -> WaitGroup {
        self.group.state.hold().members += 1;
        WaitGroup { group: Arc::clone(&self.group) }
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        let mut woken = Woken::default();
        {
            let mut state = self.group.state.hold();
            state.members -= 1;
            if state.members == 0 {
                state.queue.give_all(&mut woken);
            }
        }
        woken.wake();
    }
}

impl Default for WaitGroup {
    fn default() -> WaitGroup {
        WaitGroup::new()
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup").finish_non_exhaustive()
    }
}
