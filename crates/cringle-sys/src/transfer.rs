//! Reads and writes: std's calls on a file, made raw (**I14**).

use super::MAX_RW_BYTES;
use super::raw::{result_of, syscall};
use std::io;
use std::os::fd::RawFd;

/// Calls `pread`.
#[inline]
pub fn pread(fd: RawFd, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    // SAFETY: `buf` is borrowed exclusively for the call.
    result_of(unsafe { syscall!(SYS_pread64, fd, buf.as_mut_ptr(), buf.len(), offset) })
}

/// Calls `pwrite`.
#[inline]
pub fn pwrite(fd: RawFd, buf: &[u8], offset: u64) -> io::Result<usize> {
    // SAFETY: `buf` is borrowed for the call, which reads it.
    result_of(unsafe { syscall!(SYS_pwrite64, fd, buf.as_ptr(), buf.len(), offset) })
}

/// Calls `preadv2(RWF_NOWAIT)`, and returns a count or `-errno` (`-EAGAIN` if it would wait). An
/// `offset` of −1 reads at the cursor and moves it.
#[inline]
pub fn read_nowait(fd: RawFd, buf: &mut [u8], offset: i64) -> i32 {
    let len = buf.len().min(MAX_RW_BYTES);
    let slice = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: len };
    // SAFETY: `slice` describes `buf`, which is borrowed exclusively for the call.
    unsafe { syscall!(SYS_preadv2, fd, &raw const slice, 1, offset, 0, libc::RWF_NOWAIT) as i32 }
}

/// Calls `pwritev2(RWF_NOWAIT)`, and returns a count or `-errno`.
#[inline]
pub fn write_nowait(fd: RawFd, buf: &[u8], offset: i64) -> i32 {
    let len = buf.len().min(MAX_RW_BYTES);
    let slice = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: len };
    // SAFETY: `slice` describes `buf`, which is borrowed for the call and only read.
    unsafe { syscall!(SYS_pwritev2, fd, &raw const slice, 1, offset, 0, libc::RWF_NOWAIT) as i32 }
}
