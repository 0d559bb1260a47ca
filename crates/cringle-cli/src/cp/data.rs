//! The bytes of one file, from cursor to cursor: within the kernel where it can, else block by block;
//! holes by `SEEK_DATA`, or by looking for zeros with `--sparse=always`.
//!
//! It ends: no more is copied than the file had when it was opened. One that has more by then, or less,
//! is told.

use super::engine::Worker;
use super::options::When;
use super::regular::{Trouble, is_sparse, range_bytes};
use super::sys::{self, Stat};
use std::os::fd::RawFd;

/// How the data of one file were copied, in the words of GNU's `--debug`.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) offload: &'static str,
    pub(super) reflink: &'static str,
    pub(super) sparse: &'static str,
}

impl Default for How {
    fn default() -> How {
        How { offload: "unknown", reflink: "unknown", sparse: "unknown" }
    }
}

/// Zeros in a row that become a hole.
const HOLE_BYTES: usize = 4096;

pub(super) struct Transfer<'w, 'a> {
    pub(super) worker: &'w mut Worker<'a>,
    pub(super) from: RawFd,
    pub(super) to: RawFd,
    pub(super) stat: &'w Stat,
    pub(super) devices: (u64, u64),
}

impl Transfer<'_, '_> {
    pub(super) fn run(&mut self) -> Result<u64, Trouble> {
        let sparse = self.worker.shared.options.sparse;
        let size = self.stat.st_size as u64;
        if sys::kind(self.stat) != libc::S_IFREG || size == 0 {
            // A device, or a file that the kernel makes up: it is as long as it is.
            self.worker.how.sparse = if sparse == When::Always { "zeros" } else { "no" };
            return self.blocks(u64::MAX, sparse == When::Always).map(|(bytes, _)| bytes);
        }
        if sparse != When::Never && is_sparse(self.stat) {
            let zeros = sparse == When::Always;
            self.worker.how.sparse = if zeros { "SEEK_HOLE + zeros" } else { "SEEK_HOLE" };
            return self.extents(size, sparse == When::Always);
        }
        self.worker.how.sparse = if sparse == When::Always { "zeros" } else { "no" };
        let copied = if sparse == When::Always {
            self.punched(size)?
        } else if size < self.worker.buffer.len() as u64 {
            self.blocks(u64::MAX, false)?.0
        } else {
            self.range(size)?
        };
        self.check_length(copied)?;
        Ok(copied)
    }

    /// As many bytes as it had at first, and still has? (What the kernel makes up may say any size.)
    fn check_length(&self, copied: u64) -> Result<(), Trouble> {
        let size = self.stat.st_size as u64;
        if copied == size && size < self.worker.buffer.len() as u64 {
            // The read that brought the end saw that it was the end.
            return Ok(());
        }
        let now = sys::stat_of(self.from).map_err(Trouble::Read)?.st_size as u64;
        match now {
            now if now > size => Err(Trouble::Grew),
            now if now < size => Err(Trouble::Shrank),
            _ => Ok(()),
        }
    }

    fn look(&self) -> Result<(), Trouble> {
        if self.worker.shared.stopped() { Err(Trouble::Stopped) } else { Ok(()) }
    }

    /// Within the kernel; what it refuses goes block by block.
    fn range(&mut self, length: u64) -> Result<u64, Trouble> {
        let mut copied = 0;
        while copied < length && !self.worker.no_range.contains(&self.devices) {
            self.look()?;
            let part = usize::try_from(length - copied).unwrap_or(usize::MAX).min(range_bytes());
            match sys::copy_range(self.from, self.to, part) {
                // Some kernels say 0 of what they cannot copy: reading decides.
                Ok(0) => break,
                Ok(n) => {
                    copied += n as u64;
                    self.worker.how.offload = "yes";
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                        return Err(Trouble::Write(e));
                    }
                    Some(libc::EIO) => return Err(Trouble::Read(e)),
                    Some(libc::EXDEV | libc::ENOSYS | libc::EOPNOTSUPP) => {
                        self.worker.how.offload = "unsupported";
                        self.worker.no_range.push(self.devices);
                    }
                    _ => break,
                },
            }
        }
        if copied < length {
            copied += self.blocks(length - copied, false)?.0;
        }
        Ok(copied)
    }

    /// Through user space, at most so many bytes. Returns how many, and how many of them, at the end,
    /// were left out as a hole.
    fn blocks(&mut self, most: u64, zeros_to_holes: bool) -> Result<(u64, u64), Trouble> {
        let (mut copied, mut hole) = (0, 0);
        let how = &mut self.worker.how;
        if how.offload == "unknown" {
            how.offload = "avoided";
        }
        while copied < most {
            self.look()?;
            let room = self.worker.buffer.len();
            let part = usize::try_from(most - copied).unwrap_or(usize::MAX).min(room);
            let buffer = &mut self.worker.buffer[..part];
            let n = sys::read(self.from, buffer).map_err(Trouble::Read)?;
            if n == 0 {
                break;
            }
            if zeros_to_holes {
                hole = write_with_holes(self.to, &self.worker.buffer[..n], hole)?;
            } else {
                sys::write_all(self.to, &self.worker.buffer[..n]).map_err(Trouble::Write)?;
            }
            copied += n as u64;
            // A regular file gives less than was asked for at its end only.
            if n < part && self.stat.st_size > 0 && sys::kind(self.stat) == libc::S_IFREG {
                break;
            }
        }
        if zeros_to_holes && hole > 0 && self.stat.st_size == 0 {
            self.end_in_hole()?;
        }
        Ok((copied, hole))
    }

    /// Where the cursor stands, the file ends.
    fn end_in_hole(&self) -> Result<(), Trouble> {
        let end = sys::seek(self.to, 0, libc::SEEK_CUR).map_err(Trouble::Write)?;
        sys::truncate(self.to, end).map_err(Trouble::Write)
    }

    fn punched(&mut self, size: u64) -> Result<u64, Trouble> {
        let (copied, _) = self.blocks(size, true)?;
        sys::truncate(self.to, copied).map_err(Trouble::Write)?;
        Ok(copied)
    }

    /// It shrank, or it is one of those that say a page and have a line (`/sys`).
    fn ended_early(&self, size: u64, end: u64) -> Result<u64, Trouble> {
        let now = sys::stat_of(self.from).map_err(Trouble::Read)?.st_size as u64;
        if now < size {
            return Err(Trouble::Shrank);
        }
        sys::truncate(self.to, end).map_err(Trouble::Write)?;
        Ok(end)
    }

    /// Extent by extent.
    fn extents(&mut self, size: u64, zeros_to_holes: bool) -> Result<u64, Trouble> {
        let mut at = 0;
        while at < size {
            let data = match sys::seek(self.from, at, libc::SEEK_DATA) {
                Ok(data) => data.min(size),
                Err(e) if e.raw_os_error() == Some(libc::ENXIO) => break,
                // No such seek here: all of it is data.
                Err(_) if at == 0 => 0,
                Err(e) => return Err(Trouble::Read(e)),
            };
            let end = sys::seek(self.from, data, libc::SEEK_HOLE).map_or(size, |end| end.min(size));
            sys::seek(self.from, data, libc::SEEK_SET).map_err(Trouble::Read)?;
            sys::seek(self.to, data, libc::SEEK_SET).map_err(Trouble::Write)?;
            let length = end.saturating_sub(data);
            let copied =
                if zeros_to_holes { self.blocks(length, true)?.0 } else { self.range(length)? };
            if copied < length {
                return self.ended_early(size, data + copied);
            }
            at = end;
        }
        sys::truncate(self.to, size).map_err(Trouble::Write)?;
        let now = sys::stat_of(self.from).map_err(Trouble::Read)?.st_size as u64;
        match now {
            now if now > size => Err(Trouble::Grew),
            now if now < size => Err(Trouble::Shrank),
            _ => Ok(size),
        }
    }
}

/// Pages of zeros are stepped over. `hole`: the bytes before that were; returns how many are at the end.
fn write_with_holes(to: RawFd, bytes: &[u8], mut hole: u64) -> Result<u64, Trouble> {
    for page in bytes.chunks(HOLE_BYTES) {
        if page.iter().all(|&byte| byte == 0) {
            let seek = sys::seek_by(to, page.len() as i64);
            seek.map_err(Trouble::Write)?;
            hole += page.len() as u64;
        } else {
            sys::write_all(to, page).map_err(Trouble::Write)?;
            hole = 0;
        }
    }
    Ok(hole)
}
