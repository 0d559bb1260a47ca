//! The functions of `std::os::unix::fs` that change a file's owner and the root directory. A thread
//! of the pool makes the calls, because the ring has no ops for them.

use super::perform::{c_path, perform};
use cringle_driver::Op;
use cringle_driver::syscall::{Owner, Syscall};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

/// Sets the owner and the group of a file. `None` leaves the value unchanged. Symbolic links are
/// followed.
///
/// # Errors
///
/// As std's, usually `PermissionDenied`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn chown<P: AsRef<Path>>(dir: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    set_owner(libc::AT_FDCWD, &c_path(dir.as_ref())?, uid, gid, 0)
}

/// Sets the owner and the group of an open file, as [`chown`].
///
/// # Errors
///
/// As [`chown`].
pub fn fchown<F: AsFd>(fd: F, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    set_owner(fd.as_fd().as_raw_fd(), c"", uid, gid, libc::AT_EMPTY_PATH)
}

/// Sets the owner and the group of a file, as [`chown`], without following symbolic links.
///
/// # Errors
///
/// As [`chown`].
pub fn lchown<P: AsRef<Path>>(dir: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    set_owner(libc::AT_FDCWD, &c_path(dir.as_ref())?, uid, gid, libc::AT_SYMLINK_NOFOLLOW)
}

fn set_owner(
    dir: RawFd,
    path: &CStr,
    user: Option<u32>,
    group: Option<u32>,
    flags: i32,
) -> io::Result<()> {
    const UNCHANGED: u32 = u32::MAX;
    let (user, group) = (user.unwrap_or(UNCHANGED), group.unwrap_or(UNCHANGED));
    let owner = Owner { user, group, flags };
    let call = Syscall::SetOwner { dir, path: path.as_ptr(), owner: &owner };
    // SAFETY: I1. The path and the owner outlive the call.
    unsafe { perform(Op::Syscall(call)) }.map(drop)
}

/// Changes the root directory of the process, for all of its threads. The working directory does
/// not change.
///
/// # Errors
///
/// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn chroot<P: AsRef<Path>>(dir: P) -> io::Result<()> {
    let path = c_path(dir.as_ref())?;
    // SAFETY: I1. The path lives in this frame, which is resumed only after the call.
    unsafe { perform(Op::Syscall(Syscall::ChangeRoot { path: path.as_ptr() })) }.map(drop)
}
