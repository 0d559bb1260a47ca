//! Exceptions: `cringle.BatchError` and what an `OSError` needs.

use crate::plan::errno_of;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::io;

/// `_errors.failure`. It is set while the package is imported.
static FAILURE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

pub(crate) fn prepare(failure: &Bound<'_, PyAny>) {
    // An error if the package was imported before: then it is that function.
    let _ = FAILURE.set(failure.py(), failure.clone().unbind());
}

/// An operation that has failed or was short.
pub(crate) struct Failed<'e> {
    pub(crate) index: usize,
    pub(crate) name: &'e Py<PyAny>,
    pub(crate) offset: u64,
    pub(crate) wanted: usize,
    pub(crate) is_write: bool,
    /// `None` for a short count.
    pub(crate) error: Option<&'e io::Error>,
    pub(crate) counts: Bound<'e, PyAny>,
}

impl Failed<'_> {
    /// Makes the exception, in Python: see `_errors.failure`.
    pub(crate) fn into_exception(self, py: Python<'_>) -> PyErr {
        let make = || {
            let failure = FAILURE.get(py).ok_or_else(|| {
                PyRuntimeError::new_err("cringle is not imported yet: import it first")
            })?;
            let errno = self.error.map(errno_of);
            let text = self.error.filter(|e| e.raw_os_error().is_none()).map(of_python);
            let place = (self.index, self.offset, self.wanted, self.is_write);
            let arguments = (errno, text, self.name, place, &self.counts);
            failure.bind(py).call1(arguments)
        };
        make().map_or_else(|e| e, PyErr::from_value)
    }
}

/// The `OSError` of a call on a file.
pub(crate) fn of_file(py: Python<'_>, error: &io::Error, name: &Py<PyAny>) -> PyErr {
    let errno = errno_of(error);
    let text = match error.raw_os_error() {
        Some(errno) => strerror(py, errno),
        None => of_python(error),
    };
    PyOSError::new_err((errno, text, name.clone_ref(py)))
}

/// Returns the text of an error of the library in Rust, with the names of the package.
fn of_python(error: &io::Error) -> String {
    let text = error.to_string().replace("a block::AlignedBuf", "a cringle.Buffer");
    text.replace("OpenOptions::direct", "direct=True")
}

fn strerror(py: Python<'_>, errno: i32) -> String {
    let text = py.import("os").and_then(|os| os.call_method1("strerror", (errno,)));
    text.map(|text| text.to_string()).unwrap_or_else(|_| format!("errno {errno}"))
}

/// The exception of a call whose worker has panicked.
#[cold]
pub(crate) fn of_bug() -> PyErr {
    PyRuntimeError::new_err(
        "a bug of the library: a worker has panicked, and its message is on standard error; report \
         it. Operations of the call may have been performed",
    )
}
