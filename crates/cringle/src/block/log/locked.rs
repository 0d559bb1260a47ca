//! The log's file, with an exclusive lock.

use crate::fiber;
use crate::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

/// The first and the last pause before another attempt to lock the file: 1 s in total.
///
/// The kernel closes the files of a killed process with its rings, some milliseconds after its
/// parent has been informed. A program that is restarted at once finds them locked.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(512));

/// A file that no other log has open, where the file system has locks.
///
/// Dropped, it releases the lock by a call: a child process that another thread has just forked has
/// the descriptor, too, until it executes its program, and would keep the lock of a file that is
/// only closed.
#[derive(Debug)]
pub(super) struct LockedFile(File);

impl LockedFile {
    pub(super) fn new(file: File, path: &Path) -> io::Result<LockedFile> {
        let (mut pause, last) = PAUSES;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(LockedFile(file)),
                Err(TryLockError::WouldBlock) if pause <= last => {
                    fiber::sleep_cancellable(pause)?;
                    pause *= 2;
                }
                Err(TryLockError::WouldBlock) => {
                    let text = format!("{} is in use: another log has locked it", path.display());
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
                }
                Err(TryLockError::Error(error)) => return without_lock(error, file),
            }
        }
    }
}

/// Returns the file if its file system has no locks.
fn without_lock(error: io::Error, file: File) -> io::Result<LockedFile> {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOLCK | libc::EINVAL) => Ok(LockedFile(file)),
        _ => Err(error),
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        self.0.unlock_plainly();
    }
}
