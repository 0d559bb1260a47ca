//! The encoding of an [`Op`] as a submission queue entry.

use super::RELEASE_TAG;
use crate::driver::syscall::XattrCall;
use crate::driver::{Op, Target};
use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};

/// Returns the entry for an op, without its `user_data`. Inlined, so that where the caller knows
/// which op it is, the fields are written once, directly into the queue.
#[inline(always)]
pub(super) fn entry(op: &Op) -> Entry {
    use types::Fd;
    match *op {
        Op::Nop => opcode::Nop::new().build(),
        Op::Read { target, buf, len, offset } => {
            on(target, |fd| opcode::Read::new(fd, buf, len).offset(offset).build())
        }
        Op::Write { target, buf, len, offset } => {
            on(target, |fd| opcode::Write::new(fd, buf, len).offset(offset).build())
        }
        Op::ReadFixed { target, buf, len, offset, index } => {
            on(target, |fd| opcode::ReadFixed::new(fd, buf, len, index).offset(offset).build())
        }
        Op::WriteFixed { target, buf, len, offset, index } => {
            on(target, |fd| opcode::WriteFixed::new(fd, buf, len, index).offset(offset).build())
        }
        Op::ReadVectored { fd, slices, count, offset, flags } => {
            opcode::Readv::new(Fd(fd), slices, count).offset(offset).rw_flags(flags).build()
        }
        Op::WriteVectored { fd, slices, count, offset, flags } => {
            opcode::Writev::new(Fd(fd), slices, count).offset(offset).rw_flags(flags).build()
        }
        Op::Sync { fd, data_only } => {
            let datasync = types::FsyncFlags::DATASYNC;
            let flags = if data_only { datasync } else { types::FsyncFlags::empty() };
            opcode::Fsync::new(Fd(fd)).flags(flags).build()
        }
        Op::Open { dir, path, flags, mode } => {
            opcode::OpenAt::new(Fd(dir), path).flags(flags).mode(mode).build()
        }
        Op::Close { fd } => opcode::Close::new(Fd(fd)).build(),
        Op::Stat { dir, path, flags, mask, out } => {
            opcode::Statx::new(Fd(dir), path, out.cast()).flags(flags).mask(mask).build()
        }
        Op::SetLen { fd, len } => opcode::Ftruncate::new(Fd(fd), len).build(),
        Op::Poll { fd, events } => opcode::PollAdd::new(Fd(fd), events).build(),
        Op::OpenHow { dir, path, how } => opcode::OpenAt2::new(Fd(dir), path, how.cast()).build(),
        Op::Unlink { dir, path, flags } => {
            opcode::UnlinkAt::new(Fd(dir), path).flags(flags).build()
        }
        Op::Rename { from_dir, from, to_dir, to, flags } => {
            opcode::RenameAt::new(Fd(from_dir), from, Fd(to_dir), to).flags(flags).build()
        }
        Op::MakeDir { dir, path, mode } => opcode::MkDirAt::new(Fd(dir), path).mode(mode).build(),
        Op::Symlink { target, dir, path } => opcode::SymlinkAt::new(Fd(dir), target, path).build(),
        Op::Link { from_dir, from, to_dir, to, flags } => {
            opcode::LinkAt::new(Fd(from_dir), from, Fd(to_dir), to).flags(flags).build()
        }
        Op::Allocate { fd, mode, offset, len } => {
            opcode::Fallocate::new(Fd(fd), len).mode(mode).offset(offset).build()
        }
        Op::Advise { fd, advice, offset, len } => {
            opcode::Fadvise::new(Fd(fd), len as i64, advice).offset(offset).build()
        }
        Op::SyncRange { fd, flags, offset, len } => {
            opcode::SyncFileRange::new(Fd(fd), len as u32).flags(flags).offset(offset).build()
        }
        Op::GetXattr(call) => get_xattr(call),
        Op::SetXattr(call) => set_xattr(call),
        Op::Recv { fd, buf, len, flags } => {
            opcode::Recv::new(Fd(fd), buf, len).flags(flags).build()
        }
        Op::Send { fd, buf, len, flags } => {
            opcode::Send::new(Fd(fd), buf, len).flags(flags).build()
        }
        Op::SendZc { fd, buf, len, flags } => {
            opcode::SendZc::new(Fd(fd), buf, len).flags(flags).build()
        }
        Op::RecvMsg { fd, message, flags } => {
            opcode::RecvMsg::new(Fd(fd), message).flags(flags as u32).build()
        }
        Op::SendMsg { fd, message, flags } => {
            opcode::SendMsg::new(Fd(fd), message).flags(flags as u32).build()
        }
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

/// Returns the entries of an op whose end waits until the kernel has released its file: the op, and
/// a no-op that the kernel starts once the op's request is freed.
///
/// The link is a hard one: the no-op runs also after an op that has failed.
#[inline(always)]
pub(super) fn with_release(op: &Op, user_data: u64) -> [Entry; 2] {
    let release = opcode::Nop::new().build().user_data(user_data | RELEASE_TAG);
    [entry(op).flags(Flags::IO_HARDLINK).user_data(user_data), release]
}

/// The flags of `futex2(2)` for a futex of 32 bits.
fn futex_flags(is_shared: bool) -> u32 {
    const SIZE_U32: u32 = 0x02;
    const PRIVATE: u32 = libc::FUTEX_PRIVATE_FLAG as u32;
    if is_shared { SIZE_U32 } else { SIZE_U32 | PRIVATE }
}

#[inline(always)]
fn on(target: Target, build: impl FnOnce(types::Fd) -> Entry) -> Entry {
    let entry = build(types::Fd(target.number()));
    if target.is_ordinary() {
        entry
    } else if target.is_punted() {
        entry.flags(Flags::ASYNC)
    } else {
        entry.flags(Flags::FIXED_FILE)
    }
}

#[cold]
fn get_xattr(call: *const XattrCall) -> Entry {
    // SAFETY: I1. The call lies in the frame that waits for this op.
    let XattrCall { fd, path, name, value, len, .. } = unsafe { *call };
    if path.is_null() {
        opcode::FGetXattr::new(types::Fd(fd), name, value.cast(), len).build()
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
        opcode::FSetXattr::new(types::Fd(fd), name, value, len).flags(flags).build()
    } else {
        opcode::SetXattr::new(name, value, path, len).flags(flags).build()
    }
}
