//! The channel under [`mpsc`](super::mpsc), [`mpmc`](super::mpmc) and [`oneshot`](super::oneshot):
//! a buffer and two queues of waiters, under one lock.
//!
//! # The protocol
//!
//! At most one of the two queues has waiters. A sender that finds a waiting receiver moves its
//! value directly into that receiver's frame. A sender that finds the buffer full waits with the
//! value in its own frame. A receiver takes the value from there: into the buffer or, at capacity 0
//! (a rendezvous), for itself. So a value is always in exactly one place, and a waiter that gives
//! up, cancelled or timed out, either was granted its value or still owns the one that it wanted to
//! send.
//!
//! Values are moved under the lock and never dropped there.

use super::caller::{Caller, WaitError, WaitOptions, Waker};
use super::wait_queue::{Dequeued, Queue, ShortLock, WaitOutcome, Waiter, WakeList};
use cringle_core::sync::{AtomicUsize, Ordering};
use cringle_core::wait_target::Target;
use std::cell::UnsafeCell;
use std::collections::VecDeque;

/// See the module. Holds the number of its senders and receivers.
pub(super) struct Channel<T> {
    state: ShortLock<State<T>>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

struct State<T> {
    buffer: VecDeque<T>,
    capacity: usize,
    waiting_senders: Queue,
    waiting_receivers: Queue,
    /// The last sender was dropped.
    senders_gone: bool,
    /// The last receiver was dropped.
    receivers_gone: bool,
}

/// Why a value was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFailure {
    /// The buffer is full.
    Full,
    /// The last receiver was dropped.
    Disconnected,
    Wait(WaitError),
}

/// Why no value was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveFailure {
    /// The buffer is empty.
    Empty,
    /// The buffer is empty and the last sender was dropped.
    Disconnected,
    Wait(WaitError),
}

/// A value in the frame of a waiter.
struct Slot<T>(UnsafeCell<Option<T>>);

impl<T> Slot<T> {
    fn new(value: Option<T>) -> Slot<T> {
        Slot(UnsafeCell::new(value))
    }

    fn pointer(&self) -> *mut () {
        self.0.get().cast()
    }

    /// Returns the place of a dequeued waiter's value.
    ///
    /// # Safety
    ///
    /// The waiter waits at a channel of this `T`.
    unsafe fn of(waiter: &Dequeued<'_>) -> *mut Option<T> {
        waiter.slot().cast()
    }
}

impl<T> Channel<T> {
    /// Creates a channel with one sender and one receiver.
    pub(super) fn new(capacity: usize) -> Channel<T> {
        let state = State {
            buffer: VecDeque::new(),
            capacity,
            waiting_senders: Queue::new(),
            waiting_receivers: Queue::new(),
            senders_gone: false,
            receivers_gone: false,
        };
        Channel {
            state: ShortLock::new(state),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
        }
    }

    /// Sends a value without waiting.
    pub(super) fn try_send(&self, value: T) -> Result<(), (T, SendFailure)> {
        let mut state = self.state.lock();
        let sent = state.offer(value);
        drop(state);
        sent.map(wake)
    }

    /// Sends a value, and waits for room if the buffer is full.
    pub(super) fn send(&self, value: T, options: WaitOptions) -> Result<(), (T, SendFailure)> {
        let caller = Caller::current();
        if let Some(error) = options.refusal(caller) {
            return Err((value, SendFailure::Wait(error)));
        }
        caller.spend();
        let slot;
        let waiter;
        {
            let mut state = self.state.lock();
            match state.offer(value) {
                Ok(waker) => {
                    drop(state);
                    wake(waker);
                    return Ok(());
                }
                Err((value, SendFailure::Full)) => slot = Slot::new(Some(value)),
                Err(refused) => return Err(refused),
            }
            waiter = Waiter::new(caller, 1, slot.pointer());
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and by then the
            // waiter has left the queue.
            unsafe { state.waiting_senders.push(&waiter) };
        }
        let why = match waiter.wait(&options, Target::address_of(self), || {
            self.state.lock().waiting_senders.remove(&waiter)
        }) {
            Ok(WaitOutcome::Granted) => return Ok(()),
            Ok(WaitOutcome::Refused) => SendFailure::Disconnected,
            Err(error) => SendFailure::Wait(error),
        };
        Err((slot.0.into_inner().expect("a refused sender keeps its value"), why))
    }

    /// Receives a value without waiting.
    pub(super) fn try_receive(&self) -> Result<T, ReceiveFailure> {
        let mut state = self.state.lock();
        let received = state.take();
        drop(state);
        received.map(|(value, waker)| {
            wake(waker);
            value
        })
    }

    /// Receives a value, and waits for one if the buffer is empty.
    pub(super) fn receive(&self, options: WaitOptions) -> Result<T, ReceiveFailure> {
        let caller = Caller::current();
        if let Some(error) = options.refusal(caller) {
            return Err(ReceiveFailure::Wait(error));
        }
        caller.spend();
        let slot = Slot::<T>::new(None);
        let waiter;
        {
            let mut state = self.state.lock();
            match state.take() {
                Ok((value, waker)) => {
                    drop(state);
                    wake(waker);
                    return Ok(value);
                }
                Err(ReceiveFailure::Empty) => {}
                Err(missing) => return Err(missing),
            }
            waiter = Waiter::new(caller, 1, slot.pointer());
            // SAFETY: I2, I10. As in `send`.
            unsafe { state.waiting_receivers.push(&waiter) };
        }
        let withdraw = || self.state.lock().waiting_receivers.remove(&waiter);
        match waiter.wait(&options, Target::address_of(self), withdraw) {
            Ok(WaitOutcome::Granted) => {
                Ok(slot.0.into_inner().expect("a granted receiver has its value"))
            }
            Ok(WaitOutcome::Refused) => Err(ReceiveFailure::Disconnected),
            Err(error) => Err(ReceiveFailure::Wait(error)),
        }
    }

    /// Returns the number of values in the buffer.
    pub(super) fn len(&self) -> usize {
        self.state.lock().buffer.len()
    }

    /// Returns whether the last receiver was dropped.
    pub(super) fn has_no_receiver(&self) -> bool {
        self.state.lock().receivers_gone
    }

    pub(super) fn add_sender(&self) {
        // The count cannot overflow: 2⁶³ handles do not fit into memory.
        self.senders.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_receiver(&self) {
        self.receivers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a dropped sender. The last one refuses the receivers that wait for a value.
    pub(super) fn remove_sender(&self) {
        if self.senders.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut woken = WakeList::default();
        {
            let mut state = self.state.lock();
            state.senders_gone = true;
            state.waiting_receivers.refuse_all(&mut woken);
        }
        woken.wake();
    }

    /// Counts a dropped receiver. The last one refuses the waiting senders, which get their values
    /// back, and drops the values in the buffer.
    pub(super) fn remove_receiver(&self) {
        if self.receivers.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut woken = WakeList::default();
        let unread = {
            let mut state = self.state.lock();
            state.receivers_gone = true;
            state.waiting_senders.refuse_all(&mut woken);
            std::mem::take(&mut state.buffer)
        };
        woken.wake();
        drop(unread);
    }
}

impl<T> State<T> {
    /// Hands the value to a waiting receiver, whose waker it returns, or puts it into the buffer.
    #[inline]
    fn offer(&mut self, value: T) -> Result<Option<Waker>, (T, SendFailure)> {
        if self.receivers_gone {
            return Err((value, SendFailure::Disconnected));
        }
        if let Some(receiver) = self.waiting_receivers.pop() {
            // SAFETY: I10. The receiver waits at this channel, its frame stays until it has an
            // outcome, and the lock is held.
            unsafe { *Slot::of(&receiver) = Some(value) };
            return Ok(Some(receiver.grant()));
        }
        if self.buffer.len() < self.capacity {
            self.buffer.push_back(value);
            return Ok(None);
        }
        Err((value, SendFailure::Full))
    }

    /// Takes the first value, from the buffer or from a waiting sender, whose waker it returns.
    #[inline]
    fn take(&mut self) -> Result<(T, Option<Waker>), ReceiveFailure> {
        let mut waker = None;
        let first = self.buffer.pop_front();
        let next = self.waiting_senders.pop().map(|sender| {
            // SAFETY: I10. The sender waits at this channel, its frame stays until it has an
            // outcome, and the lock is held.
            let value = unsafe { (*Slot::<T>::of(&sender)).take() };
            waker = Some(sender.grant());
            value.expect("a waiting sender has its value")
        });
        match (first, next) {
            (Some(first), Some(next)) => {
                // The first waiting sender's value takes the room, behind the buffered values.
                self.buffer.push_back(next);
                Ok((first, waker))
            }
            (Some(value), None) | (None, Some(value)) => Ok((value, waker)),
            (None, None) if self.senders_gone => Err(ReceiveFailure::Disconnected),
            (None, None) => Err(ReceiveFailure::Empty),
        }
    }
}

/// Wakes the waiter of a call that has ended its wait.
#[inline]
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
