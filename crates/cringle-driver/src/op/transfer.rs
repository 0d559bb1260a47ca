//! The reads and writes of files.

use super::{AT_CURSOR, Op, Target};
use std::ffi::c_int;
use std::os::fd::RawFd;

/// Which way the bytes of a transfer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Read,
    Write,
}

/// The memory of a transfer. A write does not change it.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    Bytes { start: *mut u8, len: u32 },
    Slices { slices: *const libc::iovec, count: u32 },
}

/// How a transfer names its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    Bytes,
    /// Bytes of a registered buffer of the same driver: always at an offset.
    Registered,
    Slices,
}

/// A read or a write of a file.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub way: Way,
    pub(crate) kind: MemoryKind,
    pub file: Target,
    /// [`AT_CURSOR`] for none.
    pub offset: u64,
    /// The first byte, or the first slice.
    start: *mut u8,
    /// The number of bytes, or of slices.
    len: u32,
    /// The index of a registered buffer, or the `RWF_…` of slices.
    detail: u16,
}

impl Transfer {
    /// The op of this transfer, whose way and kind the caller has matched. It repeats them, because
    /// the compiler then builds what follows for that op alone.
    #[inline(always)]
    pub(crate) fn known(self, way: Way, kind: MemoryKind) -> Op {
        debug_assert_eq!((self.way, self.kind), (way, kind));
        Op::Transfer(Transfer { way, kind, ..self })
    }

    /// The memory. A registered buffer is plain memory here.
    #[inline]
    pub fn memory(&self) -> Memory {
        match self.kind {
            MemoryKind::Bytes | MemoryKind::Registered => {
                Memory::Bytes { start: self.start, len: self.len }
            }
            MemoryKind::Slices => Memory::Slices { slices: self.start.cast(), count: self.len },
        }
    }

    /// The same transfer with this memory.
    pub fn with_memory(self, memory: Memory) -> Transfer {
        let (kind, start, len) = match memory {
            Memory::Bytes { start, len } => (MemoryKind::Bytes, start, len),
            Memory::Slices { slices, count } => {
                (MemoryKind::Slices, slices.cast_mut().cast(), count)
            }
        };
        Transfer { kind, start, len, detail: self.flags() as u16, ..self }
    }

    /// Removes the first bytes, which were transferred. Returns whether any are left.
    pub(crate) fn skip(&mut self, count: u32) -> bool {
        (self.start, self.len) = (self.start.wrapping_add(count as usize), self.len - count);
        self.len > 0
    }

    /// The index of the registered buffer.
    #[inline]
    pub(crate) fn buffer(&self) -> u16 {
        debug_assert_eq!(self.kind, MemoryKind::Registered);
        self.detail
    }

    /// `RWF_…`, of a transfer of slices.
    #[inline]
    pub fn flags(&self) -> c_int {
        if self.kind == MemoryKind::Slices { self.detail.into() } else { 0 }
    }
}

impl Op {
    #[inline]
    pub fn read(file: Target, start: *mut u8, len: u32, offset: u64) -> Op {
        let kind = MemoryKind::Bytes;
        Op::Transfer(Transfer { way: Way::Read, kind, file, offset, start, len, detail: 0 })
    }

    #[inline]
    pub fn write(file: Target, start: *const u8, len: u32, offset: u64) -> Op {
        let (kind, start) = (MemoryKind::Bytes, start.cast_mut());
        Op::Transfer(Transfer { way: Way::Write, kind, file, offset, start, len, detail: 0 })
    }

    /// A read into a registered buffer of the same driver, or a write from one.
    #[inline]
    pub fn registered(
        way: Way,
        file: Target,
        start: *mut u8,
        len: u32,
        offset: u64,
        buffer: u16,
    ) -> Op {
        let kind = MemoryKind::Registered;
        Op::Transfer(Transfer { way, kind, file, offset, start, len, detail: buffer })
    }

    /// A read or a write of slices. The flags are `RWF_…`; none at the cursor.
    #[inline]
    pub fn slices(
        way: Way,
        fd: RawFd,
        slices: *const libc::iovec,
        len: u32,
        offset: u64,
        flags: c_int,
    ) -> Op {
        debug_assert_eq!(c_int::from(flags as u16), flags, "the kernel's flags have few bits");
        let (kind, start) = (MemoryKind::Slices, slices.cast_mut().cast());
        let (file, detail) = (Target::fd(fd), flags as u16);
        Op::Transfer(Transfer { way, kind, file, offset, start, len, detail })
    }

    /// The op as a transfer of a file, if it is one.
    #[inline]
    pub fn transfer(&self) -> Option<Transfer> {
        if let Op::Transfer(transfer) = *self { Some(transfer) } else { None }
    }

    /// Whether the op has no offset: the file is a stream, whose other end decides when the op
    /// ends, or the op appends.
    #[cfg_attr(not(debug_assertions), allow(dead_code, reason = "for an assertion"))]
    pub fn is_stream_transfer(&self) -> bool {
        matches!(self, Op::Transfer(Transfer { offset: AT_CURSOR, .. }))
    }

    /// Whether the op writes to a file.
    #[inline(always)]
    pub fn is_write(&self) -> bool {
        matches!(self, Op::Transfer(Transfer { way: Way::Write, .. }))
    }

    /// Whether the op reads from a file.
    #[inline]
    pub fn is_read(&self) -> bool {
        matches!(self, Op::Transfer(Transfer { way: Way::Read, .. }))
    }

    /// Whether the memory is a registered buffer.
    pub fn is_registered(&self) -> bool {
        matches!(self, Op::Transfer(Transfer { kind: MemoryKind::Registered, .. }))
    }

    /// Whether the op reads or writes no bytes. (Slices may have none, too.)
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self, Op::Transfer(it) if it.len == 0 && it.kind != MemoryKind::Slices)
    }

    /// The same transfer on a file that has a descriptor, with plain memory.
    pub fn on_descriptor(self, fd: RawFd) -> Op {
        let Op::Transfer(transfer) = self else { return self };
        Op::Transfer(Transfer { file: Target::fd(fd), ..transfer.with_memory(transfer.memory()) })
    }
}

/// The marks of a transfer's file.
impl Op {
    /// Whether the ring whose completions are polled performs the op, if there is one.
    #[inline]
    pub fn is_polled(&self) -> bool {
        matches!(self, Op::Transfer(transfer) if transfer.file.is_polled())
    }

    /// The same op without the mark of [`Target::polled`].
    pub fn unpolled(self) -> Op {
        self.with_target(Target::unpolled)
    }

    /// The same op with the mark of [`Target::exact`].
    #[inline]
    pub fn exact(self) -> Op {
        self.with_target(Target::exact)
    }

    #[inline]
    fn with_target(mut self, change: impl FnOnce(Target) -> Target) -> Op {
        if let Op::Transfer(transfer) = &mut self {
            transfer.file = change(transfer.file);
        }
        self
    }

    /// The length of an op that has the mark of [`Target::exact`].
    #[inline]
    pub fn exact_len(&self) -> Option<u32> {
        match *self {
            Op::Transfer(Transfer { file, len, .. }) if file.is_exact() => Some(len),
            _ => None,
        }
    }
}
