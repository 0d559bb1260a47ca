//! Ops on threads of the pool, and the way of their results back to the worker.
//!
//! A thread posts a result and wakes the worker under one lock. The worker checks for results and
//! declares that it sleeps under the same lock. Whichever is second sees the first, so no wake-up
//! is lost (as in `inbox.rs` of `cringle-core`). Because the eventfd is signalled under the lock, a
//! worker that has taken its last result may close it (**I9**).
//!
//! A job that no thread has started can be withdrawn; no thread then uses what its op points to
//! (**I1**). A job that was started is waited for.

use crate::pool::Pool;
use crate::{Op, blocking};
use cringle_sys as sys;
use cringle_sys::lock::{Mutex, MutexGuard};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

const PENDING: u8 = 0;
const STARTED: u8 = 1;
const WITHDRAWN: u8 = 2;

/// One op for the pool.
pub(super) struct Job {
    /// `PENDING`, then one of the others for good.
    state: AtomicU8,
    op: Op,
    flight: u32,
    results: Arc<Results>,
}

// SAFETY: I1. What the op points to is lent until its completion, which follows the result. Only
// the thread that moved `state` to `STARTED` uses it; after `WITHDRAWN` no thread does.
unsafe impl Send for Job {}
// SAFETY: as above; through a shared job, a thread reaches the op only after it won `state`.
unsafe impl Sync for Job {}

impl Job {
    /// Performs the op on a thread of the pool, or on this one if the pool cannot start a thread.
    ///
    /// # Safety
    ///
    /// I1: what the op points to stays valid until its result was taken or the job was withdrawn.
    pub(super) unsafe fn start(
        pool: &Arc<Pool>,
        op: Op,
        flight: u32,
        results: &Arc<Results>,
    ) -> Arc<Job> {
        let state = AtomicU8::new(PENDING);
        let job = Arc::new(Job { state, op, flight, results: Arc::clone(results) });
        let theirs = Arc::clone(&job);
        if let Err((_, run)) = pool.run(Box::new(move || theirs.perform())) {
            run();
        }
        job
    }

    fn perform(&self) {
        if self.claim(STARTED) {
            // SAFETY: I1, by the contract of `start`: the job was not withdrawn, and its result is
            // posted after this call.
            let result = unsafe { blocking::perform(&self.op) };
            self.results.post(self.flight, result);
        }
    }

    /// Withdraws the job. Returns false if a thread has started it.
    pub(super) fn withdraw(&self) -> bool {
        self.claim(WITHDRAWN)
    }

    #[cfg(test)]
    pub(super) fn has_started(&self) -> bool {
        self.state.load(Ordering::Acquire) == STARTED
    }

    /// Moves a pending job to this state; false if another thread was first.
    fn claim(&self, state: u8) -> bool {
        self.state.compare_exchange(PENDING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The results of jobs, until their worker takes them.
pub(crate) struct Results {
    state: Mutex<ResultsState>,
    /// Whether there may be any: spares the worker the lock.
    has_any: AtomicBool,
    wake_fd: RawFd,
}

#[derive(Default)]
struct ResultsState {
    ended: Vec<(u32, i32)>,
    /// The numbers that the program closes or has closed.
    closed: Vec<RawFd>,
    is_asleep: bool,
}

impl Results {
    pub(super) fn new(wake_fd: RawFd) -> Results {
        Results { state: Mutex::default(), has_any: AtomicBool::new(false), wake_fd }
    }

    pub(super) fn post(&self, flight: u32, result: i32) {
        self.post_with(|state| state.ended.push((flight, result)));
    }

    /// Posts a number that the program closes or has closed. The caller has the lock of the table
    /// of [`kept`](crate::kept), in which an op of the driver is.
    pub(crate) fn post_closed(&self, fd: RawFd) {
        self.post_with(|state| state.closed.push(fd));
    }

    fn post_with(&self, push: impl FnOnce(&mut ResultsState)) {
        let mut state = self.lock();
        push(&mut state);
        self.has_any.store(true, Ordering::Release);
        if std::mem::replace(&mut state.is_asleep, false) {
            // SAFETY: I9. The worker closes the eventfd only after it has taken this result, for
            // which it needs the lock that is held here; or, if this is a number, after its ops
            // have left the table, whose lock is held.
            sys::eventfd_signal(unsafe { BorrowedFd::borrow_raw(self.wake_fd) });
        }
    }

    /// Whether [`take`](Self::take) may find a result. Only the worker calls this.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Swaps the results with an empty list, and returns the closed numbers. Only the worker
    /// calls this.
    pub(super) fn take(&self, into: &mut Vec<(u32, i32)>) -> Vec<RawFd> {
        debug_assert!(into.is_empty(), "I5: results would be lost");
        let mut state = self.lock();
        self.has_any.store(false, Ordering::Relaxed);
        std::mem::swap(into, &mut state.ended);
        std::mem::take(&mut state.closed)
    }

    /// Declares that the worker sleeps. Returns false, and it must not sleep, if there is a result.
    /// Only the worker calls this.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut state = self.lock();
        state.is_asleep = state.ended.is_empty() && state.closed.is_empty();
        state.is_asleep
    }

    pub(super) fn wake_up(&self) {
        self.lock().is_asleep = false;
    }

    fn lock(&self) -> MutexGuard<'_, ResultsState> {
        self.state.lock()
    }
}
