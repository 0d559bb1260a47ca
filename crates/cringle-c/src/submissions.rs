//! The submissions that are under way and may be cancelled, by numbers that no other submission of
//! the process has.
//!
//! A submission that does not wait runs on a fiber, in a scope. The address of the scope is in the
//! table until the scope ends, and `cringle_cancel` cancels the scope under the table's lock.

use crate::error::Error;
use cringle::fiber::Scope;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const INDEX_BITS: u32 = 24;
const MAX_SERIAL: u64 = (1 << (64 - INDEX_BITS)) - 1;

/// The submissions of all engines that have begun. So a number of another engine is refused.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// A submission that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// It is repeated after 2⁴⁰ submissions of the process.
    serial: u64,
    index: u32,
}

impl Pending {
    fn begin(index: u32) -> Pending {
        let serial = BEGUN.fetch_add(1, Ordering::Relaxed) % MAX_SERIAL + 1;
        Pending { serial, index }
    }

    pub(crate) fn number(self) -> u64 {
        self.serial << INDEX_BITS | u64::from(self.index)
    }

    fn of(number: u64) -> Pending {
        let index = number & ((1 << INDEX_BITS) - 1);
        Pending { serial: number >> INDEX_BITS, index: index as u32 }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Submissions {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    /// Of the last submission here.
    serial: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    Queued,
    /// It was cancelled before it began.
    CancelledEarly,
    Running(ScopePointer),
    /// The operations have ended, and the callback is next.
    Ending,
}

/// The scope in which a fiber performs a submission.
#[derive(Debug)]
struct ScopePointer(NonNull<Scope<'static, 'static>>);

// SAFETY: `Scope::cancel` may be called on any thread: a scope is `Sync`.
unsafe impl Send for ScopePointer {}

fn _scope_is_sync(scope: &Scope<'static, 'static>) -> impl Sync {
    scope
}

/// A scope that `cancel` may reach. It is dropped before the scope ends.
pub(crate) struct Attached<'a> {
    submissions: &'a Submissions,
    pending: Pending,
}

impl Submissions {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a submission its number.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if all indexes are in use.
    pub(crate) fn begin(&self) -> Result<Pending, Error> {
        let mut slots = self.lock();
        let index = match slots.free.pop() {
            Some(index) => index,
            None if slots.slots.len() < 1 << INDEX_BITS => {
                slots.slots.push(Slot { serial: 0, state: State::Free });
                slots.slots.len() as u32 - 1
            }
            None => {
                let text = "16777216 submissions are under way: wait for some of them";
                return Err(Error::new(libc::EAGAIN, text));
            }
        };
        let pending = Pending::begin(index);
        slots.slots[index as usize] = Slot { serial: pending.serial, state: State::Queued };
        Ok(pending)
    }

    /// Lets `cancel` reach the scope, until the guard is dropped.
    pub(crate) fn attach<'a>(&'a self, pending: Pending, scope: &Scope<'_, '_>) -> Attached<'a> {
        let mut slots = self.lock();
        let state = &mut slots.slots[pending.index as usize].state;
        if matches!(state, State::CancelledEarly) {
            scope.cancel();
        } else {
            *state = State::Running(ScopePointer(NonNull::from(scope).cast()));
        }
        Attached { submissions: self, pending }
    }

    /// Frees the number.
    pub(crate) fn end(&self, pending: Pending) {
        let mut slots = self.lock();
        slots.slots[pending.index as usize].state = State::Free;
        slots.free.push(pending.index);
    }

    /// Cancels a submission. Returns `false` if it has ended, or never was.
    pub(crate) fn cancel(&self, number: u64) -> bool {
        let mut slots = self.lock();
        let named = Pending::of(number);
        let slot = slots.slots.get_mut(named.index as usize);
        let Some(slot) = slot.filter(|slot| slot.serial == named.serial) else { return false };
        match &slot.state {
            State::Queued => slot.state = State::CancelledEarly,
            State::CancelledEarly => {}
            // SAFETY: the guard of the scope takes the pointer away under this lock before the
            // scope ends.
            State::Running(scope) => unsafe { scope.0.as_ref() }.cancel(),
            State::Free | State::Ending => return false,
        }
        true
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        let mut slots = self.submissions.lock();
        slots.slots[self.pending.index as usize].state = State::Ending;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_names_one_submission_of_the_process() {
        let (one, other) = (Submissions::default(), Submissions::default());
        let first = one.begin().unwrap();
        let foreign = other.begin().unwrap();
        assert_eq!(Pending::of(first.number()), first);
        assert_eq!((one.cancel(foreign.number()), other.cancel(first.number())), (false, false));
        one.end(first);
        let second = one.begin().unwrap();
        assert_eq!(first.index, second.index);
        assert_eq!((one.cancel(first.number()), one.cancel(second.number())), (false, true));
        assert_eq!((one.cancel(0), one.cancel(u64::MAX)), (false, false));
    }
}
