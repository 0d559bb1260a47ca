//! Ops on a thread of the pool, and how their results come back.
//!
//! Result and wake-up are one step under one lock, and so are the worker's last look and its word that it
//! sleeps: whichever comes second sees the first (as in `runtime/inbox.rs`). Since the wake_fd is rung under
//! the lock, a worker that has taken the last result may close it (**I9**).
//!
//! A job that no thread has begun can be taken back: it then never looks at what its op points to (**I1**).
//! One that was begun is waited for.

use crate::driver::pool::Pool;
use crate::driver::{Op, blocking};
use crate::sys;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const PENDING: u8 = 0;
const STARTED: u8 = 1;
const WITHDRAWN: u8 = 2;

pub(super) struct Job {
    state: AtomicU8,
    op: Op,
    flight: u32,
    results: Arc<Results>,
}

// SAFETY: I1. What the op points to is lent until its completion, which comes after the result: only the
// thread that has begun the job uses it, and nobody if it was taken back.
unsafe impl Send for Job {}
// SAFETY: as above; the state is an atomic.
unsafe impl Sync for Job {}

impl Job {
    /// Has a thread of the pool perform the op; the calling one does where there is none to be had.
    ///
    /// # Safety
    ///
    /// I1: what the op points to stays until its result was taken, or the job was taken back.
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
        if self.enter(STARTED) {
            // SAFETY: I1, by `start`'s contract.
            let result = unsafe { blocking::perform(&self.op) };
            self.results.post(self.flight, result);
        }
    }

    /// Whether no thread has begun it; none will.
    pub(super) fn withdraw(&self) -> bool {
        self.enter(WITHDRAWN)
    }

    #[cfg(test)]
    pub(super) fn has_started(&self) -> bool {
        self.state.load(Ordering::Acquire) == STARTED
    }

    fn enter(&self, state: u8) -> bool {
        self.state.compare_exchange(PENDING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// What came of jobs, until their worker takes it.
pub(super) struct Results {
    state: Mutex<State>,
    /// Spares the worker the lock where nothing has come.
    some: AtomicBool,
    wake_fd: RawFd,
}

#[derive(Default)]
struct State {
    ended: Vec<(u32, i32)>,
    asleep: bool,
}

impl Results {
    pub(super) fn new(wake_fd: RawFd) -> Results {
        Results { state: Mutex::default(), some: AtomicBool::new(false), wake_fd }
    }

    pub(super) fn post(&self, flight: u32, result: i32) {
        let mut state = self.lock();
        state.ended.push((flight, result));
        self.some.store(true, Ordering::Release);
        if std::mem::replace(&mut state.asleep, false) {
            // SAFETY: I9. The worker waits for this result, and takes it under the lock that is held.
            sys::eventfd_signal(unsafe { BorrowedFd::borrow_raw(self.wake_fd) });
        }
    }

    /// For the worker.
    pub(super) fn has_some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    /// For the worker: all that have come, in exchange for an empty list.
    pub(super) fn take(&self, into: &mut Vec<(u32, i32)>) {
        let mut state = self.lock();
        self.some.store(false, Ordering::Relaxed);
        std::mem::swap(into, &mut state.ended);
    }

    /// For the worker: declares that it will sleep. False (and it must not) if there is something.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut state = self.lock();
        state.asleep = state.ended.is_empty();
        state.asleep
    }

    pub(super) fn wake_up(&self) {
        self.lock().asleep = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }
}
