//! Unbuffered access to descriptors 0, 1 and 2.
//!
//! Other processes share these descriptors, including the cursor and the status flags. They may
//! refer to any kind of file, and to another one at each call. So their properties are looked up at
//! each call. For a file with a cursor, a thread of the pool makes the plain call, because its use
//! of the cursor is one step for all that share it (**I11**), and because it may wait for a disk.

use super::super::ready::{Interest, ready};
use crate::fiber::op::perform;
use crate::fs::kernel_cursor::perform_at_kernels_cursor;
use crate::fs::slow_device;
use crate::fs::write_rest::{write_fully, write_slices_fully};
use cringle_core::worker::Current;
use cringle_driver::op::AT_CURSOR;
use cringle_driver::{Op, Target, Way, blocking};
use cringle_sys::{self as sys, MAX_RW_BYTES};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A standard stream without a buffer.
#[derive(Debug)]
pub(super) struct Raw(RawFd);

pub(super) const STDIN: Raw = Raw(libc::STDIN_FILENO);
pub(super) const STDOUT: Raw = Raw(libc::STDOUT_FILENO);
pub(super) const STDERR: Raw = Raw(libc::STDERR_FILENO);

/// Whether the process exits, after which a suspended fiber would never be resumed.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Makes all further calls plain ones.
pub(super) fn end() {
    ENDING.store(true, Ordering::Relaxed);
}

impl Raw {
    /// Performs a read or a write.
    ///
    /// # Safety
    ///
    /// The op's pointers are valid until this returns.
    unsafe fn perform(&self, op: Op) -> io::Result<usize> {
        // SAFETY: the caller's contract.
        let plain = || sys::result_of(unsafe { blocking::perform(&op) });
        let Some(current) = Current::get().filter(|_| !ENDING.load(Ordering::Relaxed)) else {
            return plain();
        };
        current.admit()?;
        let flags = sys::status_flags(self.0);
        let kind = sys::file_kind_with(self.0, flags);
        if !current.worker.may_bypass() || flags & libc::O_NONBLOCK != 0 {
            return plain();
        }
        if kind.seekable {
            if current.is_unwinding() || current.is_solitary() {
                return plain();
            }
            let waits_for = kind.waits_for();
            // SAFETY: the caller's contract.
            return unsafe { perform_at_kernels_cursor(current, self, waits_for, op) };
        }
        if op.is_read() && sys::is_terminal(self.0) {
            if let Some(timing) = sys::read_timing(self.0) {
                // SAFETY: the caller's contract.
                return unsafe { slow_device::read(current, self, timing, op) };
            }
            // This thread makes the call: the kernel stops a background process that reads its
            // terminal, where a kernel thread of the ring would get an error.
            ready(self, Interest::READABLE)?;
            return plain();
        }
        if kind.slow_device {
            // SAFETY: the caller's contract.
            return unsafe { slow_device::perform(current, self, op) };
        }
        perform(current, op)
    }
}

impl Raw {
    /// Whether the plain call of a write waits until all bytes are written.
    fn waits_for_room(&self) -> bool {
        let flags = sys::status_flags(self.0);
        flags & libc::O_NONBLOCK == 0 && sys::file_kind_with(self.0, flags).pipe_or_socket
    }
}

/// Replaces `EBADF` by `count`: a closed stream reads as empty and accepts all data, as std's does.
fn ignore_closed(result: io::Result<usize>, count: usize) -> io::Result<usize> {
    match result {
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => Ok(count),
        result => result,
    }
}

impl Read for Raw {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (start, len) = (buf.as_mut_ptr(), buf.len().min(MAX_RW_BYTES) as u32);
        let op = Op::read(Target::fd(self.0), start, len, AT_CURSOR);
        // SAFETY: I1. The buffer is borrowed until this returns.
        ignore_closed(unsafe { self.perform(op) }, 0)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        // `IoSliceMut` is guaranteed to have the layout of `iovec`.
        let (slices, count) = (bufs.as_ptr().cast(), sys::slice_count(bufs.len()));
        let op = Op::slices(Way::Read, self.0, slices, count, AT_CURSOR, 0);
        // SAFETY: I1. The buffers are borrowed until this returns.
        ignore_closed(unsafe { self.perform(op) }, 0)
    }
}

impl Write for Raw {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let write = |done: usize| {
            let rest = &buf[done..];
            let (start, len) = (rest.as_ptr(), rest.len().min(MAX_RW_BYTES) as u32);
            let op = Op::write(Target::fd(self.0), start, len, AT_CURSOR);
            // SAFETY: I1. The buffer is borrowed until this returns.
            ignore_closed(unsafe { self.perform(op) }, rest.len())
        };
        write_fully(buf.len(), || self.waits_for_room(), write)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let write = |bufs: &[IoSlice<'_>]| {
            let (slices, count) = (bufs.as_ptr().cast(), sys::slice_count(bufs.len()));
            let op = Op::slices(Way::Write, self.0, slices, count, AT_CURSOR, 0);
            // SAFETY: I1. The buffers are borrowed until this returns.
            let result = unsafe { self.perform(op) };
            ignore_closed(result, bufs.iter().map(|buf| buf.len()).sum())
        };
        write_slices_fully(bufs, || self.waits_for_room(), write)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the contract of `borrow_raw`: std, too, treats the standard streams as open for
        // the life of the process. If one is not, the kernel reports it.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}
