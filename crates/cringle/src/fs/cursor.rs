//! Reading and writing at the file's cursor (**I11**).
//!
//! The ring is never asked to use the cursor of a seekable file: sequential `O_DIRECT` reads there
//! all return the first block, and concurrent ones repeat blocks, where the plain calls serialise.
//! So whoever uses the cursor holds a lock that all clones of the file share, takes the cursor,
//! does the op at that offset, and sets the cursor by the bytes moved. Two kinds of calls need no
//! such care: a read from the page cache that does not wait moves the kernel's cursor itself, and
//! an appending write has no use for one.

use super::File;
use super::copy::copy_range;
use super::file::Inline;
use crate::driver::Op;
use crate::driver::op::AT_CURSOR;
use crate::fiber::lock::{Lock, LockGuard};
use crate::fiber::op::perform_aside;
use crate::runtime::worker::Worker;
use crate::sys::{self, MAX_RW_BYTES, MAX_SLICES};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The lock of a file's cursor, shared by the clones of the file.
pub(super) type CursorLock = Arc<Lock>;

impl File {
    fn hold_cursor(&self) -> io::Result<LockGuard<'_>> {
        self.cursor_lock().lock()
    }

    /// Does `op` at the cursor and moves it; the lock is held.
    fn at_cursor(&self, op: impl FnOnce(u64) -> io::Result<usize>) -> io::Result<usize> {
        let position = self.std().stream_position()?;
        let count = op(position)?;
        if count > 0 {
            self.std().seek(SeekFrom::Start(position + count as u64))?;
        }
        Ok(count)
    }

    /// Copies bytes from this file's cursor to the other's, within the kernel, and moves both: how many.
    /// `None` where that cannot be done: the cursor is the same one, or a file has none, or appends.
    pub(crate) fn copy_at_cursors(&self, to: &File, len: usize) -> io::Result<Option<usize>> {
        let (ours, theirs) = (self.cursor_lock(), to.cursor_lock());
        let seekable = self.is_seekable() && to.is_seekable() && !to.appends();
        if !seekable || Arc::ptr_eq(ours, theirs) {
            return Ok(None);
        }
        // In one order for all, so that two who copy in opposite directions do not wait for each other.
        let _held = match Arc::as_ptr(ours) < Arc::as_ptr(theirs) {
            true => (self.hold_cursor()?, to.hold_cursor()?),
            false => (to.hold_cursor()?, self.hold_cursor()?),
        };
        let target = to.std().stream_position()?;
        let copied = self.at_cursor(|source| copy_range(self, source, to, target, len))?;
        to.std().seek(SeekFrom::Start(target + copied as u64))?;
        Ok(Some(copied))
    }

    /// A plain write at the cursor of a file that takes no other: its lock is held.
    #[cold]
    fn write_plainly_at_cursor(&self, op: Op) -> io::Result<usize> {
        if let Some((worker, fiber)) = Worker::current()
            && worker.refuses(fiber)
        {
            return Err(fiber.cancel_error());
        }
        // SAFETY: the caller's buffers are borrowed until this returns.
        sys::result_of(unsafe { perform_aside(op) })
    }

    /// Explains an error of the plain call at the cursor; the lock is held.
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

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.is_seekable() {
            return self.read_through(buf, AT_CURSOR);
        }
        let _cursor = self.hold_cursor()?;
        if self.is_plain() {
            return self.std().read(buf).map_err(|e| self.explain_at_cursor(&[buf], e));
        }
        let most = buf.len().min(MAX_RW_BYTES);
        let done = match self.read_cached_at_cursor(&mut buf[..most])? {
            Inline::All(count) => return Ok(count),
            Inline::Rest(done) => done,
        };
        let rest = &mut buf[done..most];
        let read = self.at_cursor(|offset| {
            self.read_through(rest, offset).map_err(|e| self.explain(&[&*rest], offset, e))
        });
        match read {
            Ok(count) => Ok(done + count),
            // What was read counts; the error comes again with the next read.
            Err(_) if done > 0 => Ok(done),
            Err(e) => Err(e),
        }
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if !self.is_seekable() {
            return self.read_vectored_through(bufs, AT_CURSOR);
        }
        let _cursor = self.hold_cursor()?;
        if self.is_plain() {
            return self.std().read_vectored(bufs).map_err(|e| self.explain_at_cursor(bufs, e));
        }
        self.at_cursor(|offset| self.read_vectored_at(bufs, offset))
    }

    // `read_to_end` and `read_to_string` are std's loops over `read`: its probing of a file's size
    // would wait for the disk on this thread.
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if !self.is_seekable() || self.appends() {
            return self.write_through(buf, AT_CURSOR).map_err(|e| self.explain_at_end(&[buf], e));
        }
        let _cursor = self.hold_cursor()?;
        if self.is_plain() {
            return self.std().write(buf).map_err(|e| self.explain_at_cursor(&[buf], e));
        }
        if self.takes_no_pwrite() {
            let (buf, len) = (buf.as_ptr(), buf.len().min(MAX_RW_BYTES) as u32);
            let op = Op::Write { target: self.target(), buf, len, offset: AT_CURSOR };
            return self.write_plainly_at_cursor(op);
        }
        self.at_cursor(|offset| self.write_at(buf, offset))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.is_seekable() || self.appends() {
            return self
                .write_vectored_through(bufs, AT_CURSOR)
                .map_err(|e| self.explain_at_end(bufs, e));
        }
        let _cursor = self.hold_cursor()?;
        if self.is_plain() {
            return self.std().write_vectored(bufs).map_err(|e| self.explain_at_cursor(bufs, e));
        }
        if self.takes_no_pwrite() {
            let (slices, count) = (bufs.as_ptr().cast(), bufs.len().min(MAX_SLICES) as u32);
            let fd = self.std().as_raw_fd();
            let op = Op::WriteVectored { fd, slices, count, offset: AT_CURSOR };
            return self.write_plainly_at_cursor(op);
        }
        self.at_cursor(|offset| self.write_vectored_at(bufs, offset))
    }

    /// Nothing is buffered: does nothing.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        let _cursor = self.hold_cursor()?;
        self.std().seek(position)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&*self).seek(position)
    }
}
