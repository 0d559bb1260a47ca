//! What can be asked of the kernel. A new operation is added here, and in the one `match` of
//! each driver: the compiler names the places.

use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;

/// A file as an op names it: by descriptor, or by its index among the ring's registered files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Fd(RawFd),
    Fixed(u32),
}

/// The offset that means "at the file's own cursor". Only for what has no cursor (pipes, ttys)
/// and for `O_APPEND` writes (**I11**).
pub(crate) const AT_CURSOR: u64 = u64::MAX;

/// One request to the kernel. The pointers stay valid until the op's last cqe (**I1**): they
/// point into memory that the waiting frame owns or has borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Nop,
    Read {
        target: Target,
        buf: *mut u8,
        len: u32,
        offset: u64,
    },
    Write {
        target: Target,
        buf: *const u8,
        len: u32,
        offset: u64,
    },
    /// Into a registered buffer of the same ring.
    ReadFixed {
        target: Target,
        buf: *mut u8,
        len: u32,
        offset: u64,
        index: u16,
    },
    /// From a registered buffer of the same ring.
    WriteFixed {
        target: Target,
        buf: *const u8,
        len: u32,
        offset: u64,
        index: u16,
    },
    ReadVectored {
        fd: RawFd,
        slices: *const libc::iovec,
        count: u32,
        offset: u64,
    },
    WriteVectored {
        fd: RawFd,
        slices: *const libc::iovec,
        count: u32,
        offset: u64,
    },
    Sync {
        fd: RawFd,
        data_only: bool,
    },
    Open {
        dir: RawFd,
        path: *const c_char,
        flags: c_int,
        mode: u32,
    },
    Close {
        fd: RawFd,
    },
    Stat {
        dir: RawFd,
        path: *const c_char,
        flags: c_int,
        mask: u32,
        out: *mut libc::statx,
    },
    /// Linux 6.9.
    SetLen {
        fd: RawFd,
        len: u64,
    },
    Poll {
        fd: RawFd,
        events: u32,
    },
    /// An entry that the caller filled in, minus its `user_data`.
    Raw(*const io_uring::squeue::Entry),
}

impl Op {
    /// What a person calls it: for the report of who waits for what.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Op::Nop => "nop",
            Op::Read { .. } | Op::ReadFixed { .. } | Op::ReadVectored { .. } => "read",
            Op::Write { .. } | Op::WriteFixed { .. } | Op::WriteVectored { .. } => "write",
            Op::Sync { .. } => "fsync",
            Op::Open { .. } => "open",
            Op::Close { .. } => "close",
            Op::Stat { .. } => "statx",
            Op::SetLen { .. } => "ftruncate",
            Op::Poll { .. } => "poll",
            Op::Raw(_) => "a raw entry",
        }
    }
}
