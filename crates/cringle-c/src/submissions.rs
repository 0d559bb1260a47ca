//! The submissions that are under way and may be cancelled, by numbers with a generation.

use cringle::fiber::Scope;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A submission that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    generation: u32,
    index: u32,
}

impl Pending {
    pub(crate) fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
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
    generation: u32,
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

    pub(crate) fn begin(&self) -> Pending {
        let mut slots = self.lock();
        let index = slots.free.pop().unwrap_or_else(|| {
            slots.slots.push(Slot { generation: 0, state: State::Free });
            slots.slots.len() as u32 - 1
        });
        let slot = &mut slots.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.state = State::Queued;
        Pending { generation: slot.generation, index }
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
        let (generation, index) = ((number >> 32) as u32, number as u32);
        let slot = slots.slots.get_mut(index as usize);
        let Some(slot) = slot.filter(|slot| slot.generation == generation) else { return false };
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
