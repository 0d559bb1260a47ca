//! The generation of the process: a child of `fork` has none of the threads that its parent's
//! engines need, and its copies of their locks may be held for ever.

use crate::engine::Waiting;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Counts the forks that made this process.
pub(crate) fn watch() -> PyResult<()> {
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        Waiting::forget_in_child();
    }
    // SAFETY: P4. The function only stores to atomics, which is allowed after `fork`.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => Ok(()),
        errno => Err(std::io::Error::from_raw_os_error(errno).into()),
    }
}

/// The process that made a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Born(u64);

impl Born {
    pub(crate) fn here() -> Born {
        Born(GENERATION.load(Ordering::Relaxed))
    }

    pub(crate) fn is_here(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }

    pub(crate) fn check(self) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this BlockIO belongs to the parent process, whose threads a child of fork does not \
             have: create a BlockIO in the child, or start it with the spawn or forkserver method",
        ))
    }

    /// Refuses a call that could wait for a lock of the file, which a thread of the parent held.
    pub(crate) fn check_file(self) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this file was opened by the parent process, which may have been writing or syncing it \
             when it forked: open it again in the child",
        ))
    }
}
