//! The log's file, with an exclusive lock.

use cringle_std::fiber;
use cringle_std::fs::{self, File, OpenOptions, TryLockError};
use cringle_std::internal::InternalFile;
use std::io;
use std::os::unix::fs::MetadataExt;
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
    /// Opens a file and locks it. The file is the one that has this name when it is locked: before,
    /// the owner of the lock may have renamed or removed it. Each attempt opens the file again.
    pub(super) fn open(options: &OpenOptions, path: &Path) -> io::Result<LockedFile> {
        let (mut pause, last) = PAUSES;
        loop {
            // It stays open until the next attempt.
            let file = LockedFile(options.open(path)?);
            let why = match file.try_lock() {
                Ok(()) if file.is_named(path)? => return Ok(file),
                Ok(()) => "it is renamed or removed again and again",
                Err(TryLockError::WouldBlock) => "another log has locked it",
                Err(TryLockError::Error(error)) => return without_lock(error, file),
            };
            if pause > last {
                let text = format!("{} is in use: {why}", path.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
            fiber::sleep_cancellable(pause)?;
            pause *= 2;
        }
    }

    /// Whether the path leads to this file.
    fn is_named(&self, path: &Path) -> io::Result<bool> {
        let own = self.0.metadata()?;
        match fs::metadata(path) {
            Ok(named) => Ok((own.dev(), own.ino()) == (named.dev(), named.ino())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Returns the file if its file system has no locks.
fn without_lock(error: io::Error, file: LockedFile) -> io::Result<LockedFile> {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOLCK | libc::EINVAL) => Ok(file),
        _ => Err(error),
    }
}

derefs!([] LockedFile => File, |it| &it.0);

impl Drop for LockedFile {
    fn drop(&mut self) {
        self.0.unlock_plainly();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::LockedFile;
    use cringle_std::fs::File;

    #[test]
    fn file_is_recognised_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("log"), directory.path().join("old"));
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let file = LockedFile::open(&options, &path).unwrap();
        assert!(file.is_named(&path).unwrap());
        std::fs::rename(&path, &other).unwrap();
        assert!(!file.is_named(&path).unwrap() && file.is_named(&other).unwrap());
        std::fs::write(&path, "").unwrap();
        assert!(!file.is_named(&path).unwrap());
    }
}
