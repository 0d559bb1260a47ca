//! Asking what is known of a file: one `statx` each.

use super::Metadata;
use super::file::File;
use super::perform::{c_path, perform};
use crate::driver::Op;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

/// What std's `metadata` asks for.
pub(super) const ALL: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

/// What is known of the file that the path leads to; only the calling fiber waits.
///
/// ```
/// assert!(cringle::fs::metadata("/proc/self")?.is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As `std::fs::metadata`; and [`Cancelled`](crate::Cancelled).
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    stat(libc::AT_FDCWD, &c_path(path.as_ref())?, 0, ALL)
}

/// What is known of the file itself, though it is a symbolic link.
///
/// ```
/// assert!(cringle::fs::symlink_metadata("/proc/self")?.is_symlink());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As `std::fs::symlink_metadata`; and [`Cancelled`](crate::Cancelled).
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    stat(libc::AT_FDCWD, &c_path(path.as_ref())?, libc::AT_SYMLINK_NOFOLLOW, ALL)
}

/// Whether the path leads to something. A broken link does not.
///
/// ```
/// assert!(cringle::fs::exists("/proc/self")?);
/// assert!(!cringle::fs::exists("/proc/nobody")?);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As `std::fs::exists`, where it cannot be known; and [`Cancelled`](crate::Cancelled).
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    match metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// `statx` with flags and a mask of one's own: `libc::AT_SYMLINK_NOFOLLOW`, `AT_STATX_DONT_SYNC` (what
/// is known without asking a server), `libc::STATX_SIZE` and others. What was not asked for, and what
/// the file system does not know, is 0: see [`Metadata::statx_mask`].
///
/// ```
/// use cringle::fs;
///
/// let known = fs::statx("/proc/self/exe", 0, libc::STATX_SIZE | libc::STATX_MNT_ID)?;
/// assert!(known.len() > 0);
/// assert!(known.mount_id().is_some());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As [`metadata`]; `InvalidInput` for flags that the kernel does not know.
pub fn statx<P: AsRef<Path>>(path: P, flags: i32, mask: u32) -> io::Result<Metadata> {
    stat(libc::AT_FDCWD, &c_path(path.as_ref())?, flags, mask)
}

impl File {
    /// `statx` of the open file with a mask of one's own: see [`statx`].
    ///
    /// ```
    /// use cringle::fs::File;
    ///
    /// let known = File::open("/proc/self/exe")?.statx(libc::STATX_DIOALIGN)?;
    /// if let Some((memory, offset)) = known.direct_io_alignment() {
    ///     println!("align buffers to {memory} bytes, offsets to {offset}");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`metadata`](File::metadata).
    pub fn statx(&self, mask: u32) -> io::Result<Metadata> {
        stat_open(self, mask)
    }
}

/// What is known of an open file.
pub(super) fn stat_open(fd: &impl AsFd, mask: u32) -> io::Result<Metadata> {
    stat(fd.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH, mask)
}

pub(super) fn stat(dir: RawFd, path: &CStr, flags: i32, mask: u32) -> io::Result<Metadata> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    let op = Op::Stat { dir, path: path.as_ptr(), flags, mask, out: stat.as_mut_ptr() };
    // SAFETY: I1. The path and the structure live in this frame or beyond.
    unsafe { perform(op) }?;
    // SAFETY: the call succeeded, so the kernel has filled the structure (all-zero before).
    Ok(Metadata { stat: unsafe { stat.assume_init() } })
}
