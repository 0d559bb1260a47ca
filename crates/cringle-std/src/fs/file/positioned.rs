//! Reads and writes at an offset, which leave the cursor alone.

use super::File;
use super::inline::Inline;
use cringle_driver::Op;
use cringle_sys::{self as sys, MAX_RW_BYTES};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Deref;
use std::os::unix::fs::FileExt;

impl File {
    /// Reads into several buffers from `offset` (in bytes) and returns the number of bytes. The
    /// cursor does not move.
    ///
    /// ```
    /// use cringle::fs::File;
    /// use std::io::IoSliceMut;
    ///
    /// let (mut magic, mut class) = ([0; 4], [0; 1]);
    /// let mut bufs = [IoSliceMut::new(&mut magic), IoSliceMut::new(&mut class)];
    /// assert_eq!(File::open("/proc/self/exe")?.read_vectored_at(&mut bufs, 0)?, 5);
    /// assert_eq!(&magic, b"\x7fELF");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_at`](FileExt::read_at); and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.check_offset(offset)?;
        if let Some(bounce) = &self.bounce {
            return bounce.read_vectored(self, bufs, offset);
        }
        self.read_vectored_through(bufs, offset, 0).map_err(|e| self.explain(bufs, offset, e))
    }

    /// Writes several buffers at `offset` (in bytes) and returns the number of bytes. The cursor
    /// does not move.
    ///
    /// ```
    /// use cringle::fs::{self, File};
    /// use std::io::IoSlice;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("file");
    /// let bufs = [IoSlice::new(b"rope "), IoSlice::new(b"strands")];
    /// File::create(&path)?.write_vectored_at(&bufs, 0)?;
    /// assert_eq!(fs::read(&path)?, b"rope strands");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write_at`](FileExt::write_at); and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.check_offset(offset)?;
        if let Some(bounce) = &self.bounce {
            return bounce.write_vectored(self, bufs, offset);
        }
        self.write_vectored_through(bufs, offset).map_err(|e| self.explain(bufs, offset, e))
    }

    /// Refuses what `pread` and `pwrite` refuse: an offset beyond the kernel's range (the largest
    /// would mean "at the cursor" to a ring, **I11**), and any offset in a stream.
    #[inline]
    pub(in crate::fs) fn check_offset(&self, offset: u64) -> io::Result<()> {
        if i64::try_from(offset).is_err() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if self.is_stream() {
            return Err(io::Error::from_raw_os_error(libc::ESPIPE));
        }
        Ok(())
    }

    /// Adds to the error which rule of direct I/O the request violates, if it does.
    #[cold]
    pub(in crate::fs) fn explain<S: Deref<Target = [u8]>>(
        &self,
        bufs: &[S],
        offset: u64,
        e: io::Error,
    ) -> io::Error {
        sys::explain_misaligned(self.fd(), bufs, offset, e)
    }
}

/// Short counts are returned as they are, and the cursor does not move.
impl FileExt for File {
    #[inline]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(bounce) = &self.bounce {
            return bounce.read(self, buf, offset);
        }
        let Some(current) = self.ring() else {
            return sys::pread(self.fd(), buf, offset)
                .map_err(|e| self.explain(&[&*buf], offset, e));
        };
        self.check_offset(offset)?;
        current.admit()?;
        if buf.is_empty() {
            // A ring would not ask the file, and one of `/proc` may refuse the offset.
            return sys::pread(self.fd(), buf, offset);
        }
        let most = buf.len().min(MAX_RW_BYTES);
        let done = match self.read_inline(current, &mut buf[..most], offset as i64, Some(offset)) {
            Inline::All(count) => return Ok(count),
            Inline::Rest(done) => done,
        };
        let rest = &mut buf[done..most];
        let (target, start, len) = (self.target(), rest.as_mut_ptr(), rest.len() as u32);
        let from = offset + done as u64;
        let op = || Op::read(target, start, len, from);
        match self.transfer(current, op) {
            Ok(count) => Ok(done + count),
            // Returns the bytes that were read; the next read returns the error.
            Err(_) if done > 0 => Ok(done),
            Err(e) => Err(self.explain(&[&*buf], offset, e)),
        }
    }

    #[inline]
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        if let Some(bounce) = &self.bounce {
            return bounce.write(self, buf, offset);
        }
        if self.writes_durably() {
            return self.write_vectored_at(&[IoSlice::new(buf)], offset);
        }
        let Some(current) = self.ring().filter(|_| !self.takes_no_pwrite()) else {
            return sys::pwrite(self.fd(), buf, offset)
                .map_err(|e| self.explain(&[&*buf], offset, e));
        };
        self.check_offset(offset)?;
        current.admit()?;
        if let Some(count) = self.write_inline(current, buf, offset as i64) {
            return Ok(count);
        }
        self.write_on(current, buf, offset).map_err(|e| self.explain(&[&*buf], offset, e))
    }
}
