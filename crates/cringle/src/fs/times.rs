//! When a file was read and written, set by hand. The ring has no op for it; the pool does it.

use super::File;
use super::call::ask;
use crate::driver::Op;
use crate::driver::plain::Plain;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{SystemTime, UNIX_EPOCH};

/// Which times of a file to set: `std::fs::FileTimes`, for [`File::set_times`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTimes {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl FileTimes {
    /// None.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// When it was last read.
    #[must_use]
    pub fn set_accessed(mut self, at: SystemTime) -> FileTimes {
        self.accessed = Some(at);
        self
    }

    /// When its bytes were last changed.
    #[must_use]
    pub fn set_modified(mut self, at: SystemTime) -> FileTimes {
        self.modified = Some(at);
        self
    }
}

impl File {
    /// Sets the file's times.
    ///
    /// ```
    /// use cringle::fs::{File, FileTimes};
    /// use std::time::{Duration, SystemTime};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// cringle::run(|| -> std::io::Result<()> {
    ///     let file = File::create(&path)?;
    ///     let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
    ///     file.set_times(FileTimes::new().set_modified(then))?;
    ///     assert_eq!(file.metadata()?.modified()?, then);
    ///     Ok(())
    /// })
    /// # ?; Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_times`; and [`Cancelled`](crate::Cancelled).
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        let times = [stamp(times.accessed)?, stamp(times.modified)?];
        let call = Plain::SetTimes { fd: self.as_raw_fd(), times: &times };
        // SAFETY: I1. The times live in this frame.
        unsafe { ask(Op::Plain(call)) }.map(drop)
    }

    /// Sets when the file's bytes were last changed.
    ///
    /// # Errors
    ///
    /// As [`set_times`](File::set_times).
    pub fn set_modified(&self, at: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(at))
    }
}

fn stamp(at: Option<SystemTime>) -> io::Result<libc::timespec> {
    let Some(at) = at else { return Ok(libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT }) };
    const SECOND: u32 = 1_000_000_000;
    // The nanoseconds of a time before 1970 also count forwards.
    let (seconds, nanos) = match at.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).ok(), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let whole = i64::try_from(before.as_secs()).ok().map(|seconds| -seconds);
            match before.subsec_nanos() {
                0 => (whole, 0),
                nanos => (whole.and_then(|seconds| seconds.checked_sub(1)), SECOND - nanos),
            }
        }
    };
    let tv_sec = seconds.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    Ok(libc::timespec { tv_sec, tv_nsec: nanos.into() })
}
