//! Setting a file's permissions. A thread of the pool makes the calls, because the ring has no op
//! for them.

use super::File;
use super::perform::{c_path, perform};
use cringle_driver::Op;
use cringle_driver::syscall::Syscall;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Sets the permissions of a file. Symbolic links are followed.
///
/// # Errors
///
/// As `std::fs::set_permissions`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    let path = c_path(path.as_ref())?;
    let (path, mode) = (path.as_ptr(), permissions.mode());
    // SAFETY: I1. The path lives in this frame, which is resumed only after the call.
    unsafe { perform(Op::Syscall(Syscall::SetMode { fd: libc::AT_FDCWD, path, mode })) }.map(drop)
}

impl File {
    /// Sets the file's permissions.
    ///
    /// # Errors
    ///
    /// As `std::fs::File::set_permissions`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let (fd, path) = (self.fd(), std::ptr::null());
        let call = Syscall::SetMode { fd, path, mode: permissions.mode() };
        // SAFETY: no pointer but a null path, for which the call uses the descriptor.
        unsafe { perform(Op::Syscall(call)) }.map(drop)
    }
}
