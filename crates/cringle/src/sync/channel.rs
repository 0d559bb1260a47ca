//! What all channels are made of: a buffer, and those who wait to send or to receive, under one lock.
//!
//! # The protocol
//!
//! At most one of the two queues has waiters. A sender that finds a receiver waiting moves its value
//! straight into that one's frame; one that finds the buffer full waits with the value in its own
//! frame, from where a receiver takes it: into the buffer, or, where there is none (capacity 0, a
//! rendezvous), for itself. So a value is always in exactly one place, and a waiter that leaves
//! because of a cancel or a timeout has either been given its value or still has its own.
//!
//! Values are moved under the lock and never dropped there.

use super::caller::{Caller, WaitError, WaitOptions};
use super::wait_queue::{Dequeued, Outcome, Queue, ShortLock, Waiter, WakeList};
use crate::runtime::sync::{AtomicUsize, Ordering};
use crate::runtime::wait_target::ByAddress;
use std::cell::UnsafeCell;
use std::collections::VecDeque;

/// See the module.
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
    /// No sender is left.
    ended: bool,
    /// No receiver is left.
    abandoned: bool,
}

/// Why a value was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFailure {
    /// There is no room now.
    Full,
    /// Nobody will ever receive.
    Disconnected,
    Wait(WaitError),
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveFailure {
    /// There is none now.
    Empty,
    /// Nobody will ever send.
    Disconnected,
    Wait(WaitError),
}

/// A value in the frame of one who waits.
struct Slot<T>(UnsafeCell<Option<T>>);

impl<T> Slot<T> {
    fn new(value: Option<T>) -> Slot<T> {
        Slot(UnsafeCell::new(value))
    }

    fn pointer(&self) -> *mut () {
        self.0.get().cast()
    }

    /// The value in the slot of one who was taken out of a queue.
    ///
    /// # Safety
    ///
    /// It waits at a channel of this `T`.
    unsafe fn of(taken: &Dequeued<'_>) -> *mut Option<T> {
        taken.slot().cast()
    }
}

impl<T> Channel<T> {
    /// With one sender and one receiver.
    pub(super) fn new(capacity: usize) -> Channel<T> {
        let state = State {
            buffer: VecDeque::new(),
            capacity,
            waiting_senders: Queue::new(),
            waiting_receivers: Queue::new(),
            ended: false,
            abandoned: false,
        };
        Channel {
            state: ShortLock::new(state),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
        }
    }

    /// Sends what can be sent at once.
    pub(super) fn try_send(&self, value: T) -> Result<(), (T, SendFailure)> {
        let mut state = self.state.lock();
        let sent = state.offer(value);
        drop(state);
        sent.map(WakeList::wake)
    }

    /// Sends, and waits for room.
    pub(super) fn send(&self, value: T, options: WaitOptions) -> Result<(), (T, SendFailure)> {
        let caller = Caller::current();
        if let Some(error) = options.refused(caller) {
            return Err((value, SendFailure::Wait(error)));
        }
        caller.spend();
        let slot;
        let waiter;
        {
            let mut state = self.state.lock();
            match state.offer(value) {
                Ok(woken) => {
                    drop(state);
                    woken.wake();
                    return Ok(());
                }
                Err((value, SendFailure::Full)) => slot = Slot::new(Some(value)),
                Err(refused) => return Err(refused),
            }
            waiter = Waiter::new(caller, 1, slot.pointer());
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and then the waiter
            // is out of the queue.
            unsafe { state.waiting_senders.push(&waiter) };
        }
        let why = match waiter.wait(&options, &ByAddress::of(self), || {
            self.state.lock().waiting_senders.remove(&waiter)
        }) {
            Ok(Outcome::Given) => return Ok(()),
            Ok(Outcome::Refused) => SendFailure::Disconnected,
            Err(error) => SendFailure::Wait(error),
        };
        Err((slot.0.into_inner().expect("nobody took the value"), why))
    }

    /// Receives what is there.
    pub(super) fn try_receive(&self) -> Result<T, ReceiveFailure> {
        let mut state = self.state.lock();
        let received = state.take();
        drop(state);
        received.map(|(value, woken)| {
            woken.wake();
            value
        })
    }

    /// Receives, and waits for a value.
    pub(super) fn receive(&self, options: WaitOptions) -> Result<T, ReceiveFailure> {
        let caller = Caller::current();
        if let Some(error) = options.refused(caller) {
            return Err(ReceiveFailure::Wait(error));
        }
        caller.spend();
        let slot = Slot::<T>::new(None);
        let waiter;
        {
            let mut state = self.state.lock();
            match state.take() {
                Ok((value, woken)) => {
                    drop(state);
                    woken.wake();
                    return Ok(value);
                }
                Err(ReceiveFailure::Empty) => {}
                Err(missing) => return Err(missing),
            }
            waiter = Waiter::new(caller, 1, slot.pointer());
            // SAFETY: I2, I10, as in `send`.
            unsafe { state.waiting_receivers.push(&waiter) };
        }
        let leave = || self.state.lock().waiting_receivers.remove(&waiter);
        match waiter.wait(&options, &ByAddress::of(self), leave) {
            Ok(Outcome::Given) => Ok(slot.0.into_inner().expect("a value was left")),
            Ok(Outcome::Refused) => Err(ReceiveFailure::Disconnected),
            Err(error) => Err(ReceiveFailure::Wait(error)),
        }
    }

    /// The values in the buffer.
    pub(super) fn len(&self) -> usize {
        self.state.lock().buffer.len()
    }

    /// Whether no receiver is left.
    pub(super) fn is_abandoned(&self) -> bool {
        self.state.lock().abandoned
    }

    pub(super) fn add_sender(&self) {
        // 2⁶³ senders would take as many handles.
        self.senders.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_receiver(&self) {
        self.receivers.fetch_add(1, Ordering::Relaxed);
    }

    /// A sender is gone. After the last one, those who wait for a value are told.
    pub(super) fn remove_sender(&self) {
        if self.senders.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut woken = WakeList::default();
        {
            let mut state = self.state.lock();
            state.ended = true;
            state.waiting_receivers.refuse_all(&mut woken);
        }
        woken.wake();
    }

    /// A receiver is gone. After the last one, senders have their values back, and what is in the
    /// buffer is dropped.
    pub(super) fn remove_receiver(&self) {
        if self.receivers.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut woken = WakeList::default();
        let unread = {
            let mut state = self.state.lock();
            state.abandoned = true;
            state.waiting_senders.refuse_all(&mut woken);
            std::mem::take(&mut state.buffer)
        };
        woken.wake();
        drop(unread);
    }
}

impl<T> State<T> {
    /// Sends without waiting.
    #[inline]
    fn offer(&mut self, value: T) -> Result<WakeList, (T, SendFailure)> {
        if self.abandoned {
            return Err((value, SendFailure::Disconnected));
        }
        let mut woken = WakeList::default();
        if let Some(receiver) = self.waiting_receivers.pop() {
            // SAFETY: I10. The receiver waits at this channel, its frame stays until it is told, and
            // the lock is held.
            unsafe { *Slot::of(&receiver) = Some(value) };
            woken.add(receiver.give());
        } else if self.buffer.len() < self.capacity {
            self.buffer.push_back(value);
        } else {
            return Err((value, SendFailure::Full));
        }
        Ok(woken)
    }

    /// Receives without waiting.
    #[inline]
    fn take(&mut self) -> Result<(T, WakeList), ReceiveFailure> {
        let mut woken = WakeList::default();
        let first = self.buffer.pop_front();
        let next = self.waiting_senders.pop().map(|sender| {
            // SAFETY: I10. The sender waits at this channel, its frame stays until it is told, and
            // the lock is held.
            let value = unsafe { (*Slot::<T>::of(&sender)).take() };
            woken.add(sender.give());
            value.expect("a sender waits with its value")
        });
        match (first, next) {
            (Some(first), Some(next)) => {
                // There is room for one more: in front of those who wait, behind those in line.
                self.buffer.push_back(next);
                Ok((first, woken))
            }
            (Some(value), None) | (None, Some(value)) => Ok((value, woken)),
            (None, None) if self.ended => Err(ReceiveFailure::Disconnected),
            (None, None) => Err(ReceiveFailure::Empty),
        }
    }
}
