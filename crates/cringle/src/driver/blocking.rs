//! Ops as blocking system calls on the calling thread: outside of `run`, on threads of the pool,
//! and for a fiber that unwinds (**I8**).

use super::op::AT_CURSOR;
use super::{Op, sim};
use crate::sys::{self, syscall};

/// Performs the op. Returns its count, or a negated errno.
///
/// # Safety
///
/// The op's pointers are valid for the call.
pub(crate) unsafe fn perform(op: &Op) -> i32 {
    // SAFETY: by the contract.
    let result = unsafe { perform_unseen(op) };
    sim::note_plain(op, result)
}

/// [`perform`], but `EINTR` is a result, as std's calls on a file return it.
///
/// # Safety
///
/// The op's pointers are valid for the call.
pub(crate) unsafe fn perform_once(op: &Op) -> i32 {
    // SAFETY: by the contract.
    let result = unsafe { call(op) };
    sim::note_plain(op, result)
}

/// [`perform`] without a note for the simulation of this thread.
///
/// # Safety
///
/// The op's pointers are valid for the call.
pub(crate) unsafe fn perform_unseen(op: &Op) -> i32 {
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
            Op::Read { target, buf, len, offset }
            | Op::ReadFixed { target, buf, len, offset, .. } => {
                let Some(fd) = target.as_fd() else { return -libc::EBADF };
                match offset {
                    AT_CURSOR => syscall!(SYS_read, fd, buf, len),
                    _ => syscall!(SYS_pread64, fd, buf, len, offset),
                }
            }
            Op::Write { target, buf, len, offset }
            | Op::WriteFixed { target, buf, len, offset, .. } => {
                let Some(fd) = target.as_fd() else { return -libc::EBADF };
                match offset {
                    AT_CURSOR => syscall!(SYS_write, fd, buf, len),
                    _ => syscall!(SYS_pwrite64, fd, buf, len, offset),
                }
            }
            Op::ReadVectored { fd, slices, count, offset, flags } => match (offset, flags) {
                (AT_CURSOR, _) => syscall!(SYS_readv, fd, slices, count),
                (_, 0) => syscall!(SYS_preadv, fd, slices, count, offset, 0),
                _ => syscall!(SYS_preadv2, fd, slices, count, offset, 0, flags),
            },
            Op::WriteVectored { fd, slices, count, offset, flags } => match (offset, flags) {
                (AT_CURSOR, _) => syscall!(SYS_writev, fd, slices, count),
                (_, 0) => syscall!(SYS_pwritev, fd, slices, count, offset, 0),
                _ => syscall!(SYS_pwritev2, fd, slices, count, offset, 0, flags),
            },
            Op::Sync { fd, data_only: true } => syscall!(SYS_fdatasync, fd),
            Op::Sync { fd, data_only: false } => syscall!(SYS_fsync, fd),
            Op::Open { dir, path, flags, mode } => {
                if let Some(result) = sim::open_plainly(path, flags, mode) {
                    return result;
                }
                syscall!(SYS_openat, dir, path, flags, mode)
            }
            Op::Close { fd } => syscall!(SYS_close, fd),
            Op::Stat { dir, path, flags, mask, out } => {
                errno_of(libc::statx(dir, path, flags, mask, out) as isize)
            }
            Op::SetLen { fd, len } => syscall!(SYS_ftruncate, fd, len),
            Op::Poll { fd, events } => {
                let mut poll = libc::pollfd { fd, events: events as i16, revents: 0 };
                match sys::poll_once(&mut poll, None) {
                    1 => poll.revents as isize,
                    other => other,
                }
            }
            Op::OpenHow { dir, path, how } => {
                syscall!(SYS_openat2, dir, path, how, size_of::<libc::open_how>())
            }
            Op::Unlink { dir, path, flags } => syscall!(SYS_unlinkat, dir, path, flags),
            Op::Rename { from_dir, from, to_dir, to, flags: 0 } => {
                errno_of(libc::renameat(from_dir, from, to_dir, to) as isize)
            }
            Op::Rename { from_dir, from, to_dir, to, flags } => {
                syscall!(SYS_renameat2, from_dir, from, to_dir, to, flags)
            }
            Op::MakeDir { dir, path, mode } => syscall!(SYS_mkdirat, dir, path, mode),
            Op::Symlink { target, dir, path } => syscall!(SYS_symlinkat, target, dir, path),
            Op::Link { from_dir, from, to_dir, to, flags } => {
                syscall!(SYS_linkat, from_dir, from, to_dir, to, flags)
            }
            Op::Allocate { fd, mode, offset, len } => {
                syscall!(SYS_fallocate, fd, mode, offset, len)
            }
            Op::Advise { fd, advice, offset, len } => {
                syscall!(SYS_fadvise64, fd, offset, len, advice)
            }
            Op::SyncRange { fd, flags, offset, len } => {
                syscall!(SYS_sync_file_range, fd, offset, len, flags)
            }
            Op::GetXattr(call) => errno_of((*call).get()),
            Op::SetXattr(call) => errno_of((*call).set()),
            Op::Recv { fd, buf, len, flags } => syscall!(SYS_recvfrom, fd, buf, len, flags, 0, 0),
            Op::Send { fd, buf, len, flags } | Op::SendZc { fd, buf, len, flags } => {
                syscall!(SYS_sendto, fd, buf, len, flags, 0, 0)
            }
            Op::RecvMsg { fd, message, flags } => syscall!(SYS_recvmsg, fd, message, flags),
            Op::SendMsg { fd, message, flags } => syscall!(SYS_sendmsg, fd, message, flags),
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

/// Converts the result of a function of libc, which no program interposes: −1 to `-errno`.
fn errno_of(result: isize) -> isize {
    if result < 0 { -(sys::errno() as isize) } else { result }
}
