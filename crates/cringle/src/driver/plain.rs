//! Calls on files that no ring has an op for, as data: whoever performs an [`Op`](super::Op) on a
//! thread, or simulates one, finds all of them in one `match`.
//!
//! What does not fit into an op of 32 bytes lies in the waiting frame, behind a pointer (**I1**).

use super::about::OpName;
use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;

/// One such call. The pointers stay valid until it has been performed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plain {
    /// `getdents64`.
    ReadDir {
        fd: RawFd,
        buf: *mut u8,
        len: u32,
    },
    /// `readlinkat`, into a [`PathBuffer`].
    ReadLink {
        dir: RawFd,
        path: *const c_char,
        out: *mut PathBuffer,
    },
    /// `realpath`, into a [`PathBuffer`]; the result is the length.
    RealPath {
        path: *const c_char,
        out: *mut PathBuffer,
    },
    /// `fchmodat`; of the descriptor itself where the path is null.
    SetMode {
        fd: RawFd,
        path: *const c_char,
        mode: u32,
    },
    /// `fchownat`; of the descriptor itself where the path is empty and the flag says so.
    SetOwner {
        dir: RawFd,
        path: *const c_char,
        owner: *const Owner,
    },
    /// `utimensat` of a path below `fd`; `futimens` of the descriptor where the path is null.
    SetTimes {
        fd: RawFd,
        path: *const c_char,
        times: *const Times,
    },
    /// `flock`.
    Lock {
        fd: RawFd,
        how: c_int,
    },
    /// `copy_file_range`.
    CopyRange {
        from: RawFd,
        to: RawFd,
        offsets: *mut [i64; 2],
        len: u32,
    },
    /// `ioctl(FICLONERANGE)`.
    Clone {
        to: RawFd,
        range: *const libc::file_clone_range,
    },
    /// `lseek` from this offset; where it came to is stored there.
    Seek {
        fd: RawFd,
        whence: c_int,
        offset: *mut i64,
    },
    /// The names of the extended attributes.
    ListXattrs(*const XattrCall),
    RemoveXattr(*const XattrCall),
    ChangeRoot {
        path: *const c_char,
    },
}

impl Plain {
    pub(super) fn name(&self) -> OpName {
        match self {
            Plain::ReadDir { .. } => OpName::ReadDir,
            Plain::ReadLink { .. } => OpName::ReadLink,
            Plain::RealPath { .. } => OpName::RealPath,
            Plain::SetMode { .. } => OpName::SetMode,
            Plain::SetOwner { .. } => OpName::SetOwner,
            Plain::SetTimes { .. } => OpName::SetTimes,
            Plain::Lock { .. } => OpName::Lock,
            Plain::CopyRange { .. } => OpName::CopyRange,
            Plain::Clone { .. } => OpName::Clone,
            Plain::Seek { .. } => OpName::Seek,
            Plain::ListXattrs(_) => OpName::ListXattrs,
            Plain::RemoveXattr(_) => OpName::RemoveXattr,
            Plain::ChangeRoot { .. } => OpName::ChangeRoot,
        }
    }

    /// The descriptor that it is about, −1 for none: of two the one that is written to.
    pub(super) fn file(&self) -> RawFd {
        let fd = match *self {
            Plain::ReadDir { fd, .. }
            | Plain::SetMode { fd, .. }
            | Plain::SetTimes { fd, .. }
            | Plain::Lock { fd, .. }
            | Plain::Seek { fd, .. } => fd,
            Plain::CopyRange { to, .. } | Plain::Clone { to, .. } => to,
            Plain::ReadLink { dir, .. } | Plain::SetOwner { dir, .. } => dir,
            _ => -1,
        };
        // `AT_FDCWD` is none.
        fd.max(-1)
    }

    /// The path that it is about; null for none.
    pub(super) fn path(&self) -> *const c_char {
        match *self {
            Plain::ReadLink { path, .. }
            | Plain::RealPath { path, .. }
            | Plain::SetMode { path, .. }
            | Plain::SetOwner { path, .. }
            | Plain::SetTimes { path, .. }
            | Plain::ChangeRoot { path } => path,
            _ => std::ptr::null(),
        }
    }
}

/// The longest path that the kernel takes or gives, with its end.
pub(crate) type PathBuffer = [u8; libc::PATH_MAX as usize];

/// For whom a file is. `u32::MAX` leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) flags: c_int,
}

/// When a file was read and when it was written, and whether its path is followed.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) stamps: [libc::timespec; 2],
    pub(crate) flags: c_int,
}

/// A call about extended attributes: of `fd`, or of `path` where there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrCall {
    pub(crate) fd: RawFd,
    pub(crate) path: *const c_char,
    pub(crate) name: *const c_char,
    pub(crate) value: *mut u8,
    pub(crate) len: u32,
    pub(crate) flags: c_int,
}

impl XattrCall {
    /// # Safety
    ///
    /// The pointers are valid, `value` for `len` bytes to be written.
    pub(super) unsafe fn get(&self) -> isize {
        let XattrCall { fd, path, name, value, len, .. } = *self;
        // SAFETY: by the contract.
        unsafe {
            match path.is_null() {
                true => libc::fgetxattr(fd, name, value.cast(), len as usize),
                false => libc::getxattr(path, name, value.cast(), len as usize),
            }
        }
    }

    /// # Safety
    ///
    /// The pointers are valid, `value` for `len` bytes to be read.
    pub(super) unsafe fn set(&self) -> isize {
        let XattrCall { fd, path, name, value, len, flags } = *self;
        // SAFETY: by the contract.
        let result = unsafe {
            match path.is_null() {
                true => libc::fsetxattr(fd, name, value.cast(), len as usize, flags),
                false => libc::setxattr(path, name, value.cast(), len as usize, flags),
            }
        };
        result as isize
    }
}

impl Plain {
    /// Makes the call: its count, or −1 and `errno`.
    ///
    /// # Safety
    ///
    /// The pointers are valid for the call.
    pub(super) unsafe fn attempt(self) -> isize {
        // SAFETY: by the contract, each pointer is valid for what the call does with it.
        unsafe {
            match self {
                Plain::ReadDir { fd, buf, len } => {
                    libc::syscall(libc::SYS_getdents64, fd, buf, len as usize) as isize
                }
                Plain::ReadLink { dir, path, out } => {
                    libc::readlinkat(dir, path, out.cast(), size_of::<PathBuffer>())
                }
                Plain::RealPath { path, out } => match libc::realpath(path, out.cast()).is_null() {
                    true => -1,
                    false => libc::strlen(out.cast()) as isize,
                },
                Plain::SetMode { fd, path, mode } => match path.is_null() {
                    true => libc::fchmod(fd, mode) as isize,
                    false => libc::fchmodat(fd, path, mode, 0) as isize,
                },
                Plain::SetOwner { dir, path, owner } => {
                    let Owner { user, group, flags } = *owner;
                    libc::fchownat(dir, path, user, group, flags) as isize
                }
                Plain::SetTimes { fd, path, times } => {
                    let Times { stamps, flags } = &*times;
                    match path.is_null() {
                        true => libc::futimens(fd, stamps.as_ptr()) as isize,
                        false => libc::utimensat(fd, path, stamps.as_ptr(), *flags) as isize,
                    }
                }
                Plain::Lock { fd, how } => libc::flock(fd, how) as isize,
                Plain::CopyRange { from, to, offsets, len } => {
                    let [from_offset, to_offset] = &mut *offsets;
                    libc::copy_file_range(from, from_offset, to, to_offset, len as usize, 0)
                }
                Plain::Clone { to, range } => libc::ioctl(to, libc::FICLONERANGE, range) as isize,
                Plain::Seek { fd, whence, offset } => match libc::lseek(fd, *offset, whence) {
                    -1 => -1,
                    came_to => {
                        *offset = came_to;
                        0
                    }
                },
                Plain::ListXattrs(call) => {
                    let XattrCall { fd, path, value, len, .. } = *call;
                    match path.is_null() {
                        true => libc::flistxattr(fd, value.cast(), len as usize),
                        false => libc::listxattr(path, value.cast(), len as usize),
                    }
                }
                Plain::RemoveXattr(call) => {
                    let XattrCall { fd, path, name, .. } = *call;
                    let result = match path.is_null() {
                        true => libc::fremovexattr(fd, name),
                        false => libc::removexattr(path, name),
                    };
                    result as isize
                }
                Plain::ChangeRoot { path } => libc::chroot(path) as isize,
            }
        }
    }
}
