//! The reads and writes of files as one kind of op.

use super::{AT_CURSOR, Op, Target};
use std::ffi::c_int;

/// Which way the bytes of a transfer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
}

/// The memory of a transfer. A write does not change it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory {
    Bytes { start: *mut u8, len: u32 },
    Slices { slices: *const libc::iovec, count: u32 },
}

/// A read or a write of a file, whichever op says so. A registered buffer is plain memory here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) way: Way,
    pub(crate) file: Target,
    pub(crate) memory: Memory,
    pub(crate) offset: u64,
    /// `RWF_…`, of a transfer of slices.
    pub(crate) flags: c_int,
}

impl Op {
    /// The op as a transfer, if it is one.
    #[inline]
    pub(crate) fn transfer(&self) -> Option<Transfer> {
        let bytes = |way, file, start, len, offset| {
            Some(Transfer { way, file, memory: Memory::Bytes { start, len }, offset, flags: 0 })
        };
        let vectored = |way, fd, slices, count, offset, flags| {
            let (file, memory) = (Target::fd(fd), Memory::Slices { slices, count });
            Some(Transfer { way, file, memory, offset, flags })
        };
        match *self {
            Op::Read { target, buf, len, offset }
            | Op::ReadFixed { target, buf, len, offset, .. } => {
                bytes(Way::Read, target, buf, len, offset)
            }
            Op::Write { target, buf, len, offset }
            | Op::WriteFixed { target, buf, len, offset, .. } => {
                bytes(Way::Write, target, buf.cast_mut(), len, offset)
            }
            Op::ReadVectored { fd, slices, count, offset, flags } => {
                vectored(Way::Read, fd, slices, count, offset, flags)
            }
            Op::WriteVectored { fd, slices, count, offset, flags } => {
                vectored(Way::Write, fd, slices, count, offset, flags)
            }
            _ => None,
        }
    }

    /// Whether the op has no offset: the file is a stream, whose other end decides when the op
    /// ends, or the op appends. A registered buffer is always used at an offset.
    pub(crate) fn is_stream_transfer(&self) -> bool {
        matches!(
            self,
            Op::Read { offset: AT_CURSOR, .. }
                | Op::Write { offset: AT_CURSOR, .. }
                | Op::ReadVectored { offset: AT_CURSOR, .. }
                | Op::WriteVectored { offset: AT_CURSOR, .. }
        )
    }

    /// Whether the op writes to a file.
    #[inline(always)]
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::WriteFixed { .. } | Op::WriteVectored { .. })
    }

    /// Whether the op reads from a file.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Op::Read { .. } | Op::ReadFixed { .. } | Op::ReadVectored { .. })
    }
}

impl Transfer {
    /// The op of this transfer, with plain memory.
    pub(crate) fn into_op(self) -> Op {
        let Transfer { way, file: target, memory, offset, flags } = self;
        let fd = target.number();
        match (way, memory) {
            (Way::Read, Memory::Bytes { start: buf, len }) => Op::Read { target, buf, len, offset },
            (Way::Write, Memory::Bytes { start: buf, len }) => {
                Op::Write { target, buf, len, offset }
            }
            (Way::Read, Memory::Slices { slices, count }) => {
                Op::ReadVectored { fd, slices, count, offset, flags }
            }
            (Way::Write, Memory::Slices { slices, count }) => {
                Op::WriteVectored { fd, slices, count, offset, flags }
            }
        }
    }
}
