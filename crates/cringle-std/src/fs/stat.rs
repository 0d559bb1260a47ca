//! Functions that return a file's metadata, each by one `statx`.

use super::Metadata;
use super::file::File;
use super::perform::{c_path, perform};
use cringle_driver::op::StatCall;
use cringle_driver::{Op, PathOp};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

/// The fields that std's `metadata` requests.
pub(super) const ALL: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

/// Returns the metadata of a file. Symbolic links are followed. Only the calling fiber waits.
///
/// # Errors
///
/// As `std::fs::metadata`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    stat(libc::AT_FDCWD, &c_path(path.as_ref())?, 0, ALL)
}

/// Returns the metadata of a file. If the path is a symbolic link, the metadata is the link's own.
///
/// # Errors
///
/// As `std::fs::symlink_metadata`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    stat(libc::AT_FDCWD, &c_path(path.as_ref())?, libc::AT_SYMLINK_NOFOLLOW, ALL)
}

/// Returns whether the path leads to an existing file. For a broken symbolic link it returns
/// `false`.
///
/// # Errors
///
/// As `std::fs::exists`, if the existence cannot be determined; and
/// [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    match metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Calls `statx` with the given flags and mask.
///
/// Flags are, for example, `libc::AT_SYMLINK_NOFOLLOW` and `libc::AT_STATX_DONT_SYNC` (do not ask a
/// file server); the mask consists of `libc::STATX_SIZE` and its like. Fields that were not
/// requested, or that the file system does not support, are 0: see [`Metadata::statx_mask`].
///
/// ```
/// use cringle::fs;
///
/// let known = fs::statx("/proc/self/exe", 0, libc::STATX_SIZE | libc::STATX_MNT_ID)?;
/// assert!(known.len() > 0);
/// assert!(known.mount_id().is_some());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`metadata`]; and `InvalidInput` for flags that the kernel does not support.
pub fn statx<P: AsRef<Path>>(path: P, flags: i32, mask: u32) -> io::Result<Metadata> {
    stat(libc::AT_FDCWD, &c_path(path.as_ref())?, flags, mask)
}

impl File {
    /// Calls `statx` on the open file with the given mask: see [`statx`].
    ///
    /// ```
    /// use cringle::fs::File;
    ///
    /// let known = File::open("/proc/self/exe")?.statx(libc::STATX_DIOALIGN)?;
    /// if let Some((memory, offset)) = known.direct_io_alignment() {
    ///     println!("align buffers to {memory} bytes, offsets to {offset}");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`metadata`](File::metadata).
    pub fn statx(&self, mask: u32) -> io::Result<Metadata> {
        stat_open(self, mask)
    }
}

/// Returns the metadata of an open file.
pub(super) fn stat_open(fd: &impl AsFd, mask: u32) -> io::Result<Metadata> {
    stat(fd.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH, mask)
}

pub(super) fn stat(dir: RawFd, path: &CStr, flags: i32, mask: u32) -> io::Result<Metadata> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    let (path, call) = (path.as_ptr(), StatCall { flags, mask, out: stat.as_mut_ptr() });
    // SAFETY: I1. The path, the arguments and the structure outlive the call.
    unsafe { perform(Op::Path(PathOp::Stat { dir, path, call: &call })) }?;
    // SAFETY: all-zero bytes are valid, and the kernel has filled in the fields that it supports.
    Ok(Metadata { stat: unsafe { stat.assume_init() } })
}
