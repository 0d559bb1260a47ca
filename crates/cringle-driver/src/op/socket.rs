//! The receives and sends of sockets.

use super::{Op, Way};
use std::ffi::c_int;
use std::os::fd::RawFd;

/// The memory of a receive or a send. A send does not change it.
#[derive(Clone, Copy, Debug)]
pub enum SocketMemory {
    Bytes { start: *mut u8, len: u32 },
    Message(*mut libc::msghdr),
}

/// How a receive or a send names its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketMemoryKind {
    Bytes,
    /// Bytes that are sent without a copy (Linux 6.0). The first cqe has the result; the kernel
    /// reads the memory until the second, which ends the op.
    ZeroCopy,
    Message,
}

/// A receive from a socket, or a send to a connected one.
#[derive(Clone, Copy, Debug)]
pub struct SocketTransfer {
    pub way: Way,
    pub(crate) kind: SocketMemoryKind,
    pub fd: RawFd,
    /// `MSG_…`.
    pub flags: c_int,
    /// The first byte, or the message.
    start: *mut u8,
    /// The number of bytes.
    len: u32,
}

impl SocketTransfer {
    fn message(way: Way, fd: RawFd, message: *mut libc::msghdr, flags: c_int) -> SocketTransfer {
        let (kind, start) = (SocketMemoryKind::Message, message.cast());
        SocketTransfer { way, kind, fd, flags, start, len: 0 }
    }

    #[inline]
    pub fn memory(&self) -> SocketMemory {
        match self.kind {
            SocketMemoryKind::Bytes | SocketMemoryKind::ZeroCopy => {
                SocketMemory::Bytes { start: self.start, len: self.len }
            }
            SocketMemoryKind::Message => SocketMemory::Message(self.start.cast()),
        }
    }

    /// The same transfer with other memory of its kind.
    pub fn with_memory(self, memory: SocketMemory) -> SocketTransfer {
        match memory {
            SocketMemory::Bytes { start, len } => SocketTransfer { start, len, ..self },
            SocketMemory::Message(message) => SocketTransfer { start: message.cast(), ..self },
        }
    }

    /// Removes the first bytes, which were transferred. Returns whether any are left.
    pub(crate) fn skip(&mut self, count: u32) -> bool {
        (self.start, self.len) = (self.start.wrapping_add(count as usize), self.len - count);
        self.len > 0
    }
}

impl Op {
    #[inline(always)]
    pub fn recv(fd: RawFd, start: *mut u8, len: u32, flags: c_int) -> Op {
        let kind = SocketMemoryKind::Bytes;
        Op::Socket(SocketTransfer { way: Way::Read, kind, fd, flags, start, len })
    }

    #[inline(always)]
    pub fn send(fd: RawFd, start: *const u8, len: u32, flags: c_int) -> Op {
        let (kind, start) = (SocketMemoryKind::Bytes, start.cast_mut());
        Op::Socket(SocketTransfer { way: Way::Write, kind, fd, flags, start, len })
    }

    /// [`send`](Self::send) without a copy.
    pub fn send_zc(fd: RawFd, start: *const u8, len: u32, flags: c_int) -> Op {
        let (kind, start) = (SocketMemoryKind::ZeroCopy, start.cast_mut());
        Op::Socket(SocketTransfer { way: Way::Write, kind, fd, flags, start, len })
    }

    pub fn recv_msg(fd: RawFd, message: *mut libc::msghdr, flags: c_int) -> Op {
        Op::Socket(SocketTransfer::message(Way::Read, fd, message, flags))
    }

    pub fn send_msg(fd: RawFd, message: *const libc::msghdr, flags: c_int) -> Op {
        Op::Socket(SocketTransfer::message(Way::Write, fd, message.cast_mut(), flags))
    }
}
