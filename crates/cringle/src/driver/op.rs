//! What can be asked of the kernel. A new operation is added here, and in the one `match` of
//! each driver: the compiler names the places.

use super::about::{About, OpName};
use super::plain::{Plain, XattrCall};
use super::uring::{Feature, Features};
use std::ffi::{c_char, c_int};
use std::os::fd::RawFd;

/// A file as an op names it: by descriptor, or by its index among the ring's registered files.
///
/// One number, written by one store: a processor that reads two narrow stores back as a wide one waits
/// until both have left its buffer, and ops are read back soon after they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target(u64);

impl Target {
    const FIXED: u64 = 1 << 32;
    const POLLED: u64 = 1 << 33;
    const OFF_RING: u64 = 1 << 34;
    const PUNTED: u64 = 1 << 35;

    #[inline]
    pub(crate) fn fd(fd: RawFd) -> Target {
        Target(u64::from(fd as u32))
    }

    #[inline]
    pub(crate) fn fixed(index: u32) -> Target {
        Target(Target::FIXED | u64::from(index))
    }

    #[inline]
    pub(crate) fn is_fixed(self) -> bool {
        self.0 & Target::FIXED != 0
    }

    /// The same, with completions to be looked for at the device where the driver can.
    pub(crate) fn polled(self) -> Target {
        Target(self.0 | Target::POLLED)
    }

    /// The same, with completions as usual.
    pub(crate) fn unpolled(self) -> Target {
        Target(self.0 & !Target::POLLED)
    }

    #[inline]
    fn is_polled(self) -> bool {
        self.0 & Target::POLLED != 0
    }

    /// The same, marked as a file that a ring would read and write at the wrong offsets.
    fn off_ring(self) -> Target {
        Target(self.0 | Target::OFF_RING)
    }

    fn is_off_ring(self) -> bool {
        self.0 & Target::OFF_RING != 0
    }

    /// The same, for a call that a ring hands to a kernel thread at once.
    pub(crate) fn punted(self) -> Target {
        Target(self.0 | Target::PUNTED)
    }

    pub(crate) fn is_punted(self) -> bool {
        self.0 & Target::PUNTED != 0
    }

    /// Whether it is a descriptor, and a call on it is like any other.
    #[inline]
    pub(crate) fn is_ordinary(self) -> bool {
        self.0 & (Target::FIXED | Target::PUNTED) == 0
    }

    /// The descriptor or the index, as the kernel takes it.
    #[inline]
    pub(crate) fn number(self) -> i32 {
        self.0 as u32 as i32
    }

    /// The descriptor, if it is one.
    #[inline]
    pub(crate) fn as_fd(self) -> Option<RawFd> {
        (!self.is_fixed()).then(|| self.number())
    }
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
    /// Linux 6.9.
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
    /// On the ring, `len` has 32 bits.
    Advise {
        fd: RawFd,
        advice: c_int,
        offset: u64,
        len: u64,
    },
    /// On the ring, `len` has 32 bits.
    SyncRange {
        fd: RawFd,
        flags: u32,
        offset: u64,
        len: u64,
    },
    GetXattr(*const XattrCall),
    SetXattr(*const XattrCall),
    /// From a socket.
    Recv {
        fd: RawFd,
        buf: *mut u8,
        len: u32,
        /// `MSG_…`.
        flags: c_int,
    },
    /// To a connected socket.
    Send {
        fd: RawFd,
        buf: *const u8,
        len: u32,
        flags: c_int,
    },
    /// The same without a copy (Linux 6.0): the memory is the kernel's until the second entry of the
    /// completion queue, which ends the op.
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
    /// A connection of a listener; its descriptor is closed on `exec`. The address may be null.
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
    /// What no ring can do: on a thread of the pool.
    Plain(Plain),
    /// An entry that the caller filled in, minus its `user_data`.
    #[cfg_attr(not(feature = "raw"), expect(dead_code))]
    Raw(*const io_uring::squeue::Entry),
}

impl Op {
    /// Whether its completion is to be looked for at the device.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        matches!(self, Op::Read { target, .. } | Op::Write { target, .. } if target.is_polled())
    }

    /// The same op with its completion as usual.
    pub(crate) fn unpolled(mut self) -> Op {
        if let Op::Read { target, .. } | Op::Write { target, .. } = &mut self {
            *target = target.unpolled();
        }
        self
    }

    /// Whether no ring may perform it.
    pub(crate) fn is_off_ring(&self) -> bool {
        matches!(
            self,
            Op::Read { target, .. }
            | Op::Write { target, .. }
            | Op::ReadFixed { target, .. }
            | Op::WriteFixed { target, .. } if target.is_off_ring()
        )
    }

    /// The same op, marked as one that no ring may perform.
    pub(crate) fn off_ring(mut self) -> Op {
        if let Op::Read { target, .. }
        | Op::Write { target, .. }
        | Op::ReadFixed { target, .. }
        | Op::WriteFixed { target, .. } = &mut self
        {
            *target = target.off_ring();
        }
        self
    }

    /// Whether it moves bytes from or to a place in a file: what a disk or the page cache answers.
    #[inline]
    pub(crate) fn is_positioned_transfer(&self) -> bool {
        match *self {
            Op::Read { offset, .. }
            | Op::Write { offset, .. }
            | Op::ReadFixed { offset, .. }
            | Op::WriteFixed { offset, .. }
            | Op::ReadVectored { offset, .. }
            | Op::WriteVectored { offset, .. } => offset != AT_CURSOR,
            _ => false,
        }
    }

    /// Whether somebody else decides when it ends: a peer, or whoever has the other end. Such an op does
    /// not count against the limit of ops in flight, or those that wait would keep out what ends their
    /// wait. (An append counts among them: the kernel is told of it by the same offset.)
    #[inline(always)]
    pub(crate) fn waits_for_peer(&self) -> bool {
        match *self {
            Op::Read { offset, .. }
            | Op::Write { offset, .. }
            | Op::ReadVectored { offset, .. }
            | Op::WriteVectored { offset, .. } => offset == AT_CURSOR,
            Op::Poll { .. }
            | Op::Recv { .. }
            | Op::Send { .. }
            | Op::SendZc { .. }
            | Op::RecvMsg { .. }
            | Op::SendMsg { .. }
            | Op::Accept { .. }
            | Op::Connect { .. } => true,
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn name(&self) -> OpName {
        match self {
            Op::Nop => OpName::Nop,
            Op::Read { .. } | Op::ReadFixed { .. } | Op::ReadVectored { .. } => OpName::Read,
            Op::Write { .. } | Op::WriteFixed { .. } | Op::WriteVectored { .. } => OpName::Write,
            Op::Sync { .. } => OpName::Sync,
            Op::Open { .. } | Op::OpenHow { .. } => OpName::Open,
            Op::Close { .. } => OpName::Close,
            Op::Stat { .. } => OpName::Stat,
            Op::SetLen { .. } => OpName::SetLen,
            Op::Poll { .. } => OpName::Poll,
            Op::Unlink { .. } => OpName::Unlink,
            Op::Rename { .. } => OpName::Rename,
            Op::MakeDir { .. } => OpName::MakeDir,
            Op::Symlink { .. } => OpName::Symlink,
            Op::Link { .. } => OpName::Link,
            Op::Allocate { .. } => OpName::Allocate,
            Op::Advise { .. } => OpName::Advise,
            Op::SyncRange { .. } => OpName::SyncRange,
            Op::GetXattr(_) => OpName::GetXattr,
            Op::SetXattr(_) => OpName::SetXattr,
            Op::Recv { .. } | Op::RecvMsg { .. } => OpName::Receive,
            Op::Send { .. } | Op::SendMsg { .. } => OpName::Send,
            Op::SendZc { .. } => OpName::SendZc,
            Op::Accept { .. } => OpName::Accept,
            Op::Connect { .. } => OpName::Connect,
            Op::Plain(plain) => plain.name(),
            Op::Raw(_) => OpName::Raw,
        }
    }

    /// The file that it is about: a descriptor; −1 for none; the others are [registered](About::fixed).
    #[inline(always)]
    pub(crate) fn file(&self) -> i32 {
        match *self {
            Op::Read { target, .. }
            | Op::Write { target, .. }
            | Op::ReadFixed { target, .. }
            | Op::WriteFixed { target, .. } => match target.is_fixed() {
                false => target.number(),
                true => -2 - target.number(),
            },
            Op::Recv { fd, .. } | Op::Send { fd, .. } => fd,
            ref other => other.rare_file(),
        }
    }

    fn rare_file(&self) -> i32 {
        match *self {
            Op::ReadVectored { fd, .. }
            | Op::WriteVectored { fd, .. }
            | Op::Sync { fd, .. }
            | Op::Close { fd }
            | Op::SetLen { fd, .. }
            | Op::Poll { fd, .. }
            | Op::Allocate { fd, .. }
            | Op::Advise { fd, .. }
            | Op::SyncRange { fd, .. }
            | Op::SendZc { fd, .. }
            | Op::RecvMsg { fd, .. }
            | Op::SendMsg { fd, .. }
            | Op::Accept { fd, .. }
            | Op::Connect { fd, .. } => fd,
            Op::Plain(plain) => plain.file(),
            _ => -1,
        }
    }

    /// Where in the file, or the address of the path that it is about: what that is tells the name.
    #[inline(always)]
    pub(crate) fn place(&self) -> u64 {
        match *self {
            Op::Read { offset, .. }
            | Op::Write { offset, .. }
            | Op::ReadFixed { offset, .. }
            | Op::WriteFixed { offset, .. } => offset,
            Op::Recv { .. } | Op::Send { .. } => 0,
            ref other => other.rare_place(),
        }
    }

    fn rare_place(&self) -> u64 {
        match *self {
            Op::ReadVectored { offset, .. }
            | Op::WriteVectored { offset, .. }
            | Op::Allocate { offset, .. }
            | Op::Advise { offset, .. }
            | Op::SyncRange { offset, .. } => offset,
            Op::SetLen { len, .. } => len,
            Op::Open { path, .. }
            | Op::OpenHow { path, .. }
            | Op::Stat { path, .. }
            | Op::Unlink { path, .. }
            | Op::Rename { from: path, .. }
            | Op::MakeDir { path, .. }
            | Op::Symlink { path, .. }
            | Op::Link { from: path, .. } => path as u64,
            Op::Connect { addr, .. } => addr as u64,
            Op::Plain(plain) => plain.path() as u64,
            _ => 0,
        }
    }

    pub(crate) fn about(&self) -> About {
        About { name: self.name(), file: self.file(), place: Some(self.place()) }
    }

    /// Whether a ring with these features performs it.
    pub(crate) fn fits_ring(&self, features: Features) -> bool {
        match *self {
            Op::Plain(_) => false,
            Op::SetLen { .. } => features.has(Feature::Ftruncate),
            Op::SendZc { .. } => features.has(Feature::SendZc),
            Op::Advise { len, .. } | Op::SyncRange { len, .. } => {
                features.has(Feature::FileSystem) && u32::try_from(len).is_ok()
            }
            Op::OpenHow { .. }
            | Op::Unlink { .. }
            | Op::Rename { .. }
            | Op::MakeDir { .. }
            | Op::Symlink { .. }
            | Op::Link { .. }
            | Op::Allocate { .. }
            | Op::GetXattr(_)
            | Op::SetXattr(_) => features.has(Feature::FileSystem),
            _ => true,
        }
    }
}

const _: () = assert!(size_of::<Op>() == 32, "an op is copied on every call: keep it small");
