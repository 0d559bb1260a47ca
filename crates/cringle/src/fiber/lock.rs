//! A fair lock that fibers of any workers, and threads, may hold while they wait for other things.
//!
//! The OS lock inside is held for a few instructions, never over a suspension (**I6**). Unlocking
//! hands the lock to whoever has waited longest; nobody can overtake.

use crate::runtime::fiber::Wait;
use crate::runtime::waker::Waker;
use crate::runtime::worker::Worker;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
pub(crate) struct Lock {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    locked: bool,
    queue: VecDeque<Arc<Turn>>,
}

/// One place in the queue.
struct Turn {
    /// The lock is this waiter's.
    came: AtomicBool,
    waker: Waker,
}

/// The lock is held until this is dropped.
pub(crate) struct LockGuard<'a>(&'a Lock);

impl Lock {
    /// Waits for the lock. Fails only if the calling fiber is cancelled first.
    pub(crate) fn lock(&self) -> io::Result<LockGuard<'_>> {
        let current = Worker::current();
        let turn = {
            let mut state = self.state();
            if !state.locked {
                state.locked = true;
                return Ok(LockGuard(self));
            }
            let waker = match current {
                Some((worker, fiber)) => worker.waker(fiber),
                None => Waker::Thread(std::thread::current()),
            };
            let turn = Arc::new(Turn { came: AtomicBool::new(false), waker });
            state.queue.push_back(Arc::clone(&turn));
            turn
        };
        while !turn.came.load(Ordering::Acquire) {
            match current {
                Some((worker, fiber)) if worker.is_interrupted(fiber) => {
                    if !self.leave(&turn) {
                        break;
                    }
                    // Counted only now: it may unwind, and nobody must be left in the queue then.
                    worker.refuses(fiber);
                    return Err(fiber.cancel_error());
                }
                Some((worker, fiber)) => worker.suspend(fiber, Wait::Lock),
                None => std::thread::park(),
            }
        }
        Ok(LockGuard(self))
    }

    /// Gives a place in the queue up. False if the lock came meanwhile.
    fn leave(&self, turn: &Arc<Turn>) -> bool {
        let mut state = self.state();
        let before = state.queue.len();
        state.queue.retain(|other| !Arc::ptr_eq(other, turn));
        state.queue.len() < before
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.state();
            let next = state.queue.pop_front();
            state.locked = next.is_some();
            next
        };
        if let Some(turn) = next {
            turn.came.store(true, Ordering::Release);
            turn.waker.wake();
        }
    }
}
