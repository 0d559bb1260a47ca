//! The bytes of one file, from cursor to cursor: within the kernel where it can, else block by block;
//! holes by `SEEK_DATA`, or by looking for zeros with `--sparse=always`.
//!
//! A read ends at 0 or at an error, never because it was short. A copy ends, too: of a file that grows, no
//! more is copied than it had when it was opened. Growing and shrinking are errors.

use crate::options::When;
use crate::regular::{Trouble, is_sparse, range_bytes};
use crate::sys::{self, Stat};
use crate::workers::Worker;
use std::io;
use std::os::fd::RawFd;

/// How the data of one file were copied, in the words of GNU's `--debug`.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) offload: &'static str,
    pub(crate) reflink: &'static str,
    pub(crate) sparse: &'static str,
}

impl Default for How {
    fn default() -> How {
        How { offload: "unknown", reflink: "unknown", sparse: "unknown" }
    }
}

/// Zeros in a row that become a hole.
const HOLE_BYTES: usize = 4096;

pub(crate) struct Transfer<'w, 'a> {
    pub(crate) worker: &'w mut Worker<'a>,
    pub(crate) from: RawFd,
    pub(crate) to: RawFd,
    pub(crate) stat: &'w Stat,
    pub(crate) devices: (u64, u64),
}

impl Transfer<'_, '_> {
    /// Copies until a read returns 0; returns the number of bytes.
    pub(crate) fn run(&mut self) -> Result<u64, Trouble> {
        let sparse = self.worker.shared.options.sparse;
        let size = self.stat.st_size as u64;
        let has_length = sys::kind(self.stat) == libc::S_IFREG && size > 0;
        let sparse_source = has_length && sparse != When::Never && is_sparse(self.stat);
        let holes = (sparse_source || sparse == When::Always) && self.target_has_holes()?;
        let zeros = holes && sparse == When::Always;
        self.worker.how.sparse = match (holes && sparse_source, zeros) {
            (true, true) => "SEEK_HOLE + zeros",
            (true, false) => "SEEK_HOLE",
            (false, true) => "zeros",
            (false, false) => "no",
        };
        let most = if has_length { size } else { u64::MAX };
        let fits = has_length && size < self.worker.buffer.len() as u64;
        let copied = if holes && sparse_source {
            self.extents(size, zeros)?
        } else if fits && !zeros && self.sizes_are_true() {
            match self.whole(size)? {
                copied if copied == size => return Ok(size),
                copied => copied + self.blocks(size - copied, false)?,
            }
        } else if zeros || !has_length || fits {
            self.blocks(most, zeros)?
        } else {
            self.range(size)?
        };
        if holes {
            sys::truncate(self.to, copied).map_err(Trouble::Write)?;
        }
        if has_length { self.rest(copied, sparse_source) } else { Ok(copied) }
    }

    /// Whether skipped bytes read as zeros. In a device they keep their old value; a pipe cannot skip.
    fn target_has_holes(&self) -> Result<bool, Trouble> {
        let target = sys::stat_of(self.to).map_err(Trouble::Write)?;
        Ok(sys::kind(&target) == libc::S_IFREG)
    }

    /// A file ends where a read returns 0, not at the size that `stat` returned: that may be made up, or
    /// out of date. `skipped`: holes were not read.
    fn rest(&mut self, copied: u64, skipped: bool) -> Result<u64, Trouble> {
        let size = self.stat.st_size as u64;
        // (No offset lies beyond.)
        let room = self.worker.block().min((i64::MAX as u64 - size) as usize);
        if room == 0 && copied == size {
            return Ok(copied);
        }
        let more = self.read(room)?;
        if more == 0 && copied == size && !skipped && size < room as u64 {
            return Ok(copied);
        }
        let now = sys::stat_of(self.from).map_err(Trouble::Read)?.st_size as u64;
        match now {
            now if now > size => return Err(Trouble::Grew),
            now if now < size => return Err(Trouble::Shrank),
            _ if more == 0 => return Ok(copied),
            // It was shorter a moment ago.
            _ if copied < size => return Err(Trouble::Shrank),
            _ => {}
        }
        // It has more than it says.
        sys::write_all(self.to, &self.worker.buffer[..more]).map_err(Trouble::Write)?;
        Ok(copied + more as u64 + self.blocks(u64::MAX, false)?)
    }

    /// Whether the source's file system knows its files' sizes: then a read that returns as many bytes,
    /// and had room for more, has seen the end. Others' sizes are what a server says.
    fn sizes_are_true(&mut self) -> bool {
        let device = self.devices.0;
        let known = self.worker.true_sizes.iter().find(|known| known.0 == device);
        known.map(|known| known.1).unwrap_or_else(|| {
            let are_true = sys::sizes_are_true(self.from);
            self.worker.true_sizes.push((device, are_true));
            are_true
        })
    }

    /// By one read with room for more. Less than `size` is a part.
    fn whole(&mut self, size: u64) -> Result<u64, Trouble> {
        self.look()?;
        if self.worker.how.offload == "unknown" {
            self.worker.how.offload = "avoided";
        }
        let size = size as usize;
        let n = self.read(size + 1)?;
        let bytes = &self.worker.buffer[..n.min(size)];
        sys::write_all(self.to, bytes).map_err(Trouble::Write)?;
        if n > size { Err(Trouble::Grew) } else { Ok(n as u64) }
    }

    /// At most `room` bytes into the buffer. What is no regular file may have to wait for them, until
    /// Ctrl-C.
    fn read(&mut self, room: usize) -> Result<usize, Trouble> {
        let mut waits = sys::kind(self.stat) != libc::S_IFREG;
        let mut asked_again = false;
        loop {
            if waits && !self.worker.shared.stop.wait_readable(self.from) {
                return Err(Trouble::Stopped);
            }
            match sys::read(self.from, &mut self.worker.buffer[..room]) {
                // Sources are opened with `O_NONBLOCK`. Some in /proc wait as pipes do, and say that they
                // are regular files.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !asked_again => {
                    (waits, asked_again) = (true, true);
                    sys::wait_in_reads(self.from).map_err(Trouble::Read)?;
                }
                answer => return answer.map_err(Trouble::Read),
            }
        }
    }

    fn look(&self) -> Result<(), Trouble> {
        if self.worker.shared.stopped() { Err(Trouble::Stopped) } else { Ok(()) }
    }

    /// Within the kernel, which may share blocks then; what it refuses goes block by block.
    fn range(&mut self, length: u64) -> Result<u64, Trouble> {
        let mut copied = 0;
        let may_share = self.worker.shared.options.reflink != When::Never;
        while copied < length && may_share && !self.worker.no_range.contains(&self.devices) {
            self.look()?;
            let part = usize::try_from(length - copied).unwrap_or(usize::MAX).min(range_bytes());
            match sys::copy_range(self.from, self.to, part) {
                // Some kernels say 0 of what they cannot copy: reading decides.
                Ok(0) => break,
                Ok(n) => {
                    copied += n as u64;
                    self.worker.how.offload = "yes";
                }
                Err(e) => {
                    if let Some(libc::EXDEV | libc::ENOSYS | libc::EOPNOTSUPP) = e.raw_os_error() {
                        self.worker.how.offload = "unsupported";
                        self.worker.no_range.push(self.devices);
                    }
                    // The error may be of either file: reading and writing find out which.
                    break;
                }
            }
        }
        if copied < length {
            copied += self.blocks(length - copied, false)?;
        }
        Ok(copied)
    }

    /// Through user space: until a read returns 0, or `most` bytes are copied.
    fn blocks(&mut self, most: u64, zeros_to_holes: bool) -> Result<u64, Trouble> {
        let mut copied = 0;
        let how = &mut self.worker.how;
        if how.offload == "unknown" {
            how.offload = "avoided";
        }
        while copied < most {
            self.look()?;
            let room = self.worker.block();
            let part = usize::try_from(most - copied).unwrap_or(usize::MAX).min(room);
            let n = self.read(part)?;
            if n == 0 {
                break;
            }
            let bytes = &self.worker.buffer[..n];
            let written = if zeros_to_holes {
                write_with_holes(self.to, bytes)
            } else {
                sys::write_all(self.to, bytes)
            };
            written.map_err(Trouble::Write)?;
            copied += n as u64;
        }
        Ok(copied)
    }

    /// Extent by extent; both cursors end where the file does.
    fn extents(&mut self, size: u64, zeros_to_holes: bool) -> Result<u64, Trouble> {
        let mut at = 0;
        while at < size {
            let data = match sys::seek(self.from, at, libc::SEEK_DATA) {
                Ok(data) => data.clamp(at, size),
                Err(e) if e.raw_os_error() == Some(libc::ENXIO) => {
                    if self.reaches(size)? {
                        break;
                    }
                    at
                }
                // A hole is only worth something where it is found: what follows is read.
                Err(_) => at,
            };
            let end = match sys::seek(self.from, data, libc::SEEK_HOLE) {
                Ok(end) if end > data => end.min(size),
                _ => size,
            };
            self.seek_both(data)?;
            let length = end - data;
            let copied =
                if zeros_to_holes { self.blocks(length, true)? } else { self.range(length)? };
            if copied < length {
                return Ok(data + copied);
            }
            at = end;
        }
        self.seek_both(size)?;
        Ok(size)
    }

    /// Whether a last byte can be read: else there is no hole at the end, and the size is made up.
    fn reaches(&self, size: u64) -> Result<bool, Trouble> {
        sys::seek(self.from, size - 1, libc::SEEK_SET).map_err(Trouble::Read)?;
        sys::read(self.from, &mut [0]).map(|n| n == 1).map_err(Trouble::Read)
    }

    fn seek_both(&self, offset: u64) -> Result<(), Trouble> {
        sys::seek(self.from, offset, libc::SEEK_SET).map_err(Trouble::Read)?;
        sys::seek(self.to, offset, libc::SEEK_SET).map_err(Trouble::Write)?;
        Ok(())
    }
}

/// Skips pages of zeros.
fn write_with_holes(to: RawFd, bytes: &[u8]) -> io::Result<()> {
    for page in bytes.chunks(HOLE_BYTES) {
        if page.iter().all(|&byte| byte == 0) {
            sys::seek_by(to, page.len() as i64)?;
        } else {
            sys::write_all(to, page)?;
        }
    }
    Ok(())
}
