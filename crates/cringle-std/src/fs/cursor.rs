//! Reading and writing at the file's cursor (**I11**).
//!
//! No op uses the cursor of a seekable file through the ring: sequential `O_DIRECT` reads at the
//! cursor would all return the first block, and concurrent reads would repeat blocks, where plain
//! calls serialise.
//!
//! # Files that the library opened
//!
//! All handles are known: the clones. A caller
//!
//! 1. holds a lock that all clones share,
//! 2. moves the kernel's cursor past the bytes that it requests (a [`Claim`]),
//! 3. performs the op at the offset where the cursor was,
//! 4. moves the cursor back by the bytes that the op did not transfer.
//!
//! Meanwhile the kernel's cursor is past the claimed bytes. So a plain read of another process that
//! shares the cursor (after `fork`) returns the bytes after them. Two kinds of calls skip the
//! claim: a read from the page cache that does not wait moves the kernel's cursor itself, and an
//! appending write does not use the cursor.
//!
//! # Files whose descriptor was lent or came from elsewhere
//!
//! Handles in any number, also in other processes, may share the cursor of a child's standard
//! stream, of a descriptor from `as_fd`, or of a file made from an `OwnedFd`. Only the kernel can
//! serialise them, and it does so for plain calls: see [`kernel_cursor`](super::kernel_cursor). The
//! same holds for files of `/proc` and `/sys`, because only the kernel knows how a call moves their
//! cursor.

use super::File;
use super::copy::copy_range;
use super::file::Inline;
use super::kernel_cursor::perform_at_kernels_cursor;
use crate::sync::fair_lock::{FairLock, FairLockGuard};
use cringle_core::worker::Current;
use cringle_driver::op::AT_CURSOR;
use cringle_driver::syscall::Syscall;
use cringle_driver::{Op, Way, blocking};
use cringle_sys::{self as sys, MAX_RW_BYTES, MAX_SLICES, WaitsFor};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state that the clones of a file share.
#[derive(Default)]
pub(super) struct Cursor {
    lock: FairLock,
    /// Whether handles that the library does not know may use the kernel's cursor.
    lent: AtomicBool,
    /// The cursor, but for whole pages, if only reads from the page cache have moved it since the
    /// file was opened; else `UNKNOWN`. If another process shares the cursor, it may be wrong, and
    /// a read may return fewer bytes than the file has.
    position: AtomicU64,
}

const UNKNOWN: u64 = u64::MAX;

impl Cursor {
    /// Returns the cursor of a file that was read before there was one.
    pub(super) fn of_moved() -> Cursor {
        Cursor { position: AtomicU64::new(UNKNOWN), ..Cursor::default() }
    }

    pub(super) fn lock(&self) -> io::Result<FairLockGuard<'_>> {
        self.lock_for_read().map(|(held, _)| held)
    }

    /// Locks the cursor, and returns its position, if that is known. It is unknown to later callers
    /// then, unless the caller [keeps](Self::keep) it.
    fn lock_for_read(&self) -> io::Result<(FairLockGuard<'_>, Option<u64>)> {
        let held = self.lock.lock()?;
        let position = self.position.load(Ordering::Relaxed);
        self.position.store(UNKNOWN, Ordering::Relaxed);
        Ok((held, (position != UNKNOWN).then_some(position)))
    }

    /// Keeps the position for the next read. The caller holds the lock.
    fn keep(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    pub(super) fn lend(&self) {
        self.lent.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Relaxed)
    }
}

/// A range of bytes that only the caller reads or writes: the cursor has been moved past it.
/// Dropping the claim moves the cursor back by the bytes that were not used.
struct Claim<'a> {
    file: &'a File,
    start: u64,
    end: u64,
    unused: u64,
    writes: bool,
}

impl<'a> Claim<'a> {
    /// Claims `len` bytes. `None` if the kernel refuses to move the cursor that far, or if an
    /// append may move the cursor meanwhile.
    fn of(file: &'a File, len: usize, writes: bool) -> Option<Claim<'a>> {
        if len == 0 || file.appends() {
            return None;
        }
        let end = file.std().seek(SeekFrom::Current(len as i64)).ok()?;
        Some(Claim { file, start: end - len as u64, end, unused: len as u64, writes })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.unused == 0 {
            return;
        }
        let mut file = self.file.std();
        // Another process may have written past the end of a failed write. Keeping its bytes is
        // worth leaving a hole.
        if !self.writes || file.stream_position().is_ok_and(|at| at == self.end) {
            let _ = file.seek(SeekFrom::Current(-(self.unused as i64)));
        }
    }
}

impl File {
    fn hold_cursor(&self) -> io::Result<FairLockGuard<'_>> {
        self.cursor().lock()
    }

    /// Performs `op` on at most `len` bytes at the cursor and moves the cursor by the bytes
    /// transferred. The caller holds the lock.
    fn at_cursor(
        &self,
        len: usize,
        writes: bool,
        op: impl FnOnce(u64) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some(mut claim) = Claim::of(self, len.min(MAX_RW_BYTES), writes) else {
            return self.at_position(op);
        };
        let count = op(claim.start)?;
        claim.unused -= count as u64;
        Ok(count)
    }

    /// Performs `op`, which transfers any number of bytes, at the cursor, and then moves the
    /// cursor.
    fn at_position(&self, op: impl FnOnce(u64) -> io::Result<usize>) -> io::Result<usize> {
        let position = self.std().stream_position()?;
        let count = op(position)?;
        if count > 0 {
            self.std().seek(SeekFrom::Start(position + count as u64))?;
        }
        Ok(count)
    }

    /// Has a thread perform the op, which uses the kernel's cursor.
    #[cold]
    fn at_kernels_cursor(&self, current: Current, op: Op) -> io::Result<usize> {
        // SAFETY: I1. The caller's buffers are borrowed until this returns, which it does only
        // after the op has completed.
        unsafe { perform_at_kernels_cursor(current, self.std(), self.waits_for(), op) }
    }

    /// Performs a call at the cursor that has to be a single system call: on this thread where that
    /// is right, or on another one.
    ///
    /// # Safety
    ///
    /// The op's pointers are valid until this returns.
    pub(super) unsafe fn perform_as_one_call(&self, op: Op) -> io::Result<usize> {
        match self.ring() {
            Some(current) => self.at_kernels_cursor(current, op),
            // SAFETY: by the contract.
            None => sys::result_of(unsafe { blocking::perform(&op) }),
        }
    }

    /// Decides who performs a call at the cursor. The caller holds the lock, and moves the cursor
    /// for the fiber that is returned. Otherwise it gets the result of the op, which was a single
    /// system call.
    #[inline]
    fn mover(&self, writes: bool, op: impl FnOnce() -> Op) -> Result<Current, io::Result<usize>> {
        let ring = self.ring();
        if let Some(current) = ring
            && !self.uses_kernels_cursor()
            && !(writes && self.takes_no_pwrite())
        {
            return Ok(current);
        }
        Err(self.at_cursor_at_once(ring, writes, op()))
    }

    fn at_cursor_at_once(&self, ring: Option<Current>, writes: bool, op: Op) -> io::Result<usize> {
        let call = || match ring {
            Some(current) => self.at_kernels_cursor(current, op),
            // SAFETY: I1. The caller's buffers are borrowed until this returns.
            None => sys::result_of(unsafe { blocking::perform_once(&op) }),
        };
        if writes { self.write_as_opened(call) } else { call() }
    }

    /// Copies up to `len` bytes from this file's cursor to the cursor of `to` within the kernel,
    /// moves both cursors, and returns the number of bytes. `None` if the two share a cursor, or if
    /// one of them is not seekable or appends.
    pub(crate) fn copy_at_cursors(&self, to: &File, len: usize) -> io::Result<Option<usize>> {
        let (ours, theirs) = (self.cursor(), to.cursor());
        let seekable = self.is_seekable() && to.is_seekable() && !to.appends();
        // This thread gets and sets the cursors, and the server of a FUSE file may be one of its
        // fibers.
        let may_hang = |file: &File| file.is_lent() && file.waits_for() == WaitsFor::Server;
        if !seekable || Arc::ptr_eq(ours, theirs) || may_hang(self) || may_hang(to) {
            return Ok(None);
        }
        // Locks in address order, so that two copies in opposite directions do not deadlock.
        let _held = if Arc::as_ptr(ours) < Arc::as_ptr(theirs) {
            (self.hold_cursor()?, to.hold_cursor()?)
        } else {
            (to.hold_cursor()?, self.hold_cursor()?)
        };
        let target = to.std().stream_position()?;
        let copied = self.at_position(|source| copy_range(self, source, to, target, len))?;
        to.std().seek(SeekFrom::Start(target + copied as u64))?;
        Ok(Some(copied))
    }

    /// Explains an error of the plain call at the cursor. The caller holds the lock.
    #[cold]
    fn explain_at_cursor<S: Deref<Target = [u8]>>(&self, bufs: &[S], e: io::Error) -> io::Error {
        match self.std().stream_position() {
            Ok(position) => self.explain(bufs, position, e),
            Err(_) => e,
        }
    }

    /// Explains an error of an appending write.
    #[cold]
    fn explain_at_end<S: Deref<Target = [u8]>>(&self, bufs: &[S], e: io::Error) -> io::Error {
        match self.std().metadata() {
            Ok(metadata) => self.explain(bufs, metadata.len(), e),
            Err(_) => e,
        }
    }
}

/// Returns the number of bytes that one call transfers at most.
fn len_of<S: Deref<Target = [u8]>>(bufs: &[S]) -> usize {
    bufs.iter().take(MAX_SLICES).map(|buf| buf.len()).sum()
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.is_seekable() {
            return self.read_through(buf, AT_CURSOR);
        }
        let (_held, position) = self.cursor().lock_for_read()?;
        let most = buf.len().min(MAX_RW_BYTES);
        if let Some(bounce) = &self.bounce {
            let buf = &mut buf[..most];
            return self.at_cursor(most, false, |offset| bounce.read(self, buf, offset));
        }
        let (start, len) = (buf.as_mut_ptr(), most as u32);
        let op = || Op::read(self.target(), start, len, AT_CURSOR);
        let current = match self.mover(false, op) {
            Ok(current) => current,
            Err(result) => return result.map_err(|e| self.explain_at_cursor(&[buf], e)),
        };
        current.admit()?;
        let done = match self.read_inline(current, &mut buf[..most], -1, position) {
            Inline::All(count) => {
                position.inspect(|&position| self.cursor().keep(position + count as u64));
                return Ok(count);
            }
            Inline::Rest(done) => done,
        };
        let rest = &mut buf[done..most];
        let (start, len) = (rest.as_mut_ptr(), rest.len() as u32);
        let read = self.at_cursor(rest.len(), false, |offset| {
            let op = || Op::read(self.target(), start, len, offset);
            self.transfer(current, op).map_err(|e| self.explain(&[&*rest], offset, e))
        });
        match read {
            Ok(count) => Ok(done + count),
            // Returns the bytes that were read; the next read returns the error.
            Err(_) if done > 0 => Ok(done),
            Err(e) => Err(e),
        }
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if !self.is_seekable() {
            return self.read_vectored_through(bufs, AT_CURSOR, 0);
        }
        let _cursor = self.hold_cursor()?;
        if self.bounce.is_some() {
            let len = len_of(bufs);
            return self.at_cursor(len, false, |offset| self.read_vectored_at(bufs, offset));
        }
        let (slices, count) = (bufs.as_ptr().cast(), sys::slice_count(bufs.len()));
        let op = || Op::slices(Way::Read, self.fd(), slices, count, AT_CURSOR, 0);
        if let Err(result) = self.mover(false, op) {
            return result.map_err(|e| self.explain_at_cursor(bufs, e));
        }
        let len = len_of(bufs);
        self.at_cursor(len, false, |offset| self.read_vectored_at(bufs, offset))
    }

    // `read_to_end` and `read_to_string` are the trait's loops over `read`: std's own version looks
    // up the file's size, which would block this thread on the disk.
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if !self.is_seekable() || self.appends() {
            return self.write_through(buf, AT_CURSOR).map_err(|e| self.explain_at_end(&[buf], e));
        }
        let _cursor = self.hold_cursor()?;
        if let Some(bounce) = &self.bounce {
            let buf = &buf[..buf.len().min(MAX_RW_BYTES)];
            return self.at_cursor(buf.len(), true, |offset| bounce.write(self, buf, offset));
        }
        if let Err(result) = self.mover(true, || self.write_op(buf, AT_CURSOR)) {
            return result.map_err(|e| self.explain_at_cursor(&[buf], e));
        }
        self.at_cursor(buf.len(), true, |offset| self.write_at(buf, offset))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.is_seekable() || self.appends() {
            return self
                .write_vectored_through(bufs, AT_CURSOR)
                .map_err(|e| self.explain_at_end(bufs, e));
        }
        let _cursor = self.hold_cursor()?;
        if self.bounce.is_some() {
            let len = len_of(bufs);
            return self.at_cursor(len, true, |offset| self.write_vectored_at(bufs, offset));
        }
        if let Err(result) = self.mover(true, || self.gather_op(bufs, AT_CURSOR, 0)) {
            return result.map_err(|e| self.explain_at_cursor(bufs, e));
        }
        let len = len_of(bufs);
        self.at_cursor(len, true, |offset| self.write_vectored_at(bufs, offset))
    }

    /// Does nothing: a `File` has no buffer.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        let _cursor = self.hold_cursor()?;
        let as_op = self.is_seekable() && self.uses_kernels_cursor();
        let Some(current) = as_op.then(|| self.ring()).flatten() else {
            return self.std().seek(position);
        };
        let (whence, mut offset) = match position {
            SeekFrom::Start(offset) => (libc::SEEK_SET, offset as i64),
            SeekFrom::End(offset) => (libc::SEEK_END, offset),
            SeekFrom::Current(offset) => (libc::SEEK_CUR, offset),
        };
        let call = Syscall::Seek { fd: self.fd(), whence, offset: &mut offset };
        self.at_kernels_cursor(current, Op::Syscall(call))?;
        Ok(offset as u64)
    }
}

impl Read for File {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let done = match self.read_fresh(buf) {
            Inline::All(count) => return Ok(count),
            Inline::Rest(done) => done,
        };
        match (&*self).read(&mut buf[done..]) {
            Ok(count) => Ok(done + count),
            // Returns the bytes that were read; the next read returns the error.
            Err(_) if done > 0 => Ok(done),
            Err(e) => Err(e),
        }
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

writes_by!(File, |it| (&*it));

impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&*self).seek(position)
    }
}
