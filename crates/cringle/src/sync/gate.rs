//! Permits, given out in the order in which they were asked for: what [`Mutex`](super::Mutex) (one
//! permit), [`RwLock`](super::RwLock) (a reader takes one, a writer all) and
//! [`Semaphore`](super::Semaphore) are made of.
//!
//! # The protocol
//!
//! One word has the free permits and the mark `QUEUED`: somebody waits, or is about to. Without the
//! mark permits are taken by one compare-and-swap and given back by one addition. With it nobody
//! takes any but from under the queue's lock, so nobody overtakes.
//!
//! Who finds too few sets the mark *under the lock*, and looks once more at what the word was then.
//! Who gives some back and finds the mark set takes the lock and hands permits out, first come,
//! first served. All of this is one word, so one of the two comes first: either the addition is seen
//! by the one who sets the mark, or the mark is seen by the one who adds. The mark is cleared under
//! the lock, when the queue is empty.

use super::caller::{Caller, WaitError, WaitOptions};
use super::wait_queue::{Queue, ShortLock, Waiter, WakeList};
use crate::runtime::sync::{AtomicUsize, Ordering};
use crate::runtime::wait_target::{FiberTag, MOST_PERMITS, TargetInfo, WaitTarget};
use std::sync::atomic::AtomicU64;

const QUEUED: usize = 1;
const ONE: usize = 2;

/// See the module.
pub(super) struct Gate {
    state: AtomicUsize,
    /// Who says that it has all permits, as a number: for reports, and for nothing else.
    holder: AtomicU64,
    queue: ShortLock<Queue>,
}

impl Gate {
    /// As many permits as there can be.
    pub(super) const MAX: usize = MOST_PERMITS;

    constructor! {
        /// With this many free permits.
        pub(super) const fn new(permits: usize) -> Gate {
            assert!(permits <= Gate::MAX, "a semaphore has at most usize::MAX >> 3 permits");
            Gate {
                state: AtomicUsize::new(permits * ONE),
                holder: AtomicU64::new(0),
                queue: ShortLock::new(Queue::new()),
            }
        }
    }

    /// The caller has all permits.
    #[inline]
    pub(super) fn note_holder(&self) {
        self.holder.store(Caller::current().tag().number(), Ordering::Relaxed);
    }

    /// It is about to give them back.
    #[inline]
    pub(super) fn forget_holder(&self) {
        self.holder.store(FiberTag::NONE.number(), Ordering::Relaxed);
    }

    /// The permits that are free now.
    pub(super) fn available(&self) -> usize {
        self.state.load(Ordering::Relaxed) / ONE
    }

    /// Takes this many if they are free and nobody waits for some.
    #[inline]
    pub(super) fn try_take(&self, count: usize) -> bool {
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

    /// Takes this many, and waits for them if need be.
    #[inline]
    pub(super) fn take(&self, count: usize, options: WaitOptions) -> Result<(), WaitError> {
        Caller::current().spend();
        match self.try_take(count) {
            true => Ok(()),
            false => self.take_in_line(count, &options),
        }
    }

    #[cold]
    fn take_in_line(&self, count: usize, options: &WaitOptions) -> Result<(), WaitError> {
        let waiter = Waiter::new(Caller::current(), count, std::ptr::null_mut());
        {
            let mut queue = self.queue.lock();
            self.state.fetch_or(QUEUED, Ordering::Relaxed);
            if queue.is_empty() && self.take_marked(count) {
                self.state.fetch_and(!QUEUED, Ordering::Relaxed);
                return Ok(());
            }
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and then the waiter
            // is out of the queue.
            unsafe { queue.push(&waiter) };
        }
        waiter.wait(options, self, || self.leave(&waiter)).map(drop)
    }

    /// Gives this many back, and to whom it is due.
    #[inline]
    pub(super) fn give(&self, count: usize) {
        let before = self.state.fetch_add(count * ONE, Ordering::Release);
        if before & QUEUED != 0 {
            self.hand_out_more();
        }
    }

    #[cold]
    fn hand_out_more(&self) {
        let woken = {
            let mut queue = self.queue.lock();
            self.hand_out(&mut queue)
        };
        woken.wake();
    }

    /// Under the lock: takes this many if they are free, for who is first.
    fn take_marked(&self, count: usize) -> bool {
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

    /// Under the lock: gives those in front what they need, as far as it goes.
    fn hand_out(&self, queue: &mut Queue) -> WakeList {
        let mut woken = WakeList::default();
        while let Some(need) = queue.first_need()
            && self.take_marked(need)
        {
            woken.add(queue.pop().expect("there is a first one").give());
        }
        if queue.is_empty() {
            self.state.fetch_and(!QUEUED, Ordering::Relaxed);
        }
        woken
    }

    /// Gives a place in the queue up. False if the permits came meanwhile.
    #[cold]
    fn leave(&self, waiter: &Waiter) -> bool {
        let (left, woken) = {
            let mut queue = self.queue.lock();
            let left = queue.remove(waiter);
            // It may have been the one whose turn it was, and others need less.
            (left, self.hand_out(&mut queue))
        };
        woken.wake();
        left
    }
}

/// Who waits for permits is asked what it knows of them.
impl WaitTarget for Gate {
    fn info(&self) -> TargetInfo {
        TargetInfo::Gate {
            address: std::ptr::from_ref(self) as usize,
            holder: FiberTag::of_number(self.holder.load(Ordering::Relaxed)),
            free: self.available(),
        }
    }
}
