//! When a file was read and written, set by hand. The ring has no op for it; the pool does it.

use super::File;
use super::perform::{c_path, perform};
use crate::driver::Op;
use crate::driver::syscall::{Syscall, Times};
use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Which times of a file to set: `std::fs::FileTimes`, for [`File::set_times`].
#[derive(Clone, Copy, Default)]
pub struct FileTimes {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl std::fmt::Debug for FileTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut std = std::fs::FileTimes::new();
        std = self.accessed.map_or(std, |at| std.set_accessed(at));
        std = self.modified.map_or(std, |at| std.set_modified(at));
        std.fmt(f)
    }
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
        set(self.fd(), None, times, 0)
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

/// Sets the times of the file that the path leads to.
///
/// ```
/// use cringle::fs::{self, FileTimes};
/// use std::time::{Duration, SystemTime};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// cringle::run(|| -> std::io::Result<()> {
///     fs::write(&path, "text")?;
///     let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
///     fs::set_times(&path, FileTimes::new().set_modified(then))?;
///     assert_eq!(fs::metadata(&path)?.modified()?, then);
///     Ok(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As [`File::set_times`], and for a path that leads nowhere.
pub fn set_times<P: AsRef<Path>>(path: P, times: FileTimes) -> io::Result<()> {
    set(libc::AT_FDCWD, Some(&c_path(path.as_ref())?), times, 0)
}

/// Sets the times of the file itself, though it is a symbolic link.
///
/// ```
/// use cringle::fs::{self, FileTimes};
/// use std::time::{Duration, SystemTime};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("link");
/// cringle::run(|| -> std::io::Result<()> {
///     cringle::os::unix::fs::symlink("nowhere", &path)?;
///     let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
///     fs::set_times_nofollow(&path, FileTimes::new().set_modified(then))?;
///     assert_eq!(fs::symlink_metadata(&path)?.modified()?, then);
///     Ok(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As [`set_times`].
pub fn set_times_nofollow<P: AsRef<Path>>(path: P, times: FileTimes) -> io::Result<()> {
    set(libc::AT_FDCWD, Some(&c_path(path.as_ref())?), times, libc::AT_SYMLINK_NOFOLLOW)
}

fn set(fd: RawFd, path: Option<&CStr>, times: FileTimes, flags: i32) -> io::Result<()> {
    let stamps = [stamp(times.accessed)?, stamp(times.modified)?];
    let times = Times { stamps, flags };
    let path = path.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: I1. The path lives in the caller's frame, the times in this one.
    unsafe { perform(Op::Syscall(Syscall::SetTimes { fd, path, times: &times })) }.map(drop)
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
