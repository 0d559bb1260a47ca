//! Reads and writes through the driver, at an offset or at the cursor, and the cases that a ring
//! would perform differently from the plain call:
//!
//! - files of a FUSE file system: a ring may use the wrong offset after a short read or write (see
//!   [`sys::FileKind`]), so threads make the plain calls;
//! - files that refuse each read or write, and non-blocking streams: the plain call returns at
//!   once, where a ring would wait;
//! - empty transfers: the plain call does not wait, and asks the file where a ring does not;
//! - terminals and other slow devices: see [`slow_device`];
//! - regular files for which the ring reports `EAGAIN`: a thread of the pool makes the plain call.

use super::File;
use super::properties::{
    FIFO, ODD, OFF_RING, REGULAR, SEEKABLE, SLOW_DEVICE, UNREADABLE, UNWRITABLE, WRITES_ALL,
};
use crate::fiber::op::{perform, perform_off_ring, perform_on_pool};
use crate::fs::write_rest::{write_fully, write_slices_fully};
use crate::fs::{fifo, slow_device};
use cringle_core::worker::Current;
use cringle_driver::op::AT_CURSOR;
use cringle_driver::{Op, Way, blocking};
use cringle_sys::{self as sys, MAX_RW_BYTES};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;

/// When to use the driver.
impl File {
    /// Returns the worker and fiber to submit through, or `None` where the plain call is right:
    /// outside of a fiber; on a fiber that unwinds, for a file that waits only for storage
    /// (**I8**); or when no other fiber could run meanwhile.
    #[inline]
    pub(in crate::fs) fn ring(&self) -> Option<Current> {
        let current = Current::get()?;
        if current.is_unwinding() && self.properties() & REGULAR != 0 {
            return None;
        }
        if current.is_solitary() && self.properties() & SEEKABLE != 0 && current.spends_solitary() {
            return None;
        }
        Some(current)
    }

    /// Whether the file is in non-blocking mode now, which other handles may have set. A ring would
    /// wait regardless.
    fn is_nonblocking(&self) -> bool {
        sys::status_flags(self.fd()) & libc::O_NONBLOCK != 0
    }

    fn is_readable(&self) -> bool {
        sys::poll_now(self.std.as_fd(), libc::POLLIN).is_ok_and(|events| events != 0)
    }
}

/// One op.
impl File {
    /// Performs a read or a write through the driver. The rare cases are functions that build their
    /// own op, so that the common case need not keep one in memory.
    #[inline(always)]
    pub(in crate::fs) fn transfer(
        &self,
        current: Current,
        op: impl Fn() -> Op,
    ) -> io::Result<usize> {
        if self.properties() & (REGULAR | OFF_RING) != REGULAR {
            return self.transfer_irregular(current, op());
        }
        if op().is_write() && op().is_empty() {
            // A ring would not ask the file, and one of `/proc` or `/sys` may refuse the write.
            return Self::transfer_on_pool(op());
        }
        match perform(current, op()) {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Self::transfer_on_pool(op()),
            result => result,
        }
    }

    #[cold]
    #[inline(never)]
    fn transfer_irregular(&self, current: Current, op: Op) -> io::Result<usize> {
        // The plain call of an empty transfer does not wait, unless the file is a device that is
        // not ready. A ring would not even ask the file: it reads 0 bytes from a directory.
        let is_empty = op.is_empty()
            && match op.is_read() {
                true => self.properties() & ODD == 0 || self.is_readable(),
                false => self.properties() & REGULAR == 0,
            };
        let refused = if op.is_read() { UNREADABLE } else { UNWRITABLE };
        let is_plain = self.properties() & refused != 0
            || self.properties() & REGULAR == 0 && self.is_nonblocking();
        if is_empty || is_plain {
            // SAFETY: I1. The caller's buffers are borrowed until this returns.
            return sys::result_of(unsafe { blocking::perform(&op) });
        }
        if self.is_off_ring() && current.worker.driver().borrow().is_ring() {
            current.admit()?;
            // SAFETY: as above.
            return sys::result_of(unsafe { perform_off_ring(current.worker, op) });
        }
        if self.properties() & SLOW_DEVICE != 0 {
            // SAFETY: as above.
            return unsafe { slow_device::perform(current, &self.std, op) };
        }
        perform(current, op)
    }

    /// Makes the plain call on this thread.
    fn call(op: &Op) -> io::Result<usize> {
        // SAFETY: I1. The caller's buffers are borrowed until this returns.
        sys::result_of(unsafe { blocking::perform_once(op) })
    }

    /// Makes the plain call on a thread of the pool, for a regular file for which the ring reports
    /// `EAGAIN` (XFS may).
    #[cold]
    #[inline(never)]
    fn transfer_on_pool(op: Op) -> io::Result<usize> {
        // SAFETY: I1. The caller's buffers are borrowed until this returns.
        sys::result_of(unsafe { perform_on_pool(op) })
    }
}

/// Reads.
impl File {
    /// Reads through the driver on a fiber, without a try at the page cache.
    pub(in crate::fs) fn read_through(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let (start, len) = (buf.as_mut_ptr(), buf.len().min(MAX_RW_BYTES) as u32);
        let op = || Op::read(self.target(), start, len, offset);
        match self.ring() {
            Some(current) => self.read_or_poll_fifo(current, op),
            None => Self::call(&op()),
        }
    }

    /// Reads with flags of the kernel (`RWF_…`), if any.
    pub(in crate::fs) fn read_vectored_through(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
        flags: i32,
    ) -> io::Result<usize> {
        // `IoSliceMut` is guaranteed to have the layout of `iovec`.
        let (slices, count) = (bufs.as_ptr().cast(), sys::slice_count(bufs.len()));
        let op = || Op::slices(Way::Read, self.fd(), slices, count, offset, flags);
        let Some(current) = self.ring() else { return Self::call(&op()) };
        if bufs.iter().all(|buf| buf.is_empty()) {
            // It never waits, where a ring might.
            current.admit()?;
            return Self::call(&op());
        }
        self.read_or_poll_fifo(current, op)
    }

    fn read_or_poll_fifo(&self, current: Current, op: impl Fn() -> Op) -> io::Result<usize> {
        match self.properties() & FIFO {
            FIFO => fifo::read_until_end(current, self, || self.transfer(current, &op)),
            _ => self.transfer(current, op),
        }
    }
}

/// Writes.
impl File {
    /// Writes through the driver on a fiber, without a try at an inline call.
    pub(in crate::fs) fn write_through(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.write_as_opened(|| match self.ring() {
            Some(current) => self.write_on(current, buf, offset),
            None => Self::call(&self.write_op(buf, offset)),
        })
    }

    pub(in crate::fs) fn write_op(&self, buf: &[u8], offset: u64) -> Op {
        let (buf, len) = (buf.as_ptr(), buf.len().min(MAX_RW_BYTES) as u32);
        Op::write(self.target(), buf, len, offset)
    }

    /// Writes through the driver. The caller sees to writes that are durable.
    pub(super) fn write_on(&self, current: Current, buf: &[u8], offset: u64) -> io::Result<usize> {
        let write = |done| self.transfer(current, || self.write_op(&buf[done..], offset));
        write_fully(buf.len(), || self.waits_for_room(), write)
    }

    pub(in crate::fs) fn write_vectored_through(
        &self,
        bufs: &[IoSlice<'_>],
        offset: u64,
    ) -> io::Result<usize> {
        self.write_as_opened(|| self.write_vectored_flagged(bufs, offset, 0))
    }

    /// Writes with flags of the kernel (`RWF_…`). The caller sees to writes that are durable.
    pub(in crate::fs) fn write_vectored_flagged(
        &self,
        bufs: &[IoSlice<'_>],
        offset: u64,
        flags: i32,
    ) -> io::Result<usize> {
        let bufs = &bufs[..bufs.len().min(sys::MAX_SLICES)];
        let ring = self.ring().filter(|_| offset == AT_CURSOR || !self.takes_no_pwrite());
        let Some(current) = ring else { return Self::call(&self.gather_op(bufs, offset, flags)) };
        if bufs.iter().all(|buf| buf.is_empty()) {
            // It never waits, where a ring might.
            current.admit()?;
            return Self::call(&self.gather_op(bufs, offset, flags));
        }
        let write =
            |bufs: &[IoSlice<'_>]| self.transfer(current, || self.gather_op(bufs, offset, flags));
        write_slices_fully(bufs, || self.waits_for_room(), write)
    }

    pub(in crate::fs) fn gather_op(&self, bufs: &[IoSlice<'_>], offset: u64, flags: i32) -> Op {
        // `IoSlice` is guaranteed to have the layout of `iovec`.
        let (slices, count) = (bufs.as_ptr().cast(), sys::slice_count(bufs.len()));
        Op::slices(Way::Write, self.fd(), slices, count, offset, flags)
    }

    /// Whether the plain call waits until all bytes are written.
    #[inline]
    fn waits_for_room(&self) -> bool {
        self.properties() & WRITES_ALL != 0 && !self.is_nonblocking()
    }
}
