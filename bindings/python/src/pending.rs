//! A call under way, for asyncio and for iterators.

use crate::fork::Born;
use crate::job::{Job, Outcome};
use crate::notifier::Notifier;
use crate::reads::Request;
use pyo3::PyTraverseError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pyclass::PyVisit;
use std::sync::{Arc, Mutex, PoisonError};

/// Operations that have been started. A value that is dropped has them end in the background.
#[pyclass(frozen, weakref, module = "cringle._native")]
pub(crate) struct Pending {
    born: Born,
    job: Option<Arc<Job>>,
    request: Mutex<Option<(Request, Option<Outcome>)>>,
}

impl Pending {
    pub(crate) fn started(born: Born, job: Arc<Job>, request: Request) -> Pending {
        Pending { born, job: Some(job), request: Mutex::new(Some((request, None))) }
    }

    pub(crate) fn over(born: Born, outcome: Outcome, request: Request) -> Pending {
        Pending { born, job: None, request: Mutex::new(Some((request, Some(outcome)))) }
    }
}

#[pymethods]
impl Pending {
    /// Whether all operations have ended.
    fn done(&self) -> PyResult<bool> {
        self.born.check()?;
        Ok(self.job.as_ref().is_none_or(|job| job.has_ended()))
    }

    /// Stops the operations that have not been submitted.
    fn cancel(&self) {
        self.job.iter().for_each(|job| job.cancel());
    }

    /// Has the notifier report the token when all operations have ended.
    fn notify(&self, notifier: &Bound<'_, Notifier>, token: u64) -> PyResult<()> {
        self.born.check()?;
        let bell = &notifier.get().bell;
        match &self.job {
            Some(job) => job.ring_at_end(bell, token),
            None => bell.ring(token),
        }
        Ok(())
    }

    /// Releases the memory of operations that have ended. They have no result then.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        if self.done()? {
            let request = self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Without it, another thread is in `result`, and takes the job's results.
            if let (Some(request), Some(job)) = (request, &self.job) {
                let _ = job.take(py);
                drop(request);
            }
        }
        Ok(())
    }

    /// The caller's memory may refer to this value: a subclass of an array has attributes.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // In a child of `fork`, a lock may be held for ever (P4): nothing of it is collected.
        if !self.born.is_here() {
            return Ok(());
        }
        if let Ok(request) = self.request.try_lock()
            && let Some((request, _)) = &*request
        {
            request.traverse(&visit)?;
        }
        self.job.iter().try_for_each(|job| job.traverse(&visit))
    }

    fn __clear__(&self) {
        if !self.born.is_here() {
            return;
        }
        let request = self.request.try_lock().ok().and_then(|mut request| request.take());
        drop(request);
        self.job.iter().for_each(|job| job.clear());
    }

    /// Waits for the end, and returns the call's value or raises its exception. Once.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.born.check()?;
        let taken = self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((request, outcome)) = taken else {
            return Err(PyRuntimeError::new_err("the result was taken before"));
        };
        let outcome = match (outcome, &self.job) {
            (Some(outcome), _) => outcome,
            (None, Some(job)) => job.wait(py)?,
            (None, None) => unreachable!("a call without a job is over"),
        };
        request.finish(py, &outcome)
    }
}
