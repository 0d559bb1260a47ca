//! Setting a file's access and modification times. A thread of the pool makes the calls, because
//! the ring has no op for them.

use super::File;
use super::perform::{c_path, perform};
use cringle_driver::Op;
use cringle_driver::syscall::{Syscall, Times};
use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The times to set on a file, as `std::fs::FileTimes`: for [`File::set_times`] and [`set_times`].
///
/// ```
/// use cringle::fs::FileTimes;
/// use std::time::SystemTime;
///
/// let now = SystemTime::now();
/// let times = FileTimes::new().set_accessed(now).set_modified(now);
/// ```
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
    /// Returns a value that sets no time.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// Sets the time of the last access.
    #[must_use]
    pub fn set_accessed(mut self, at: SystemTime) -> FileTimes {
        self.accessed = Some(at);
        self
    }

    /// Sets the time of the last modification.
    #[must_use]
    pub fn set_modified(mut self, at: SystemTime) -> FileTimes {
        self.modified = Some(at);
        self
    }
}

impl File {
    /// Sets the file's access and modification times.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_times`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        set(self.fd(), None, times, 0)
    }

    /// Sets the file's modification time.
    ///
    /// # Errors
    ///
    /// As [`set_times`](File::set_times).
    pub fn set_modified(&self, at: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(at))
    }
}

/// Sets the access and modification times of a file. Symbolic links are followed.
///
/// # Errors
///
/// As [`File::set_times`]; and the errors of resolving the path.
pub fn set_times<P: AsRef<Path>>(path: P, times: FileTimes) -> io::Result<()> {
    set(libc::AT_FDCWD, Some(&c_path(path.as_ref())?), times, 0)
}

/// Sets the access and modification times of a file without following symbolic links.
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
    // SAFETY: I1. The path lives in the caller's frame and the times in this one, until the call
    // returns.
    unsafe { perform(Op::Syscall(Syscall::SetTimes { fd, path, times: &times })) }.map(drop)
}

fn stamp(at: Option<SystemTime>) -> io::Result<libc::timespec> {
    let Some(at) = at else { return Ok(libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT }) };
    const SECOND: u32 = 1_000_000_000;
    // For a time before 1970, too, the nanoseconds count forwards from the second.
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
