//! Ops as blocking system calls on the calling thread: outside of `run`, on threads of the pool,
//! and for a fiber that unwinds (**I8**).

use super::op::{AT_CURSOR, NewName, StatCall};
use super::simulation::PlainCalls;
use super::{FileOp, Memory, Op, PathOp, SocketMemory, SocketTransfer, Transfer, Way};
use cringle_sys::{self as sys, syscall};

/// Performs the op. Returns its count, or a negated errno.
///
/// # Safety
///
/// The op's pointers are valid for the call.
pub unsafe fn perform(op: &Op) -> i32 {
    // SAFETY: by the contract.
    let result = unsafe { perform_unseen(op) };
    note(op, result)
}

/// [`perform`], but `EINTR` is a result, as std's calls on a file return it.
///
/// # Safety
///
/// The op's pointers are valid for the call.
pub unsafe fn perform_once(op: &Op) -> i32 {
    // SAFETY: by the contract.
    let result = unsafe { call(op) };
    note(op, result)
}

/// Notes a plain call, if this thread is in a simulation.
#[inline]
fn note(op: &Op, result: i32) -> i32 {
    PlainCalls::installed().map_or(result, |calls| (calls.note)(op, result))
}

/// [`perform`] without a note for the simulation of this thread.
///
/// # Safety
///
/// The op's pointers are valid for the call.
pub unsafe fn perform_unseen(op: &Op) -> i32 {
    loop {
        // SAFETY: by the contract.
        let result = unsafe { call(op) };
        // As on a ring, whose kernel threads receive no signals, `EINTR` is not reported.
        if result != -libc::EINTR {
            return result;
        }
    }
}

/// Makes the op's system call once.
///
/// # Safety
///
/// The op's pointers are valid for the call.
unsafe fn call(op: &Op) -> i32 {
    // SAFETY: by the contract, each pointer is valid for what the call does with it.
    let result = unsafe {
        match *op {
            Op::Nop => 0,
            Op::Transfer(transfer) => call_transfer(&transfer),
            Op::File(op) => call_on_file(op),
            Op::Path(op) => call_on_path(op),
            Op::Socket(transfer) => call_socket(&transfer, 0),
            Op::Poll { fd, events } => {
                let mut poll = libc::pollfd { fd, events: events as i16, revents: 0 };
                match sys::poll_once(&mut poll, None) {
                    1 => poll.revents as isize,
                    other => other,
                }
            }
            Op::Accept { fd, addr, addr_len } => {
                syscall!(SYS_accept4, fd, addr, addr_len, libc::SOCK_CLOEXEC)
            }
            Op::Connect { fd, addr, addr_len } => syscall!(SYS_connect, fd, addr, addr_len),
            Op::Syscall(call) => call.call(),
            // They have a meaning only for a ring.
            Op::Raw(_) | Op::FutexWait { .. } => return -libc::EOPNOTSUPP,
        }
    };
    result as i32
}

/// # Safety
///
/// As for [`call`].
unsafe fn call_transfer(transfer: &Transfer) -> isize {
    let Some(fd) = transfer.file.as_fd() else { return -libc::EBADF as isize };
    let (offset, flags) = (transfer.offset, transfer.flags());
    // SAFETY: by the contract, the memory is lent for the call.
    unsafe {
        match (transfer.way, transfer.memory()) {
            (Way::Read, Memory::Bytes { start, len }) => match offset {
                AT_CURSOR => syscall!(SYS_read, fd, start, len),
                _ => syscall!(SYS_pread64, fd, start, len, offset),
            },
            (Way::Write, Memory::Bytes { start, len }) => match offset {
                AT_CURSOR => syscall!(SYS_write, fd, start, len),
                _ => syscall!(SYS_pwrite64, fd, start, len, offset),
            },
            (Way::Read, Memory::Slices { slices, count }) => match (offset, flags) {
                (AT_CURSOR, _) => syscall!(SYS_readv, fd, slices, count),
                (_, 0) => syscall!(SYS_preadv, fd, slices, count, offset, 0),
                _ => syscall!(SYS_preadv2, fd, slices, count, offset, 0, flags),
            },
            (Way::Write, Memory::Slices { slices, count }) => match (offset, flags) {
                (AT_CURSOR, _) => syscall!(SYS_writev, fd, slices, count),
                (_, 0) => syscall!(SYS_pwritev, fd, slices, count, offset, 0),
                _ => syscall!(SYS_pwritev2, fd, slices, count, offset, 0, flags),
            },
        }
    }
}

/// Receives or sends, with these flags in addition to the transfer's own.
///
/// # Safety
///
/// The transfer's pointers are valid for the call.
pub(super) unsafe fn call_socket(transfer: &SocketTransfer, more: i32) -> isize {
    let SocketTransfer { way, fd, flags, .. } = *transfer;
    let flags = flags | more;
    // SAFETY: by the contract, the memory is lent for the call.
    unsafe {
        match (way, transfer.memory()) {
            (Way::Read, SocketMemory::Bytes { start, len }) => {
                syscall!(SYS_recvfrom, fd, start, len, flags, 0, 0)
            }
            (Way::Write, SocketMemory::Bytes { start, len }) => {
                syscall!(SYS_sendto, fd, start, len, flags, 0, 0)
            }
            (Way::Read, SocketMemory::Message(message)) => {
                syscall!(SYS_recvmsg, fd, message, flags)
            }
            (Way::Write, SocketMemory::Message(message)) => {
                syscall!(SYS_sendmsg, fd, message, flags)
            }
        }
    }
}

/// # Safety
///
/// As for [`call`].
unsafe fn call_on_file(op: FileOp) -> isize {
    // SAFETY: by the contract, each pointer is valid for what the call does with it.
    unsafe {
        match op {
            FileOp::Sync { fd, data_only: true } => syscall!(SYS_fdatasync, fd),
            FileOp::Sync { fd, data_only: false } => syscall!(SYS_fsync, fd),
            FileOp::Close { fd } => syscall!(SYS_close, fd),
            FileOp::SetLen { fd, len } => syscall!(SYS_ftruncate, fd, len),
            FileOp::Allocate { fd, mode, range } => {
                syscall!(SYS_fallocate, fd, mode, (*range).offset, (*range).len)
            }
            FileOp::Advise { fd, advice, range } => {
                syscall!(SYS_fadvise64, fd, (*range).offset, (*range).len, advice)
            }
            FileOp::SyncRange { fd, flags, range } => {
                syscall!(SYS_sync_file_range, fd, (*range).offset, (*range).len, flags)
            }
            FileOp::GetXattr(call) => errno_of((*call).get()),
            FileOp::SetXattr(call) => errno_of((*call).set()),
        }
    }
}

/// # Safety
///
/// As for [`call`].
unsafe fn call_on_path(op: PathOp) -> isize {
    // SAFETY: by the contract, each pointer is valid for what the call does with it.
    unsafe {
        match op {
            PathOp::Open { dir, path, flags, mode } => {
                let opened =
                    PlainCalls::installed().and_then(|calls| (calls.open)(path, flags, mode));
                if let Some(result) = opened {
                    return result as isize;
                }
                syscall!(SYS_openat, dir, path, flags, mode)
            }
            PathOp::OpenHow { dir, path, how } => {
                syscall!(SYS_openat2, dir, path, how, size_of::<libc::open_how>())
            }
            PathOp::Stat { dir, path, call } => {
                let StatCall { flags, mask, out } = *call;
                errno_of(libc::statx(dir, path, flags, mask, out) as isize)
            }
            PathOp::Unlink { dir, path, flags } => syscall!(SYS_unlinkat, dir, path, flags),
            PathOp::Rename { dir, path, to } => match *to {
                NewName { dir: to_dir, path: to, flags: 0 } => {
                    errno_of(libc::renameat(dir, path, to_dir, to) as isize)
                }
                NewName { dir: to_dir, path: to, flags } => {
                    syscall!(SYS_renameat2, dir, path, to_dir, to, flags)
                }
            },
            PathOp::MakeDir { dir, path, mode } => syscall!(SYS_mkdirat, dir, path, mode),
            PathOp::Symlink { target, dir, path } => syscall!(SYS_symlinkat, target, dir, path),
            PathOp::Link { dir, path, to } => {
                syscall!(SYS_linkat, dir, path, (*to).dir, (*to).path, (*to).flags)
            }
        }
    }
}

/// Converts the result of a function of libc, which no program interposes: −1 to `-errno`.
fn errno_of(result: isize) -> isize {
    if result < 0 { -(sys::errno() as isize) } else { result }
}
