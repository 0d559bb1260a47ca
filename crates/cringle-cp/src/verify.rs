//! `--verify`: reads both files again and compares them.

use crate::regular::Trouble;
use crate::sys;
use crate::workers::Worker;
use std::io;
use std::os::fd::RawFd;

impl Worker<'_> {
    /// Compares both from the beginning. The target is written to its disk first, and where the file
    /// system lets go of clean pages, it is read from there.
    pub(crate) fn verify(&mut self, from: RawFd, to: RawFd) -> Result<(), Trouble> {
        let is_file = match sys::kind(&sys::stat_of(to).map_err(Trouble::ReadBack)?) {
            libc::S_IFREG => true,
            libc::S_IFBLK => false,
            // Nothing that was written can be read again.
            _ => return Err(Trouble::Unverifiable),
        };
        sys::sync_data(to).map_err(Trouble::Write)?;
        sys::forget_cached(to);
        sys::seek(from, 0, libc::SEEK_SET).map_err(Trouble::Read)?;
        sys::seek(to, 0, libc::SEEK_SET).map_err(Trouble::ReadBack)?;
        let half = self.buffer.len() / 2;
        let (left, right) = self.buffer.split_at_mut(half);
        loop {
            if self.shared.stopped() {
                return Err(Trouble::Stopped);
            }
            let n = read_full(from, left).map_err(Trouble::Read)?;
            // A device is longer than what was copied to it; a file has to end with its source.
            let compared = if n == 0 && is_file { 1 } else { n };
            let m = read_full(to, &mut right[..compared]).map_err(Trouble::ReadBack)?;
            if left[..n] != right[..m] {
                return Err(Trouble::Differs);
            }
            if n == 0 {
                return Ok(());
            }
        }
    }
}

fn read_full(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match sys::read(fd, &mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}
