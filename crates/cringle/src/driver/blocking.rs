//! Ops as blocking system calls on the calling thread: outside of `run`, on threads of the pool,
//! and for a fiber that unwinds (**I8**).

use super::Op;
use super::op::AT_CURSOR;
use crate::sys::errno;

/// Performs the op. Returns its count, or a negated errno.
///
/// # Safety
///
/// The op's pointers are valid for the call.
pub(crate) unsafe fn perform(op: &Op) -> i32 {
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
                    AT_CURSOR => libc::read(fd, buf.cast(), len as usize),
                    _ => libc::pread(fd, buf.cast(), len as usize, offset as libc::off_t),
                }
            }
            Op::Write { target, buf, len, offset }
            | Op::WriteFixed { target, buf, len, offset, .. } => {
                let Some(fd) = target.as_fd() else { return -libc::EBADF };
                match offset {
                    AT_CURSOR => libc::write(fd, buf.cast(), len as usize),
                    _ => libc::pwrite(fd, buf.cast(), len as usize, offset as libc::off_t),
                }
            }
            Op::ReadVectored { fd, slices, count, offset } => match offset {
                AT_CURSOR => libc::readv(fd, slices, count as i32),
                _ => libc::preadv(fd, slices, count as i32, offset as libc::off_t),
            },
            Op::WriteVectored { fd, slices, count, offset } => match offset {
                AT_CURSOR => libc::writev(fd, slices, count as i32),
                _ => libc::pwritev(fd, slices, count as i32, offset as libc::off_t),
            },
            Op::Sync { fd, data_only: true } => libc::fdatasync(fd) as isize,
            Op::Sync { fd, data_only: false } => libc::fsync(fd) as isize,
            Op::Open { dir, path, flags, mode } => {
                #[cfg(feature = "sim")]
                if let Some(result) = simulated_open(path, flags, mode) {
                    return result;
                }
                libc::openat(dir, path, flags, mode) as isize
            }
            Op::Close { fd } => libc::close(fd) as isize,
            Op::Stat { dir, path, flags, mask, out } => {
                libc::statx(dir, path, flags, mask, out) as isize
            }
            Op::SetLen { fd, len } => libc::ftruncate(fd, len as libc::off_t) as isize,
            Op::Poll { fd, events } => {
                let mut poll = libc::pollfd { fd, events: events as i16, revents: 0 };
                match libc::poll(&mut poll, 1, -1) {
                    1 => poll.revents as isize,
                    other => other as isize,
                }
            }
            Op::OpenHow { dir, path, how } => {
                let size = size_of::<libc::open_how>();
                libc::syscall(libc::SYS_openat2, dir, path, how, size) as isize
            }
            Op::Unlink { dir, path, flags } => libc::unlinkat(dir, path, flags) as isize,
            Op::Rename { from_dir, from, to_dir, to, flags: 0 } => {
                libc::renameat(from_dir, from, to_dir, to) as isize
            }
            Op::Rename { from_dir, from, to_dir, to, flags } => {
                // musl has no `renameat2` function.
                let number = libc::SYS_renameat2;
                libc::syscall(number, from_dir, from, to_dir, to, flags) as isize
            }
            Op::MakeDir { dir, path, mode } => libc::mkdirat(dir, path, mode) as isize,
            Op::Symlink { target, dir, path } => libc::symlinkat(target, dir, path) as isize,
            Op::Link { from_dir, from, to_dir, to, flags } => {
                libc::linkat(from_dir, from, to_dir, to, flags) as isize
            }
            Op::Allocate { fd, mode, offset, len } => {
                libc::fallocate(fd, mode, offset as libc::off_t, len as libc::off_t) as isize
            }
            // It returns its error and leaves `errno` alone.
            Op::Advise { fd, advice, offset, len } => {
                return -libc::posix_fadvise(fd, offset as i64, len as i64, advice);
            }
            Op::SyncRange { fd, flags, offset, len } => {
                libc::sync_file_range(fd, offset as i64, len as i64, flags) as isize
            }
            Op::GetXattr(call) => (*call).get(),
            Op::SetXattr(call) => (*call).set(),
            Op::Recv { fd, buf, len, flags } => libc::recv(fd, buf.cast(), len as usize, flags),
            Op::Send { fd, buf, len, flags } | Op::SendZc { fd, buf, len, flags } => {
                libc::send(fd, buf.cast(), len as usize, flags)
            }
            Op::RecvMsg { fd, message, flags } => libc::recvmsg(fd, message, flags),
            Op::SendMsg { fd, message, flags } => libc::sendmsg(fd, message, flags),
            Op::Accept { fd, addr, addr_len } => {
                libc::accept4(fd, addr.cast(), addr_len, libc::SOCK_CLOEXEC) as isize
            }
            Op::Connect { fd, addr, addr_len } => libc::connect(fd, addr.cast(), addr_len) as isize,
            Op::Syscall(call) => call.call(),
            // A raw entry has a meaning only for a ring.
            Op::Raw(_) => return -libc::EOPNOTSUPP,
        }
    };
    if result < 0 { -errno() } else { result as i32 }
}

/// Opens a file of the simulation, if this thread is in a simulated run: fibers that unwind must
/// not reach the machine's files there.
///
/// # Safety
///
/// The path is a valid C string.
#[cfg(feature = "sim")]
unsafe fn simulated_open(path: *const std::ffi::c_char, flags: i32, mode: u32) -> Option<i32> {
    // SAFETY: by the contract.
    let path = unsafe { std::ffi::CStr::from_ptr(path) };
    super::sim::with_here(|core| core.open(path, flags, mode))
}
