//! A bounded queue from one feeder to any number of takers: fibers of any workers.
//!
//! A channel would wake its waiting sender for each value that is received, often on another
//! worker. A feeder that found the queue full is woken when the queue is half empty, and then fills
//! it in one go. Items do not pass through the frames of the takers: a taker that is woken takes
//! the first item, if another one has not been faster. So an item goes to a fiber that runs.
//!
//! # No wake-up is lost
//!
//! One short lock guards everything. An item is added, and the first waiting taker dequeued, in one
//! critical section; a taker looks for an item and joins the queue of takers in one critical
//! section. So while a taker is queued, there are at most as many items as takers that were woken
//! and have not looked yet. The feeder's wait is the same protocol with the roles exchanged.

use super::caller::{Caller, WaitError, WaitOptions};
use super::wait_queue::{Dequeued, Queue, ShortLock, Waiter, WakeList};
use cringle_core::fiber::Wait;
use cringle_core::wait_target::Target;
use std::collections::VecDeque;
use std::io;

/// See the module.
pub(crate) struct Feed<T> {
    state: ShortLock<State<T>>,
    capacity: usize,
}

struct State<T> {
    items: VecDeque<T>,
    takers: Queue,
    /// The number of takers in the queue.
    waiting: usize,
    /// The feeder, while it waits for room.
    feeder: Queue,
    /// The feeder was woken, and has not looked yet.
    calls_feeder: bool,
    phase: Phase,
    /// No taker is left.
    is_deserted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The feeder has no more items.
    Ended,
    /// No further item is taken.
    Closed,
}

/// An item that was taken from the queue.
pub(crate) struct Taken<T> {
    pub(crate) item: T,
    /// The number of items that other takers can take now.
    pub(crate) left: usize,
    /// The feeder has been woken, and has not looked yet.
    pub(crate) calls_feeder: bool,
}

/// What became of an item that was added to the queue.
pub(crate) struct Added {
    /// Another item can be added.
    pub(crate) has_room: bool,
    /// A waiting taker was woken for it.
    pub(crate) is_expected: bool,
}

impl<T> Feed<T> {
    /// Creates a queue of at most this number of items.
    pub(crate) fn new(capacity: usize) -> Feed<T> {
        let state = State {
            items: VecDeque::new(),
            takers: Queue::new(),
            waiting: 0,
            feeder: Queue::new(),
            calls_feeder: false,
            phase: Phase::Open,
            is_deserted: false,
        };
        Feed { state: ShortLock::new(state), capacity }
    }

    /// Waits until the queue has room. Returns false if nothing takes further items. Fails if the
    /// calling fiber is cancelled while it would wait.
    pub(crate) fn wait_for_room(&self) -> io::Result<bool> {
        let waiter;
        {
            let mut state = self.state.lock();
            state.calls_feeder = false;
            if !state.is_fed() {
                return Ok(false);
            }
            if state.items.len() < self.capacity {
                return Ok(true);
            }
            waiter = Waiter::new(Caller::current(), 1, std::ptr::null_mut());
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and by then the
            // waiter has left the queue.
            unsafe { state.feeder.push(&waiter) };
        }
        let options = WaitOptions::fallible(Wait::Channel);
        let withdraw = || self.state.lock().feeder.remove(&waiter);
        let waited = waiter.wait(&options, Target::address_of(self), withdraw);
        waited.map_err(WaitError::into_io_error)?;
        let mut state = self.state.lock();
        state.calls_feeder = false;
        Ok(state.is_fed())
    }

    /// Adds an item, for which the feeder has found room.
    pub(crate) fn add(&self, item: T) -> Added {
        Caller::current().spend();
        let (has_room, taker) = {
            let mut state = self.state.lock();
            state.items.push_back(item);
            let has_room = state.items.len() < self.capacity && state.is_fed();
            let taker = state.takers.pop().map(Dequeued::grant);
            state.waiting -= usize::from(taker.is_some());
            (has_room, taker)
        };
        taker.as_ref().inspect(|taker| taker.wake());
        Added { has_room, is_expected: taker.is_some() }
    }

    /// Takes the first item, and waits for one if the queue is empty. Returns `None` when no item
    /// will follow, or if it would wait and this number of takers wait already. Fails if the
    /// calling fiber is cancelled while it would wait.
    pub(crate) fn take(&self, enough_waiting: usize) -> io::Result<Option<Taken<T>>> {
        let caller = Caller::current();
        caller.spend();
        let options = WaitOptions::fallible(Wait::Channel);
        loop {
            let waiter;
            {
                let mut state = self.state.lock();
                if let Some((taken, woken)) = state.take(self.capacity) {
                    drop(state);
                    woken.wake();
                    return Ok(Some(taken));
                }
                if state.phase != Phase::Open || state.waiting >= enough_waiting {
                    return Ok(None);
                }
                waiter = Waiter::new(caller, 1, std::ptr::null_mut());
                // SAFETY: I2, I10. As in `wait_for_room`.
                unsafe { state.takers.push(&waiter) };
                state.waiting += 1;
            }
            let withdraw = || {
                let mut state = self.state.lock();
                let was_queued = state.takers.remove(&waiter);
                state.waiting -= usize::from(was_queued);
                was_queued
            };
            let waited = waiter.wait(&options, Target::address_of(self), withdraw);
            waited.map_err(WaitError::into_io_error)?;
        }
    }

    /// Takes the first item, for the feeder.
    pub(crate) fn take_back(&self) -> Option<T> {
        self.state.lock().items.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().items.is_empty()
    }

    /// Ends the queue: no further item is added.
    pub(crate) fn end(&self) {
        self.set_phase(Phase::Ended);
    }

    /// Closes the queue: no further item is taken, and none needs to be added.
    pub(crate) fn close(&self) {
        self.set_phase(Phase::Closed);
    }

    fn set_phase(&self, phase: Phase) {
        let mut woken = WakeList::default();
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Closed {
                state.phase = phase;
            }
            state.takers.grant_all(&mut woken);
            state.waiting = 0;
            state.feeder.grant_all(&mut woken);
        }
        woken.wake();
    }

    /// Records that no taker is left, so that the feeder does not wait for one.
    pub(crate) fn desert(&self) {
        let mut woken = WakeList::default();
        {
            let mut state = self.state.lock();
            state.is_deserted = true;
            state.feeder.grant_all(&mut woken);
        }
        woken.wake();
    }
}

impl<T> State<T> {
    fn is_fed(&self) -> bool {
        self.phase == Phase::Open && !self.is_deserted
    }

    /// Takes the first item, and wakes the feeder if the queue is half empty.
    #[inline]
    fn take(&mut self, capacity: usize) -> Option<(Taken<T>, WakeList)> {
        if self.phase == Phase::Closed {
            return None;
        }
        let item = self.items.pop_front()?;
        let left = self.items.len();
        let mut woken = WakeList::default();
        if left <= capacity / 2
            && let Some(feeder) = self.feeder.pop()
        {
            woken.add(feeder.grant());
            self.calls_feeder = true;
        }
        Some((Taken { item, left, calls_feeder: self.calls_feeder }, woken))
    }
}
