//! The encoding of an [`Op`] as a submission queue entry.

use super::RELEASE_TAG;
use crate::op::{FileOp, FileRange, PathOp, StatCall};
use crate::op::{MemoryKind, SocketMemory, SocketMemoryKind, SocketTransfer};
use crate::ring_use::{flag, opcode};
use crate::syscall::XattrCall;
use crate::{Memory, Op, Transfer, Way};
use io_uring::squeue::Entry;
use io_uring::types::{self, Fd};

/// Returns the entry for an op, without its `user_data`. Inlined, so that where the caller knows
/// which op it is, the fields are written once, directly into the queue.
#[inline(always)]
pub(super) fn entry(op: &Op) -> Entry {
    match *op {
        Op::Nop => opcode::Nop::new().build(),
        Op::Transfer(transfer) => of_transfer(transfer),
        Op::File(op) => of_file(op),
        Op::Path(op) => of_path(op),
        Op::Socket(transfer) => of_socket(transfer),
        Op::Poll { fd, events } => opcode::PollAdd::new(Fd(fd), events).build(),
        Op::Accept { fd, addr, addr_len } => {
            opcode::Accept::new(Fd(fd), addr.cast(), addr_len).flags(libc::SOCK_CLOEXEC).build()
        }
        Op::Connect { fd, addr, addr_len } => {
            opcode::Connect::new(Fd(fd), addr.cast(), addr_len).build()
        }
        Op::FutexWait { word, value, mask, is_shared } => {
            let flags = futex_flags(is_shared);
            opcode::FutexWait::new(word, value.into(), mask.into(), flags).build()
        }
        Op::Syscall(_) => unreachable!("the pool performs what no ring has an op for"),
        // SAFETY: I1. The entry lies in the frame that waits for this op.
        Op::Raw(entry) => unsafe { (*entry).clone() },
    }
}

/// Returns the entry for a read or a write of a file.
#[inline(always)]
pub(super) fn of_transfer(transfer: Transfer) -> Entry {
    let Transfer { way, kind, file, offset, .. } = transfer;
    let fd = Fd(file.number());
    let entry = match (way, transfer.memory()) {
        (Way::Read, Memory::Bytes { start, len }) if kind == MemoryKind::Registered => {
            opcode::ReadFixed::new(fd, start, len, transfer.buffer()).offset(offset).build()
        }
        (Way::Read, Memory::Bytes { start, len }) => {
            opcode::Read::new(fd, start, len).offset(offset).build()
        }
        (Way::Write, Memory::Bytes { start, len }) if kind == MemoryKind::Registered => {
            opcode::WriteFixed::new(fd, start, len, transfer.buffer()).offset(offset).build()
        }
        (Way::Write, Memory::Bytes { start, len }) => {
            opcode::Write::new(fd, start, len).offset(offset).build()
        }
        (Way::Read, Memory::Slices { slices, count }) => {
            let readv = opcode::Readv::new(fd, slices, count);
            readv.offset(offset).rw_flags(transfer.flags()).build()
        }
        (Way::Write, Memory::Slices { slices, count }) => {
            let writev = opcode::Writev::new(fd, slices, count);
            writev.offset(offset).rw_flags(transfer.flags()).build()
        }
    };
    if file.is_ordinary() {
        entry
    } else if file.is_punted() {
        entry.flags(flag::ASYNC)
    } else {
        entry.flags(flag::FIXED_FILE)
    }
}

/// Returns the entry for a receive or a send.
#[inline(always)]
pub(super) fn of_socket(transfer: SocketTransfer) -> Entry {
    let SocketTransfer { way, kind, fd, flags, .. } = transfer;
    match (way, transfer.memory()) {
        (Way::Read, SocketMemory::Bytes { start, len }) => {
            opcode::Recv::new(Fd(fd), start, len).flags(flags).build()
        }
        (Way::Write, SocketMemory::Bytes { start, len }) if kind == SocketMemoryKind::ZeroCopy => {
            opcode::SendZc::new(Fd(fd), start, len).flags(flags).build()
        }
        (Way::Write, SocketMemory::Bytes { start, len }) => {
            opcode::Send::new(Fd(fd), start, len).flags(flags).build()
        }
        (Way::Read, SocketMemory::Message(message)) => {
            opcode::RecvMsg::new(Fd(fd), message).flags(flags as u32).build()
        }
        (Way::Write, SocketMemory::Message(message)) => {
            opcode::SendMsg::new(Fd(fd), message).flags(flags as u32).build()
        }
    }
}

fn of_file(op: FileOp) -> Entry {
    // SAFETY: I1. The range lies in the frame that waits for this op.
    let of = |range: *const FileRange| unsafe { *range };
    match op {
        FileOp::Sync { fd, data_only } => {
            let datasync = types::FsyncFlags::DATASYNC;
            let flags = if data_only { datasync } else { types::FsyncFlags::empty() };
            opcode::Fsync::new(Fd(fd)).flags(flags).build()
        }
        FileOp::Close { fd } => opcode::Close::new(Fd(fd)).build(),
        FileOp::SetLen { fd, len } => opcode::Ftruncate::new(Fd(fd), len).build(),
        FileOp::Allocate { fd, mode, range } => {
            let FileRange { offset, len } = of(range);
            opcode::Fallocate::new(Fd(fd), len).mode(mode).offset(offset).build()
        }
        FileOp::Advise { fd, advice, range } => {
            let FileRange { offset, len } = of(range);
            opcode::Fadvise::new(Fd(fd), len as i64, advice).offset(offset).build()
        }
        FileOp::SyncRange { fd, flags, range } => {
            let FileRange { offset, len } = of(range);
            opcode::SyncFileRange::new(Fd(fd), len as u32).flags(flags).offset(offset).build()
        }
        FileOp::GetXattr(call) => get_xattr(call),
        FileOp::SetXattr(call) => set_xattr(call),
    }
}

fn of_path(op: PathOp) -> Entry {
    match op {
        PathOp::Open { dir, path, flags, mode } => {
            opcode::OpenAt::new(Fd(dir), path).flags(flags).mode(mode).build()
        }
        PathOp::OpenHow { dir, path, how } => {
            opcode::OpenAt2::new(Fd(dir), path, how.cast()).build()
        }
        PathOp::Stat { dir, path, call } => {
            // SAFETY: I1. The call lies in the frame that waits for this op.
            let StatCall { flags, mask, out } = unsafe { *call };
            opcode::Statx::new(Fd(dir), path, out.cast()).flags(flags).mask(mask).build()
        }
        PathOp::Unlink { dir, path, flags } => {
            opcode::UnlinkAt::new(Fd(dir), path).flags(flags).build()
        }
        PathOp::Rename { dir, path, to } => {
            // SAFETY: I1. The name lies in the frame that waits for this op.
            let to = unsafe { *to };
            let rename = opcode::RenameAt::new(Fd(dir), path, Fd(to.dir), to.path);
            rename.flags(to.flags as u32).build()
        }
        PathOp::MakeDir { dir, path, mode } => {
            opcode::MkDirAt::new(Fd(dir), path).mode(mode).build()
        }
        PathOp::Symlink { target, dir, path } => {
            opcode::SymlinkAt::new(Fd(dir), target, path).build()
        }
        PathOp::Link { dir, path, to } => {
            // SAFETY: I1. The name lies in the frame that waits for this op.
            let to = unsafe { *to };
            opcode::LinkAt::new(Fd(dir), path, Fd(to.dir), to.path).flags(to.flags).build()
        }
    }
}

/// Returns the entries of an op whose end waits until the kernel has released its file: the op, and
/// a no-op that the kernel starts once the op's request is freed.
///
/// The link is a hard one: the no-op runs also after an op that has failed.
#[inline(always)]
pub(super) fn with_release(op: &Op, user_data: u64) -> [Entry; 2] {
    let release = opcode::Nop::new().build().user_data(user_data | RELEASE_TAG);
    [entry(op).flags(flag::IO_HARDLINK).user_data(user_data), release]
}

/// The flags of `futex2(2)` for a futex of 32 bits.
fn futex_flags(is_shared: bool) -> u32 {
    const SIZE_U32: u32 = 0x02;
    const PRIVATE: u32 = libc::FUTEX_PRIVATE_FLAG as u32;
    if is_shared { SIZE_U32 } else { SIZE_U32 | PRIVATE }
}

#[cold]
fn get_xattr(call: *const XattrCall) -> Entry {
    // SAFETY: I1. The call lies in the frame that waits for this op.
    let XattrCall { fd, path, name, value, len, .. } = unsafe { *call };
    if path.is_null() {
        opcode::FGetXattr::new(Fd(fd), name, value.cast(), len).build()
    } else {
        opcode::GetXattr::new(name, value.cast(), path, len).build()
    }
}

#[cold]
fn set_xattr(call: *const XattrCall) -> Entry {
    // SAFETY: I1. The call lies in the frame that waits for this op.
    let XattrCall { fd, path, name, value, len, flags } = unsafe { *call };
    let value = value.cast_const().cast();
    if path.is_null() {
        opcode::FSetXattr::new(Fd(fd), name, value, len).flags(flags).build()
    } else {
        opcode::SetXattr::new(name, value, path, len).flags(flags).build()
    }
}
