//! Removes, renames and links names of files. Each function is one system call.

use super::perform::{c_path, perform, perform_two_paths};
use cringle_driver::op::NewName;
use cringle_driver::syscall::{PathBuffer, Syscall};
use cringle_driver::{Op, PathOp};
use std::ffi::{CStr, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const CWD: RawFd = libc::AT_FDCWD;

/// Removes a name of a file. The file itself is removed with its last name and handle.
///
/// # Errors
///
/// As `std::fs::remove_file`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
///
/// # Cancellation
///
/// The op is cancelled in the kernel. If the kernel has performed it nevertheless, the call
/// succeeds.
pub fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    unlink(CWD, &c_path(path.as_ref())?, 0)
}

/// Removes an empty directory.
///
/// # Errors
///
/// As `std::fs::remove_dir`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    unlink(CWD, &c_path(path.as_ref())?, libc::AT_REMOVEDIR)
}

/// Renames a file or directory, and atomically replaces an existing file of the new name.
///
/// # Errors
///
/// As `std::fs::rename`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
///
/// # Cancellation
///
/// As [`remove_file`].
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let (from, to) = (c_path(from.as_ref())?, c_path(to.as_ref())?);
    rename_at((CWD, &from), (CWD, &to), 0)
}

/// Renames a file or directory, unless the new name exists. Of several calls for one new name at
/// most one succeeds, as with [`hard_link`], and no moment exists at which the file has both names
/// (`renameat2` with `RENAME_NOREPLACE`).
///
/// File systems without hard links, such as vfat and exfat, support it; ext4, XFS, btrfs, tmpfs and
/// overlayfs, too. NFS does not, nor does a FUSE server without `rename2`.
///
/// ```
/// use cringle::fs;
/// use std::io::ErrorKind;
///
/// # let directory = tempfile::tempdir()?;
/// # let at = |name| directory.path().join(name);
/// cringle::run(|| -> std::io::Result<()> {
///     fs::write(at("mine"), "first")?;
///     fs::write(at("other"), "second")?;
///     fs::rename_noreplace(at("mine"), at("lock"))?;
///     let refused = fs::rename_noreplace(at("other"), at("lock")).unwrap_err();
///     assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
///     assert_eq!(fs::read(at("lock"))?, b"first");
///     Ok(())
/// })
/// # ?; std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`rename`]; `AlreadyExists` if `to` exists, also if it is a dangling symbolic link or another
/// name of the same file; and `InvalidInput` if the file system does not support the call. There,
/// `hard_link` and then `remove_file` do the same in two steps.
///
/// # Cancellation
///
/// As [`remove_file`].
pub fn rename_noreplace<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let (from, to) = (c_path(from.as_ref())?, c_path(to.as_ref())?);
    rename_at((CWD, &from), (CWD, &to), libc::RENAME_NOREPLACE)
}

/// Creates a hard link: another name for the same file.
///
/// # Errors
///
/// As `std::fs::hard_link`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let (original, link) = (c_path(original.as_ref())?, c_path(link.as_ref())?);
    link_at((CWD, &original), (CWD, &link))
}

/// Creates a symbolic link.
///
/// # Errors
///
/// As `std::fs::soft_link`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
#[deprecated = "as std's: use os::unix::fs::symlink"]
pub fn soft_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    symlink(original, link)
}

/// Creates a symbolic link, as `std::os::unix::fs::symlink`.
///
/// # Errors
///
/// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    symlink_at(&c_path(original.as_ref())?, (CWD, &c_path(link.as_ref())?))
}

/// Returns the target of a symbolic link.
///
/// # Errors
///
/// As `std::fs::read_link`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    read_link_at((CWD, &c_path(path.as_ref())?))
}

/// Returns the absolute path without symbolic links, `.` and `..`.
///
/// # Errors
///
/// As `std::fs::canonicalize`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = c_path(path.as_ref())?;
    path_by(|out| Syscall::RealPath { path: path.as_ptr(), out })
}

/// A path relative to an open directory. The last component is not followed.
pub(super) type At<'a> = (RawFd, &'a CStr);

pub(super) fn unlink(dir: RawFd, path: &CStr, flags: i32) -> io::Result<()> {
    // SAFETY: I1. The path outlives the call.
    unsafe { perform(Op::Path(PathOp::Unlink { dir, path: path.as_ptr(), flags })) }.map(drop)
}

pub(super) fn rename_at((dir, path): At<'_>, (to_dir, to): At<'_>, flags: u32) -> io::Result<()> {
    let (path, second) = (path.as_ptr(), to);
    let to = NewName { dir: to_dir, path: to.as_ptr(), flags: flags as i32 };
    let op = Op::Path(PathOp::Rename { dir, path, to: &to });
    // SAFETY: I1. The paths and the new name outlive the call.
    unsafe { perform_two_paths(op, second) }.map(drop)
}

pub(super) fn link_at((dir, path): At<'_>, (to_dir, to): At<'_>) -> io::Result<()> {
    let (path, second) = (path.as_ptr(), to);
    let to = NewName { dir: to_dir, path: to.as_ptr(), flags: 0 };
    // SAFETY: I1. The paths and the new name outlive the call.
    unsafe { perform_two_paths(Op::Path(PathOp::Link { dir, path, to: &to }), second) }.map(drop)
}

pub(super) fn symlink_at(target: &CStr, (dir, path): At<'_>) -> io::Result<()> {
    let (target, path) = (target.as_ptr(), path.as_ptr());
    // SAFETY: I1. The paths outlive the call.
    unsafe { perform(Op::Path(PathOp::Symlink { target, dir, path })) }.map(drop)
}

pub(super) fn read_link_at((dir, path): At<'_>) -> io::Result<PathBuf> {
    path_by(|out| Syscall::ReadLink { dir, path: path.as_ptr(), out })
}

/// Performs a call that writes a path into a buffer and returns its length.
fn path_by(call: impl FnOnce(*mut PathBuffer) -> Syscall) -> io::Result<PathBuf> {
    let mut out: Vec<u8> = vec![0; size_of::<PathBuffer>()];
    // SAFETY: I1. The buffer has the size that the call expects. It and the path outlive the call.
    let len = unsafe { perform(Op::Syscall(call(out.as_mut_ptr().cast()))) }?;
    out.truncate(len);
    out.shrink_to_fit();
    Ok(OsString::from_vec(out).into())
}
