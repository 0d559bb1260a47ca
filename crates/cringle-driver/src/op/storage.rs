//! Ops on open files and on paths, other than reads and writes.
//!
//! A ring may have a kernel thread perform each of them, and without a ring a thread of the pool
//! does. Arguments that do not fit into an op of 32 bytes lie in the waiting frame, behind a
//! pointer (**I1**).

use crate::syscall::XattrCall;
use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;

/// An op on an open file. Where a kernel thread performs it, the thread may keep the file for a
/// while: see `uring/push.rs`.
#[derive(Clone, Copy, Debug)]
pub enum FileOp {
    Sync {
        fd: RawFd,
        data_only: bool,
    },
    Close {
        fd: RawFd,
    },
    /// `ftruncate`; on a ring since Linux 6.9.
    SetLen {
        fd: RawFd,
        len: u64,
    },
    Allocate {
        fd: RawFd,
        mode: c_int,
        range: *const FileRange,
    },
    /// The length has 32 bits on a ring.
    Advise {
        fd: RawFd,
        advice: c_int,
        range: *const FileRange,
    },
    /// The length has 32 bits on a ring.
    SyncRange {
        fd: RawFd,
        flags: u32,
        range: *const FileRange,
    },
    /// The call may be on a path instead.
    GetXattr(*const XattrCall),
    /// The call may be on a path instead.
    SetXattr(*const XattrCall),
}

/// An op on a path, relative to an open directory.
#[derive(Clone, Copy, Debug)]
pub enum PathOp {
    Open {
        dir: RawFd,
        path: *const c_char,
        flags: c_int,
        mode: u32,
    },
    /// `openat2`.
    OpenHow {
        dir: RawFd,
        path: *const c_char,
        how: *const libc::open_how,
    },
    /// With `AT_EMPTY_PATH` and an empty path, of the descriptor.
    Stat {
        dir: RawFd,
        path: *const c_char,
        call: *const StatCall,
    },
    Unlink {
        dir: RawFd,
        path: *const c_char,
        flags: c_int,
    },
    Rename {
        dir: RawFd,
        path: *const c_char,
        to: *const NewName,
    },
    MakeDir {
        dir: RawFd,
        path: *const c_char,
        mode: u32,
    },
    Symlink {
        target: *const c_char,
        dir: RawFd,
        path: *const c_char,
    },
    Link {
        dir: RawFd,
        path: *const c_char,
        to: *const NewName,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileRange {
    pub offset: u64,
    pub len: u64,
}

/// The arguments of a `statx`.
#[derive(Clone, Copy, Debug)]
pub struct StatCall {
    pub flags: c_int,
    pub mask: u32,
    pub out: *mut libc::statx,
}

/// The second path of a rename or a link, and the flags of the call.
#[derive(Clone, Copy, Debug)]
pub struct NewName {
    pub dir: RawFd,
    pub path: *const c_char,
    pub flags: c_int,
}
