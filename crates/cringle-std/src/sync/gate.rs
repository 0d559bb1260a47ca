//! Permits, granted in the order of the requests: the core of [`Mutex`](super::Mutex) (one permit),
//! [`RwLock`](super::RwLock) (a reader takes one, a writer takes all) and
//! [`Semaphore`](super::Semaphore).
//!
//! # The protocol
//!
//! One word holds the number of free permits and the flag `QUEUED`: a caller waits, or is about to.
//! Without the flag, permits are acquired by one compare-and-swap and released by one addition.
//! With it, permits are acquired only under the queue's lock, so no caller overtakes a waiter.
//!
//! A caller that finds too few permits sets the flag *under the lock*, and then tries once more. A
//! caller that releases permits and finds the flag set takes the lock and grants permits to waiters
//! in order. Both are operations on the same word, so one comes first: either the caller that sets
//! the flag sees the released permits, or the releasing caller sees the flag. The flag is cleared
//! under the lock when the queue is empty.

use super::caller::{Caller, WaitError, WaitOptions};
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use cringle_core::fiber::Wait;
use cringle_core::sync::{AtomicUsize, Ordering};
use cringle_core::wait_target::{
    FiberTag, MOST_PERMITS, Target, TargetInfo, TargetKind, WaitTarget,
};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

const QUEUED: usize = 1;
const ONE: usize = 2;

/// A number of permits and the callers that wait for them.
pub(super) struct Gate {
    state: AtomicUsize,
    /// The tag of the caller that holds all permits, where it is recorded. Used only by dumps.
    holder: AtomicU64,
    queue: ShortLock<Queue>,
}

impl Gate {
    /// The largest number of permits.
    pub(super) const MAX: usize = MOST_PERMITS;

    constructor! {
        /// Creates a gate with this many free permits.
        pub(super) const fn new(permits: usize) -> Gate {
            assert!(permits <= Gate::MAX, "a semaphore has at most usize::MAX >> 3 permits");
            Gate {
                state: AtomicUsize::new(permits * ONE),
                holder: AtomicU64::new(0),
                queue: ShortLock::new(Queue::new()),
            }
        }
    }

    /// Records the caller as the holder of all permits.
    #[inline]
    pub(super) fn record_holder(&self) {
        self.holder.store(Caller::current().tag().number(), Ordering::Relaxed);
    }

    /// Clears the holder, which is about to release its permits.
    #[inline]
    pub(super) fn clear_holder(&self) {
        self.holder.store(FiberTag::NONE.number(), Ordering::Relaxed);
    }

    /// Returns the number of free permits.
    pub(super) fn available(&self) -> usize {
        self.state.load(Ordering::Relaxed) / ONE
    }

    /// Acquires `count` permits if they are free and no caller waits.
    #[inline]
    pub(super) fn try_acquire(&self, count: usize) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & QUEUED == 0 && state / ONE >= count {
            let (new, ok) = (state - count * ONE, Ordering::Acquire);
            match self.state.compare_exchange_weak(state, new, ok, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Acquires `count` permits, and waits for them if necessary. Spends from the fairness budget.
    #[inline]
    pub(super) fn acquire(&self, count: usize, options: WaitOptions) -> Result<(), WaitError> {
        Caller::current().spend();
        self.acquire_unspent(count, options)
    }

    /// Acquires `count` permits for a call that spends from the fairness budget elsewhere.
    #[inline]
    pub(super) fn acquire_unspent(
        &self,
        count: usize,
        options: WaitOptions,
    ) -> Result<(), WaitError> {
        if self.try_acquire(count) { Ok(()) } else { self.acquire_queued(count, &options) }
    }

    /// [`acquire`](Self::acquire) for a call that cannot return an error: a cancel unwinds.
    #[inline]
    pub(super) fn acquire_or_unwind(&self, count: usize, wait: Wait) {
        if let Err(error) = self.acquire(count, WaitOptions::unwinding(wait)) {
            error.unwind();
        }
    }

    /// [`acquire`](Self::acquire) for a call that returns the error of a cancel.
    pub(super) fn acquire_cancellable(&self, count: usize, wait: Wait) -> io::Result<()> {
        self.acquire(count, WaitOptions::fallible(wait)).map_err(WaitError::into_io_error)
    }

    #[cold]
    fn acquire_queued(&self, count: usize, options: &WaitOptions) -> Result<(), WaitError> {
        let waiter = Waiter::new(Caller::current(), count, std::ptr::null_mut());
        {
            let mut queue = self.queue.lock();
            self.state.fetch_or(QUEUED, Ordering::Relaxed);
            if queue.is_empty() && self.take_free(count) {
                self.state.fetch_and(!QUEUED, Ordering::Relaxed);
                return Ok(());
            }
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and by then the
            // waiter has left the queue.
            unsafe { queue.push(&waiter) };
        }
        waiter.wait(options, Target::of(self), || self.withdraw(&waiter)).map(drop)
    }

    /// Releases `count` permits, and grants them to waiters.
    #[inline]
    pub(super) fn release(&self, count: usize) {
        let before = self.state.fetch_add(count * ONE, Ordering::Release);
        if before & QUEUED != 0 {
            self.wake_waiters();
        }
    }

    #[cold]
    fn wake_waiters(&self) {
        let woken = {
            let mut queue = self.queue.lock();
            self.grant_in_order(&mut queue)
        };
        woken.wake();
    }

    /// Takes `count` free permits for the first waiter. The lock is held.
    fn take_free(&self, count: usize) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state / ONE >= count {
            let (new, ok) = (state - count * ONE, Ordering::Acquire);
            match self.state.compare_exchange_weak(state, new, ok, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Grants the free permits to the first waiters, as far as they suffice. The lock is held.
    fn grant_in_order(&self, queue: &mut Queue) -> WakeList {
        let mut woken = WakeList::default();
        while let Some(need) = queue.first_need()
            && self.take_free(need)
        {
            woken.add(queue.pop().expect("the queue has a first waiter").grant());
        }
        if queue.is_empty() {
            self.state.fetch_and(!QUEUED, Ordering::Relaxed);
        }
        woken
    }

    /// Removes a waiter that gives up. Returns false if it was granted its permits meanwhile.
    #[cold]
    fn withdraw(&self, waiter: &Waiter) -> bool {
        let (was_queued, woken) = {
            let mut queue = self.queue.lock();
            let was_queued = queue.remove(waiter);
            // The waiters behind it may need fewer permits than it did.
            (was_queued, self.grant_in_order(&mut queue))
        };
        woken.wake();
        was_queued
    }
}

impl WaitTarget for Gate {
    const KIND: TargetKind = TargetKind::Gate;
    const PARTS: &[usize] = &[offset_of!(Gate, state), offset_of!(Gate, holder)];

    fn info(&self) -> TargetInfo {
        TargetInfo::Gate {
            address: std::ptr::from_ref(self) as usize,
            holder: FiberTag::of_number(self.holder.load(Ordering::Relaxed)),
            free: self.available(),
        }
    }
}
