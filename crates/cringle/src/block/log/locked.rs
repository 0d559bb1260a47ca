//! The log's file, with an exclusive lock.

use crate::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;
use std::path::Path;

/// A file that no other log has open, where the file system has locks.
///
/// Dropped, it releases the lock by a call: a child process that another thread has just forked has
/// the descriptor, too, until it executes its program, and would keep the lock of a file that is
/// only closed.
#[derive(Debug)]
pub(super) struct LockedFile(File);

impl LockedFile {
    pub(super) fn new(file: File, path: &Path) -> io::Result<LockedFile> {
        match file.try_lock() {
            Ok(()) => Ok(LockedFile(file)),
            Err(TryLockError::WouldBlock) => {
                let text = format!("{} is in use: another log has locked it", path.display());
                Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
            }
            Err(TryLockError::Error(error)) => match error.raw_os_error() {
                Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOLCK | libc::EINVAL) => {
                    Ok(LockedFile(file))
                }
                _ => Err(error),
            },
        }
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
        // It fails where there are no locks.
        let _ = self.0.unlock();
    }
}
