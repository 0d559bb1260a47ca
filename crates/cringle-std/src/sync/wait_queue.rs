//! The queue of waiters under every type in `sync`, and the protocol by which they are woken.
//!
//! # The protocol
//!
//! A [`Waiter`] lies in the frame of the waiting fiber or thread. A [`Queue`] links waiters
//! intrusively, so a wait allocates nothing. A short OS lock guards the queue and is never held
//! across a suspension (**I6**); the links, the waker and the slot are touched only under it.
//!
//! A waiter leaves its queue in one of two ways, and the lock decides which:
//!
//! - Another fiber or thread dequeues it, moves the value or the permits to it, moves the waker
//!   out, and stores the outcome last: from that store on the waiter's frame may be gone
//!   (**I10**). The waker is called after the lock is released.
//! - It removes itself, because it was cancelled or timed out. If it is no longer in the queue, it
//!   was granted something and returns that instead: nothing that was handed over is lost.
//!
//! No wake-up is lost. The outcome is stored before the waker is called, and the waiter checks the
//! outcome before it suspends. A fiber's wake-up is processed by its own worker, after the
//! suspension; a thread's wake-up is an `unpark` token, which persists. A late wake-up ends a later
//! wait of the same fiber, and that wait checks its own condition again.

use super::caller::{BorrowedWaker, Caller, WaitError, WaitOptions, Waker};
use cringle_core::lent_frame::LentFrame;
use cringle_core::sync::{AtomicU8, Mutex, MutexGuard, Ordering};
use cringle_core::wait_target::Target;
use cringle_core::waiter_list::{Linked, Links, WaiterList};
use std::cell::UnsafeCell;
use std::ptr::NonNull;

const WAITING: u8 = 0;
const GRANTED: u8 = 1;
const REFUSED: u8 = 2;

/// One waiting fiber or thread. Neither `Send` nor `Sync`: other threads reach it through its
/// queue.
pub(super) struct Waiter {
    outcome: AtomicU8,
    caller: Caller,
    /// The number of permits it needs, or another number that tells waiters of one queue apart.
    need: usize,
    /// The place in its frame where a value is left for it or taken from it.
    slot: *mut (),
    waker: UnsafeCell<Option<BorrowedWaker>>,
    links: Links<Waiter>,
}

impl Linked for Waiter {
    #[inline]
    fn links(&self) -> &Links<Waiter> {
        &self.links
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    Granted,
    /// What it waited for can no longer happen.
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
            links: Links::default(),
        }
    }

    fn outcome(&self) -> Option<WaitOutcome> {
        match self.outcome.load(Ordering::Acquire) {
            WAITING => None,
            GRANTED => Some(WaitOutcome::Granted),
            _ => Some(WaitOutcome::Refused),
        }
    }

    /// Waits until this waiter is dequeued, or until the options end the wait.
    ///
    /// `withdraw` removes it from its queue, under the queue's lock, and returns whether it was
    /// still queued.
    #[inline]
    pub(super) fn wait(
        &self,
        options: &WaitOptions,
        subject: Target<'_>,
        mut withdraw: impl FnMut() -> bool,
    ) -> Result<WaitOutcome, WaitError> {
        // The queue refers to this frame until the waiter is dequeued or has withdrawn (I12).
        let lent = LentFrame::begin();
        let result = loop {
            if let Some(outcome) = self.outcome() {
                break Ok(outcome);
            }
            match options.expired(self.caller) {
                Some(error) if withdraw() => break Err(error),
                // It was dequeued meanwhile, and the outcome was stored under the lock.
                Some(_) => break Ok(self.outcome().expect("a dequeued waiter has an outcome")),
                None => self.caller.suspend(options, subject),
            }
        };
        self.caller.waited();
        lent.end();
        result
    }
}

/// Waiters in the order of their arrival.
pub(super) struct Queue(WaiterList<Waiter>);

// SAFETY: I10. The waiters lie in frames of other threads, which stay while the waiters are queued.
// Their fields are touched only through exclusive access to the queue, except for the outcome,
// which is atomic.
unsafe impl Send for Queue {}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue(WaiterList::new())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.first().is_none()
    }

    /// Appends a waiter.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue, and does not move before it has left this one by
    /// [`pop`](Self::pop) or [`remove`](Self::remove).
    #[inline]
    pub(super) unsafe fn push(&mut self, waiter: &Waiter) {
        // SAFETY: by the contract.
        unsafe { self.0.push(waiter) };
    }

    /// Removes a waiter, which must belong to this queue or to none. Returns whether it was queued.
    pub(super) fn remove(&mut self, waiter: &Waiter) -> bool {
        self.0.remove(waiter)
    }

    /// Returns the need of the first waiter.
    pub(super) fn first_need(&self) -> Option<usize> {
        // SAFETY: I10. It is queued, so its frame stays.
        self.0.first().map(|first| unsafe { first.as_ref() }.need)
    }

    /// Dequeues the first waiter. The caller stores its outcome before it releases the lock.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Dequeued<'_>> {
        let first = self.0.first()?;
        // SAFETY: I10. It is queued, so its frame stays.
        self.0.remove(unsafe { first.as_ref() });
        Some(Dequeued { waiter: first, queue: std::marker::PhantomData })
    }

    /// Grants every queued waiter what it waits for.
    pub(super) fn grant_all(&mut self, woken: &mut WakeList) {
        while let Some(waiter) = self.pop() {
            woken.add(waiter.grant());
        }
    }

    /// Refuses every queued waiter.
    pub(super) fn refuse_all(&mut self, woken: &mut WakeList) {
        while let Some(waiter) = self.pop() {
            woken.add(waiter.refuse());
        }
    }
}

/// A waiter that has left its queue and has no outcome yet. Its frame stays until it has one.
#[must_use = "its waiter would wait for ever"]
pub(super) struct Dequeued<'queue> {
    waiter: NonNull<Waiter>,
    /// Borrows the queue, and so keeps its lock held.
    queue: std::marker::PhantomData<&'queue mut Queue>,
}

impl Dequeued<'_> {
    /// Returns the place of its value.
    pub(super) fn slot(&self) -> *mut () {
        // SAFETY: I10. The frame stays until the outcome is stored.
        unsafe { self.waiter.as_ref() }.slot
    }

    pub(super) fn grant(self) -> Waker {
        self.finish(GRANTED)
    }

    pub(super) fn refuse(self) -> Waker {
        self.finish(REFUSED)
    }

    #[inline]
    fn finish(self, outcome: u8) -> Waker {
        // SAFETY: I10. The frame stays until the outcome is stored, and that store is the last
        // touch. The waker is moved out before it; the queue is borrowed, so no other thread reads
        // it.
        unsafe {
            let waiter = self.waiter.as_ref();
            debug_assert!(!waiter.links.is_queued(), "I10: a waiter is dequeued, then granted");
            let lent = (*waiter.waker.get()).take();
            let waker = lent.expect("a waiter gets one outcome").upgrade();
            waiter.outcome.store(outcome, Ordering::Release);
            waker
        }
    }
}

/// The wakers to call once the lock is released. The first one needs no allocation.
#[must_use = "its waiters would wait for ever"]
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

/// The short OS lock that guards a queue. Code under it does not suspend, does not call user code,
/// and does not panic.
pub(super) struct ShortLock<S>(Mutex<S>);

pub(super) type ShortGuard<'a, S> = MutexGuard<'a, S>;

impl<S> ShortLock<S> {
    constructor! {
        pub(super) const fn new(state: S) -> ShortLock<S> {
            ShortLock(Mutex::new(state))
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> ShortGuard<'_, S> {
        self.0.lock()
    }
}
