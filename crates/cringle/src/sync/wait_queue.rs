//! Who waits, in order: the one protocol by which everything in `sync` waits and is woken.
//!
//! # The protocol
//!
//! A [`Waiter`] lies in the frame of the fiber (or thread) that waits. A [`Queue`] links waiters
//! through themselves, so waiting allocates nothing. The queue lies under a short OS lock, which is
//! never held over a suspension (**I6**); links, waker and slot are touched under that lock only.
//!
//! A waiter leaves the queue in one of two ways, and the lock decides which:
//!
//! - somebody takes it out, gives it what it waits for, copies its waker, and last stores the
//!   outcome: from then on the frame may be gone (**I10**). The waker is called after the lock is
//!   released;
//! - it takes itself out, because it was cancelled or its time is up. If it is not in the queue any
//!   more, it was given something, which it then takes: nothing that was handed over is lost.
//!
//! A wake-up cannot be lost: the outcome is stored before the waker is called, and the waiter looks
//! for the outcome before it suspends (a fiber's wake-up is handled by its own worker, when it is
//! suspended; a thread's is a token that stays). A wake-up that comes late ends a later wait, which
//! looks again.

use super::caller::{BorrowedWaker, Caller, WaitError, WaitOptions, Waker};
use crate::runtime::lent_frame::LentFrame;
use crate::runtime::sync::{AtomicU8, Mutex, Ordering};
use crate::runtime::wait_target::WaitTarget;
use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

const WAITING: u8 = 0;
const GIVEN: u8 = 1;
const REFUSED: u8 = 2;

/// One who waits; see the module. Neither `Send` nor `Sync`: others reach it through its queue.
pub(super) struct Waiter {
    outcome: AtomicU8,
    caller: Caller,
    /// How many permits it needs, or what else tells waiters of one queue apart.
    need: usize,
    /// Where to leave, or take, a value.
    slot: *mut (),
    waker: UnsafeCell<Option<BorrowedWaker>>,
    queued: Cell<bool>,
    previous: Cell<Option<NonNull<Waiter>>>,
    next: Cell<Option<NonNull<Waiter>>>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Given,
    /// It will never come.
    Refused,
}

impl Waiter {
    pub(super) fn new(caller: Caller, need: usize, slot: *mut ()) -> Waiter {
        Waiter {
            outcome: AtomicU8::new(WAITING),
            caller,
            need,
            slot,
            waker: UnsafeCell::new(Some(caller.lend_waker())),
            queued: Cell::new(false),
            previous: Cell::new(None),
            next: Cell::new(None),
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        match self.outcome.load(Ordering::Acquire) {
            WAITING => None,
            GIVEN => Some(Outcome::Given),
            _ => Some(Outcome::Refused),
        }
    }

    /// Waits until somebody has taken this waiter out of its queue, or the options are exhausted.
    ///
    /// `leave` takes it out under the queue's lock, and says whether it was still in.
    #[inline]
    pub(super) fn wait(
        &self,
        options: &WaitOptions,
        subject: &dyn WaitTarget,
        mut leave: impl FnMut() -> bool,
    ) -> Result<Outcome, WaitError> {
        // The queue refers to this frame until it is told, or has taken itself out (I12).
        let lent = LentFrame::begin();
        let result = loop {
            if let Some(outcome) = self.outcome() {
                break Ok(outcome);
            }
            match options.exhausted(self.caller) {
                Some(error) if leave() => break Err(error),
                // It was taken out meanwhile, and the outcome was stored under the lock.
                Some(_) => break Ok(self.outcome().expect("out of the queue, so told why")),
                None => self.caller.suspend(options, subject),
            }
        };
        self.caller.waited();
        lent.end();
        result
    }
}

/// Waiters, those that came first in front.
pub(super) struct Queue {
    first: Option<NonNull<Waiter>>,
    last: Option<NonNull<Waiter>>,
}

// SAFETY: I10. The waiters belong to frames of any threads; what is in them is touched only by who
// has the queue for itself, but for the outcome, which is atomic and stored last.
unsafe impl Send for Queue {}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue { first: None, last: None }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Puts a waiter behind all others.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue, and stays where it is until it is taken out, by another or by
    /// [`remove`](Self::remove).
    pub(super) unsafe fn push(&mut self, waiter: &Waiter) {
        debug_assert!(!waiter.queued.get());
        let node = NonNull::from(waiter);
        waiter.queued.set(true);
        waiter.previous.set(self.last);
        match self.last.replace(node) {
            // SAFETY: I10. What is in the queue is in a frame that stays, by this contract.
            Some(last) => unsafe { last.as_ref() }.next.set(Some(node)),
            None => self.first = Some(node),
        }
    }

    /// Takes this waiter out, which must be of this queue or of none. False if it was not in.
    pub(super) fn remove(&mut self, waiter: &Waiter) -> bool {
        if !waiter.queued.replace(false) {
            return false;
        }
        let (previous, next) = (waiter.previous.take(), waiter.next.take());
        match previous {
            // SAFETY: I10. Its neighbours are in the queue, so in frames that stay.
            Some(previous) => unsafe { previous.as_ref() }.next.set(next),
            None => self.first = next,
        }
        match next {
            // SAFETY: as above.
            Some(next) => unsafe { next.as_ref() }.previous.set(previous),
            None => self.last = previous,
        }
        true
    }

    /// What the first one needs.
    pub(super) fn first_need(&self) -> Option<usize> {
        // SAFETY: I10. It is in the queue, so in a frame that stays.
        self.first.map(|first| unsafe { first.as_ref() }.need)
    }

    /// Takes the first one out; it is to be told why at once.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Dequeued<'_>> {
        let first = self.first?;
        // SAFETY: I10. It is in the queue, so in a frame that stays.
        self.remove(unsafe { first.as_ref() });
        Some(Dequeued { waiter: first, queue: std::marker::PhantomData })
    }

    /// Gives all who are here now what they wait for.
    pub(super) fn give_all(&mut self, woken: &mut WakeList) {
        while let Some(taken) = self.pop() {
            woken.add(taken.give());
        }
    }

    /// Tells all that what they wait for will not come.
    pub(super) fn refuse_all(&mut self, woken: &mut WakeList) {
        while let Some(taken) = self.pop() {
            woken.add(taken.refuse());
        }
    }
}

/// A waiter that was taken out of its queue. Its frame stays until it is told why.
#[must_use = "its waiter would wait for ever"]
pub(super) struct Dequeued<'queue> {
    waiter: NonNull<Waiter>,
    /// The lock is held as long as the queue is borrowed.
    queue: std::marker::PhantomData<&'queue mut Queue>,
}

impl Dequeued<'_> {
    /// Where its value is, or is to be left.
    pub(super) fn slot(&self) -> *mut () {
        // SAFETY: I10. The frame stays until the outcome is stored.
        unsafe { self.waiter.as_ref() }.slot
    }

    pub(super) fn give(self) -> Waker {
        self.tell(GIVEN)
    }

    pub(super) fn refuse(self) -> Waker {
        self.tell(REFUSED)
    }

    #[inline]
    fn tell(self, outcome: u8) -> Waker {
        // SAFETY: I10. The frame stays until the outcome is stored, which is the last touch; the
        // waker is moved out and redeemed before, and nobody else looks at it: the queue is borrowed.
        unsafe {
            let waiter = self.waiter.as_ref();
            let lent = (*waiter.waker.get()).take();
            let waker = lent.expect("a waiter is told once").upgrade();
            waiter.outcome.store(outcome, Ordering::Release);
            waker
        }
    }
}

/// Whom to wake once the lock is released. One costs no allocation.
#[must_use = "they would wait for ever"]
#[derive(Default)]
pub(super) struct WakeList {
    first: Option<Waker>,
    others: Vec<Waker>,
}

impl WakeList {
    #[inline]
    pub(super) fn add(&mut self, waker: Waker) {
        match self.first {
            None => self.first = Some(waker),
            Some(_) => self.others.push(waker),
        }
    }

    #[inline]
    pub(super) fn wake(self) {
        if let Some(first) = self.first {
            first.wake();
            self.others.iter().for_each(Waker::wake);
        }
    }
}

/// The short lock under which queues lie.
pub(super) struct ShortLock<S>(Mutex<S>);

#[cfg(not(loom))]
pub(super) type ShortGuard<'a, S> = std::sync::MutexGuard<'a, S>;
#[cfg(loom)]
pub(super) type ShortGuard<'a, S> = loom::sync::MutexGuard<'a, S>;

impl<S> ShortLock<S> {
    constructor! {
        pub(super) const fn new(state: S) -> ShortLock<S> {
            ShortLock(Mutex::new(state))
        }
    }

    /// For some instructions: nothing under it suspends, calls the user's code or panics.
    #[inline]
    pub(super) fn lock(&self) -> ShortGuard<'_, S> {
        self.0.lock().expect("no code panics under this lock")
    }
}
