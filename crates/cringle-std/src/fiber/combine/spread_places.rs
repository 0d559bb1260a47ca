//! The places of a crew that works on all workers: how many fibers it has, and where they are.
//!
//! Each worker has an equal share of the places. A fiber is hired for, in this order of preference,
//!
//! 1. a worker that sleeps and has less than its share: it is woken, and begins at once;
//! 2. the worker that hires, if that has less than its share;
//! 3. a worker with some fibers of the crew, but less than its share;
//! 4. the worker that hires, if no other fiber is still to begin.
//!
//! In the second and fourth case an idle worker may take the fiber before it starts. So an idle
//! worker gets work, even if all begun calls compute without a pause; and a worker that is busy
//! with other fibers gets none, so that the crew need not wait for it.
//!
//! A worker that has more than its share, because the others were busy, gives a fiber away after
//! each item, while one of the others sleeps.

use cringle_core::worker::{Here, Worker};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// See the module. The counts only guide decisions, except that `hired` bounds the calls: it
/// exceeds the limit only by fibers that make no further call.
pub(super) struct Places {
    limit: usize,
    /// The places of one worker.
    share: usize,
    hired: AtomicUsize,
    /// The hired fibers that have begun.
    begun: AtomicUsize,
    /// The fibers that are on each worker, or on their way to it.
    at: Box<[AtomicUsize]>,
    /// What has returned on each worker.
    returned: Box<[Returned]>,
}

/// The calls that have returned on one worker, modulo 2³². Only that worker changes the counts.
#[derive(Default)]
#[repr(align(128))]
struct Returned {
    at_once: AtomicU32,
    waited: AtomicU32,
}

/// The calls that have returned on one worker: those that did not wait, and those that did.
#[derive(Clone, Copy)]
pub(super) struct Returns {
    pub(super) at_once: u32,
    pub(super) waited: u32,
}

impl Places {
    /// Creates the places of at most this number of fibers.
    pub(super) fn new(limit: usize, workers: usize) -> Places {
        Places {
            limit,
            share: limit.div_ceil(workers),
            hired: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            at: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            returned: (0..workers).map(|_| Returned::default()).collect(),
        }
    }

    pub(super) fn workers(&self) -> usize {
        self.at.len()
    }

    /// Counts a call that has returned on the calling worker.
    pub(super) fn note_return(&self, own: usize, has_waited: bool) {
        let Returned { at_once, waited } = &self.returned[own];
        let count = if has_waited { waited } else { at_once };
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(super) fn returns(&self, worker: usize) -> Returns {
        let Returned { at_once, waited } = &self.returned[worker];
        Returns { at_once: at_once.load(Relaxed), waited: waited.load(Relaxed) }
    }

    /// Takes a place for a fiber that this worker hires. Returns the worker that starts it, or
    /// `None` if no place is free, or enough of the hired fibers are still to begin.
    pub(super) fn take(&self, here: Here) -> Option<usize> {
        let begun = self.begun.load(Relaxed);
        // One for each worker, or half of the fibers that have begun.
        let most = self.limit.min(begun + self.at.len().max(begun / 2));
        let more = |hired| (hired < most).then(|| hired + 1);
        let hired = self.hired.fetch_update(Relaxed, Relaxed, more).ok()?;
        let worker = self.choose(here, hired <= begun);
        match worker {
            Some(worker) => self.at[worker].fetch_add(1, Relaxed),
            None => self.hired.fetch_sub(1, Relaxed),
        };
        worker
    }

    /// Returns the worker that starts the next fiber. `all_begun`: no other one is still to begin.
    fn choose(&self, here: Here, all_begun: bool) -> Option<usize> {
        let own = here.index() as usize;
        let participates = |&worker: &usize| self.count(worker) > 0 && self.has_free(worker);
        self.sleeper(here)
            .or_else(|| self.has_free(own).then_some(own))
            .or_else(|| (0..self.at.len()).find(participates))
            .or_else(|| all_begun.then_some(own))
    }

    /// Takes a place for a fiber that replaces the calling one, on a worker that needs it more.
    /// Returns that worker.
    pub(super) fn take_better(&self, own: usize) -> Option<usize> {
        if self.count(own) <= self.share {
            return None;
        }
        let worker = self.sleeper(Worker::here()?)?;
        // The calling fiber ends without another item, so that its place is free.
        self.hired.fetch_add(1, Relaxed);
        self.at[worker].fetch_add(1, Relaxed);
        Some(worker)
    }

    /// Counts the begin of a fiber, on the worker for which it was hired, or on one that took it.
    pub(super) fn begin(&self, hired_for: usize, worker: usize) {
        self.begun.fetch_add(1, Relaxed);
        if worker != hired_for {
            self.at[hired_for].fetch_sub(1, Relaxed);
            self.at[worker].fetch_add(1, Relaxed);
        }
    }

    /// Gives a place back. Returns whether it was the last one.
    pub(super) fn give_back(&self, worker: usize, has_begun: bool) -> bool {
        self.at[worker].fetch_sub(1, Relaxed);
        if has_begun {
            self.begun.fetch_sub(1, Relaxed);
        }
        self.hired.fetch_sub(1, Relaxed) == 1
    }

    fn sleeper(&self, here: Here) -> Option<usize> {
        here.shared().sleeper(here.index() as usize, |worker| self.has_free(worker))
    }

    fn has_free(&self, worker: usize) -> bool {
        self.count(worker) < self.share
    }

    fn count(&self, worker: usize) -> usize {
        self.at[worker].load(Relaxed)
    }
}
