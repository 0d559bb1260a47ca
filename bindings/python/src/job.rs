//! A plan on its way through a worker.

use crate::engine::{self, Engine};
use crate::errors;
use crate::memory::Memory;
use crate::notifier::Bell;
use crate::plan::Plan;
use pyo3::PyTraverseError;
use pyo3::prelude::*;
use pyo3::pyclass::PyVisit;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The results of a plan.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The number of bytes of each operation, or its negated `errno`.
    pub(crate) counts: Vec<i64>,
    /// The first operation that failed, with its error.
    pub(crate) failure: Option<(usize, io::Error)>,
}

/// The state that a worker and its waiter share.
pub(crate) struct Job {
    state: Mutex<State>,
    ended: Condvar,
    is_cancelled: AtomicBool,
}

struct State {
    outcome: Option<Outcome>,
    has_ended: bool,
    /// P1. Whoever drops the job last ends the exports, if its waiter has not.
    memory: Vec<Memory>,
    bell: Option<(Arc<Bell>, u64)>,
}

impl Job {
    /// Starts a plan.
    pub(crate) fn start(engine: &Engine, mut plan: Plan) -> PyResult<Arc<Job>> {
        let outcome = Outcome::with_capacity(plan.len())?;
        let memory = std::mem::take(&mut plan.memory);
        let state = State { outcome: None, has_ended: false, memory, bell: None };
        let job = Arc::new(Job {
            state: Mutex::new(state),
            ended: Condvar::new(),
            is_cancelled: AtomicBool::new(false),
        });
        let end = End(Arc::clone(&job));
        engine.run(move || {
            let outcome = plan.perform(&end.0.is_cancelled, outcome);
            end.0.state().outcome = Some(outcome);
            drop(end);
        })?;
        Ok(job)
    }

    /// Waits for the end, and ends the exports. After an exception of a signal's handler, the job
    /// is cancelled and continues without its waiter.
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<Outcome> {
        match engine::interruptible(py, |limit| self.wait_for(limit).then_some(())) {
            Ok(()) => self.take(py),
            Err(interrupt) => {
                self.cancel();
                Err(interrupt)
            }
        }
    }

    /// Returns the results of a job that has ended. They exist once. An error means that its worker
    /// has panicked.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Outcome> {
        let mut state = self.state();
        let (outcome, memory) = (state.outcome.take(), std::mem::take(&mut state.memory));
        drop(state);
        memory.into_iter().for_each(|memory| memory.release(py));
        outcome.ok_or_else(errors::of_bug)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// Stops the operations that have not been submitted. Those in the kernel end as they do.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Rings a bell at the end, or at once if the job has ended.
    pub(crate) fn ring_at_end(&self, bell: &Arc<Bell>, token: u64) {
        let mut state = self.state();
        if state.has_ended {
            drop(state);
            return bell.ring(token);
        }
        state.bell = Some((Arc::clone(bell), token));
    }

    /// Visits the objects that only the waiter keeps: after the end, those of the exports.
    ///
    /// The collector visits twice: first it subtracts these references, then it marks what can be
    /// reached. An object that only the first visit finds is taken for garbage. So this waits for
    /// the lock, which detached threads hold for a moment: workers, and those in `wait_for`. No
    /// attached thread that the collector has stopped holds it (**P5**).
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let state = self.state();
        if !state.has_ended {
            return Ok(());
        }
        state.memory.iter().try_for_each(|memory| memory.traverse(visit))
    }

    /// Ends the exports that the collector has visited.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        let ended = state.has_ended.then(|| std::mem::take(&mut state.memory));
        drop(state);
        drop(ended);
    }

    fn wait_for(&self, limit: Duration) -> bool {
        let waiting = self.ended.wait_timeout_while(self.state(), limit, |state| !state.has_ended);
        waiting.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the job when it is dropped, also if the worker panics.
struct End(Arc<Job>);

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.has_ended = true;
        let bell = state.bell.take();
        drop(state);
        self.0.ended.notify_all();
        if let Some((bell, token)) = bell {
            bell.ring(token);
        }
    }
}
