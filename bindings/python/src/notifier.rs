//! The way from a worker to an event loop: an eventfd, and the tokens of the jobs that have ended.

use crate::fork::Born;
use pyo3::prelude::*;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Bell {
    event: File,
    tokens: Mutex<Vec<u64>>,
}

impl Bell {
    /// Adds a token and makes the descriptor readable.
    pub(crate) fn ring(&self, token: u64) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        // It fails only if 2⁶⁴ − 1 rings are unread; then it is readable.
        let _ = (&self.event).write(&1_u64.to_ne_bytes());
    }
}

/// A descriptor that is readable when jobs have ended.
#[pyclass(frozen, module = "cringle._native")]
pub(crate) struct Notifier {
    pub(crate) bell: Arc<Bell>,
    born: Born,
}

#[pymethods]
impl Notifier {
    #[new]
    fn new() -> PyResult<Notifier> {
        // SAFETY: the contract of `eventfd`: it has none.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the contract of `from_raw_fd`: the descriptor is new and has no other owner.
        let event = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let bell = Arc::new(Bell { event, tokens: Mutex::default() });
        Ok(Notifier { bell, born: Born::here() })
    }

    fn fileno(&self) -> i32 {
        self.bell.event.as_raw_fd()
    }

    /// Returns the tokens of the jobs that have ended since the last call. A child of `fork` would
    /// take the parent's count, and a worker of the parent may hold its copy of the lock (**P4**).
    fn take(&self) -> PyResult<Vec<u64>> {
        self.born.check()?;
        let _ = (&self.bell.event).read(&mut [0; 8]);
        Ok(std::mem::take(&mut self.bell.tokens.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
