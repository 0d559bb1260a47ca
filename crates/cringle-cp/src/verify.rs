//! `--verify`: reads both files and compares them.

use crate::regular::CopyError;
use crate::sys;
use crate::workers::Worker;
use std::io;
use std::os::fd::BorrowedFd;

impl Worker<'_> {
    /// Compares both files from the beginning. Writes the target to its disk and drops it from the
    /// page cache first, so that the disk is read where the file system allows it.
    pub(crate) fn verify(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
    ) -> Result<(), CopyError> {
        let kind = sys::kind(&sys::stat_of(to).map_err(CopyError::ReadBack)?);
        // A pipe or a character device cannot be read back.
        if !matches!(kind, libc::S_IFREG | libc::S_IFBLK) {
            return Err(CopyError::Unverifiable);
        }
        sys::sync_data(to).map_err(CopyError::Write)?;
        sys::drop_cache(to);
        self.compare((from, to), kind == libc::S_IFREG)
    }

    /// Compares both files from the beginning. `is_file`: the target ends with its source. (A
    /// device is longer than the data copied to it.)
    pub(crate) fn compare(
        &mut self,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        is_file: bool,
    ) -> Result<(), CopyError> {
        sys::seek(from, 0).map_err(CopyError::Read)?;
        sys::seek(to, 0).map_err(CopyError::ReadBack)?;
        let half = self.buffer.len() / 2;
        let (left, right) = self.buffer.split_at_mut(half);
        loop {
            if self.shared.stopped() {
                return Err(CopyError::Stopped);
            }
            let n = read_full(from, left).map_err(CopyError::Read)?;
            let compared = if n == 0 && is_file { 1 } else { n };
            let m = read_full(to, &mut right[..compared]).map_err(CopyError::ReadBack)?;
            if left[..n] != right[..m] {
                return Err(CopyError::Differs);
            }
            if n == 0 {
                return Ok(());
            }
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn read_full(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match sys::read(fd, &mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}
