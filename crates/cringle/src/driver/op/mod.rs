//! The ops: what a fiber asks of the kernel, as data.
//!
//! [`table`] says where a new op is added.

mod description;
mod name;
mod table;
mod target;
mod transfer;

use super::syscall::{Syscall, XattrCall};
pub(crate) use description::OpDescription;
pub(crate) use name::{OP_DONE_NAMES, OP_NAMES, OP_PHRASES, OP_PLACES, OpName};
use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;
pub(crate) use target::Target;
pub(crate) use transfer::{Memory, Transfer, Way};

/// The offset that means "at the file's own cursor": only for files without one (pipes, terminals)
/// and for `O_APPEND` writes (**I11**).
pub(crate) const AT_CURSOR: u64 = u64::MAX;

/// One request to the kernel. Its pointers stay valid until the op's last cqe (**I1**): they point
/// into memory that the waiting frame owns or borrows.
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
    /// `Read` into a registered buffer of the same driver.
    ReadFixed {
        target: Target,
        buf: *mut u8,
        len: u32,
        offset: u64,
        index: u16,
    },
    /// `Write` from a registered buffer of the same driver.
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
        /// `RWF_…`; none at the cursor.
        flags: c_int,
    },
    WriteVectored {
        fd: RawFd,
        slices: *const libc::iovec,
        count: u32,
        offset: u64,
        flags: c_int,
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
    /// `openat2`.
    OpenHow {
        dir: RawFd,
        path: *const c_char,
        how: *const libc::open_how,
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
    /// `ftruncate`; on a ring since Linux 6.9.
    SetLen {
        fd: RawFd,
        len: u64,
    },
    Poll {
        fd: RawFd,
        events: u32,
    },
    Unlink {
        dir: RawFd,
        path: *const c_char,
        flags: c_int,
    },
    Rename {
        from_dir: RawFd,
        from: *const c_char,
        to_dir: RawFd,
        to: *const c_char,
        flags: u32,
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
        from_dir: RawFd,
        from: *const c_char,
        to_dir: RawFd,
        to: *const c_char,
        flags: c_int,
    },
    Allocate {
        fd: RawFd,
        mode: c_int,
        offset: u64,
        len: u64,
    },
    /// `len` has 32 bits on a ring.
    Advise {
        fd: RawFd,
        advice: c_int,
        offset: u64,
        len: u64,
    },
    /// `len` has 32 bits on a ring.
    SyncRange {
        fd: RawFd,
        flags: u32,
        offset: u64,
        len: u64,
    },
    GetXattr(*const XattrCall),
    SetXattr(*const XattrCall),
    /// Receives from a socket.
    Recv {
        fd: RawFd,
        buf: *mut u8,
        len: u32,
        /// `MSG_…`.
        flags: c_int,
    },
    /// Sends to a connected socket.
    Send {
        fd: RawFd,
        buf: *const u8,
        len: u32,
        flags: c_int,
    },
    /// `Send` without a copy (Linux 6.0). The first cqe has the result; the kernel reads the memory
    /// until the second, which ends the op.
    SendZc {
        fd: RawFd,
        buf: *const u8,
        len: u32,
        flags: c_int,
    },
    RecvMsg {
        fd: RawFd,
        message: *mut libc::msghdr,
        flags: c_int,
    },
    SendMsg {
        fd: RawFd,
        message: *const libc::msghdr,
        flags: c_int,
    },
    /// Accepts a connection as a close-on-exec descriptor. The address may be null.
    Accept {
        fd: RawFd,
        addr: *mut libc::sockaddr_storage,
        addr_len: *mut libc::socklen_t,
    },
    Connect {
        fd: RawFd,
        addr: *const libc::sockaddr_storage,
        addr_len: libc::socklen_t,
    },
    /// Waits until a wake-up of a futex, while it has this value (Linux 6.7).
    #[cfg_attr(not(feature = "interpose"), expect(dead_code))]
    FutexWait {
        word: *const u32,
        value: u32,
        mask: u32,
        /// Whether other processes may wake it.
        is_shared: bool,
    },
    /// A call that no ring has an op for; a thread of the pool makes it.
    Syscall(Syscall),
    /// An entry that the caller filled in, except its `user_data`.
    #[cfg_attr(not(feature = "raw"), expect(dead_code))]
    Raw(*const io_uring::squeue::Entry),
}

impl Op {
    /// Whether the ring whose completions are polled performs the op, if there is one.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        matches!(self, Op::Read { target, .. } | Op::Write { target, .. } if target.is_polled())
    }

    /// The same op without the mark of [`Target::polled`].
    pub(crate) fn unpolled(self) -> Op {
        self.with_target(Target::unpolled)
    }

    /// The same op with the mark of [`Target::exact`].
    #[inline]
    pub(crate) fn exact(self) -> Op {
        self.with_target(Target::exact)
    }

    #[inline]
    fn with_target(mut self, change: impl FnOnce(Target) -> Target) -> Op {
        if let Op::Read { target, .. } | Op::Write { target, .. } = &mut self {
            *target = change(*target);
        }
        self
    }

    /// The length of an op that has the mark of [`Target::exact`].
    #[inline]
    pub(crate) fn exact_len(&self) -> Option<u32> {
        match *self {
            Op::Read { target, len, .. } | Op::Write { target, len, .. } if target.is_exact() => {
                Some(len)
            }
            _ => None,
        }
    }

    /// The same transfer on a file that has a descriptor, with plain memory.
    pub(crate) fn on_descriptor(self, fd: RawFd) -> Op {
        let on_fd = |transfer| Transfer { file: Target::fd(fd), ..transfer }.into_op();
        self.transfer().map_or(self, on_fd)
    }
}

const _: () = assert!(size_of::<Op>() == 32, "an op is copied on every call: keep it small");
