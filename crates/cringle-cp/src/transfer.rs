//! Copies the bytes of one file from cursor to cursor: within the kernel where possible, else block
//! by block; large copies past the page cache (see [`uncached`](crate::uncached)). Finds holes by
//! `SEEK_DATA`, or with `--sparse=always` by zeros.
//!
//! A copy ends at a read of 0 bytes or at an error, never at a short read. It also ends for a file
//! that grows: it copies no more than the file had when it was opened. Growing and shrinking are
//! errors.

use crate::choices::When;
use crate::regular::{CopyError, is_sparse};
use crate::summary::Counters;
use crate::sys::{self, Stat};
use crate::workers::Worker;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;

/// The bytes that one call copies within the kernel; between two calls a stop is noticed.
const KERNEL_COPY_BYTES: usize = 16 << 20;

/// How the data of one file were copied, in the words of GNU's `--debug`.
#[derive(Clone, Copy)]
pub(crate) struct Method {
    pub(crate) offload: &'static str,
    pub(crate) reflink: &'static str,
    pub(crate) sparse: &'static str,
    /// Which calls left no pages in the cache, if any were to do so.
    pub(crate) uncached: Option<&'static str>,
}

impl Default for Method {
    fn default() -> Method {
        Method { offload: "unknown", reflink: "unknown", sparse: "unknown", uncached: None }
    }
}

/// A run of zeros of this size becomes a hole.
const HOLE_BYTES: usize = 4096;

/// The copy of one file's data.
pub(crate) struct Transfer<'w, 'a> {
    pub(crate) worker: &'w mut Worker<'a>,
    pub(crate) from: BorrowedFd<'w>,
    pub(crate) to: BorrowedFd<'w>,
    pub(crate) stat: &'w Stat,
    pub(crate) devices: (u64, u64),
    /// The bytes that the progress contains.
    pub(crate) shown: u64,
}

impl Transfer<'_, '_> {
    /// Copies all data; returns the number of bytes.
    pub(crate) fn run(mut self) -> Result<u64, CopyError> {
        let copied = self.copy();
        // The caller counts the complete file.
        self.worker.shared.counters.unfinished_bytes.fetch_sub(self.shown, Relaxed);
        copied
    }

    /// Adds to the progress, which is to move also during the copy of one large file.
    pub(crate) fn show(&mut self, bytes: u64) {
        self.shown += bytes;
        Counters::add(&self.worker.shared.counters.unfinished_bytes, bytes);
    }

    fn copy(&mut self) -> Result<u64, CopyError> {
        let sparse = self.worker.shared.options.sparse;
        let size = self.stat.st_size as u64;
        let has_length = sys::kind(self.stat) == libc::S_IFREG && size > 0;
        let sparse_source = has_length && sparse != When::Never && is_sparse(self.stat);
        let holes = (sparse_source || sparse == When::Always) && self.target_may_have_holes()?;
        let zeros = holes && sparse == When::Always;
        self.worker.method.sparse = match (holes && sparse_source, zeros) {
            (true, true) => "SEEK_HOLE + zeros",
            (true, false) => "SEEK_HOLE",
            (false, true) => "zeros",
            (false, false) => "no",
        };
        let most = if has_length { size } else { u64::MAX };
        let fits = has_length && size < self.worker.buffer.len() as u64;
        let copied = if holes && sparse_source {
            self.copy_extents(size, zeros)?
        } else if fits && !zeros && self.has_exact_sizes() {
            match self.copy_whole(size)? {
                copied if copied == size => return Ok(size),
                copied => copied + self.copy_blocks(size - copied, false)?,
            }
        } else if zeros || !has_length || fits {
            self.copy_blocks(most, zeros)?
        } else {
            self.copy_range(size)?
        };
        if holes {
            sys::truncate(self.to, copied).map_err(CopyError::Write)?;
        }
        if has_length { self.check_end(copied, sparse_source) } else { Ok(copied) }
    }

    /// Returns whether skipped bytes read as zeros. In a device they keep their old value, and a
    /// pipe cannot skip.
    fn target_may_have_holes(&self) -> Result<bool, CopyError> {
        let target = sys::stat_of(self.to).map_err(CopyError::Write)?;
        Ok(sys::kind(&target) == libc::S_IFREG)
    }

    /// Reads on after `copied` bytes: a file ends where a read returns 0, not at the size that
    /// `stat` returned, which may be invented or out of date. `skipped`: holes were not read.
    fn check_end(&mut self, copied: u64, skipped: bool) -> Result<u64, CopyError> {
        let size = self.stat.st_size as u64;
        // No offset is larger than `i64::MAX`.
        let room = self.worker.block_bytes().min((i64::MAX as u64 - size) as usize);
        if room == 0 && copied == size {
            return Ok(copied);
        }
        let more = self.read(room)?;
        if more == 0 && copied == size && !skipped && size < room as u64 {
            return Ok(copied);
        }
        let now = sys::stat_of(self.from).map_err(CopyError::Read)?.st_size as u64;
        match now {
            now if now > size => return Err(CopyError::Grew),
            now if now < size => return Err(CopyError::Shrank),
            // With a writeback cache, FUSE keeps the old size of a file that its server truncated.
            // The source then lacks bytes that were copied; a file whose size is invented has them.
            _ if more == 0 && copied > 0 && matches!(self.has_byte(copied - 1), Ok(false)) => {
                return Err(CopyError::Shrank);
            }
            _ if more == 0 => return Ok(copied),
            // The file was shorter a moment ago.
            _ if copied < size => return Err(CopyError::Shrank),
            _ => {}
        }
        // The file has more data than its size.
        sys::write_all(self.to, &self.worker.buffer[..more]).map_err(CopyError::Write)?;
        Ok(copied + more as u64 + self.copy_blocks(u64::MAX, false)?)
    }

    /// Returns whether the source's file system knows its files' sizes. Then a read that returns
    /// that many bytes, and had room for more, has reached the end. Elsewhere a server may invent
    /// sizes.
    fn has_exact_sizes(&mut self) -> bool {
        let device = self.devices.0;
        let known = self.worker.exact_sizes.iter().find(|known| known.0 == device);
        known.map(|known| known.1).unwrap_or_else(|| {
            let are_exact = sys::has_exact_sizes(self.from);
            self.worker.exact_sizes.push((device, are_exact));
            are_exact
        })
    }

    /// Copies with one read that has room for more bytes. Fewer than `size` is a part of the file.
    fn copy_whole(&mut self, size: u64) -> Result<u64, CopyError> {
        self.check_stop()?;
        if self.worker.method.offload == "unknown" {
            self.worker.method.offload = "avoided";
        }
        let size = size as usize;
        let n = self.read(size + 1)?;
        let bytes = &self.worker.buffer[..n.min(size)];
        sys::write_all(self.to, bytes).map_err(CopyError::Write)?;
        if n > size { Err(CopyError::Grew) } else { Ok(n as u64) }
    }

    /// Reads at most `room` bytes into the buffer. A special file may have to wait for them, until
    /// a stop.
    fn read(&mut self, room: usize) -> Result<usize, CopyError> {
        let mut waits = sys::kind(self.stat) != libc::S_IFREG;
        let mut retried = false;
        loop {
            if waits && !self.worker.shared.stop.wait_readable(self.from) {
                return Err(CopyError::Stopped);
            }
            match sys::read(self.from, &mut self.worker.buffer[..room]) {
                // Sources are opened with `O_NONBLOCK`. Some files in /proc wait as pipes do, but
                // are regular.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !retried => {
                    (waits, retried) = (true, true);
                    sys::make_blocking(self.from).map_err(CopyError::Read)?;
                }
                answer => return answer.map_err(CopyError::Read),
            }
        }
    }

    /// Fails if a stop is requested.
    pub(crate) fn check_stop(&self) -> Result<(), CopyError> {
        if self.worker.shared.stopped() { Err(CopyError::Stopped) } else { Ok(()) }
    }

    /// Returns whether the copy is so large that the page cache is left to others.
    fn is_uncached(&self) -> bool {
        let shared = self.worker.shared;
        let stored = (self.stat.st_blocks as u64).saturating_mul(512);
        let bytes = stored.min(self.stat.st_size as u64);
        let so_far = shared.counters.bytes_so_far() - self.shown;
        shared.cache_share.is_exceeded(shared.options.uncached, bytes, so_far)
    }

    /// Copies until a read returns 0, or `length` bytes are copied: past the cache if the copy is
    /// large, else within the kernel, which may share blocks. What it refuses is copied block by
    /// block.
    fn copy_range(&mut self, length: u64) -> Result<u64, CopyError> {
        let mut copied = if self.is_uncached() { self.copy_uncached(length)? } else { 0 };
        let may_share = self.worker.shared.options.reflink != When::Never;
        while copied < length && may_share && !self.worker.no_range.contains(&self.devices) {
            self.check_stop()?;
            let part =
                usize::try_from(length - copied).unwrap_or(usize::MAX).min(KERNEL_COPY_BYTES);
            match sys::copy_range(self.from, self.to, part) {
                // Some kernels return 0 for files that they cannot copy: reading finds out.
                Ok(0) => break,
                Ok(n) => {
                    copied += n as u64;
                    self.show(n as u64);
                    self.worker.method.offload = "yes";
                }
                Err(e) => {
                    if let Some(libc::EXDEV | libc::ENOSYS | libc::EOPNOTSUPP) = e.raw_os_error() {
                        self.worker.method.offload = "unsupported";
                        self.worker.no_range.push(self.devices);
                    }
                    // The error may concern either file: reading and writing find out which.
                    break;
                }
            }
        }
        if copied < length {
            copied += self.copy_blocks(length - copied, false)?;
        }
        Ok(copied)
    }

    /// Copies through user space until a read returns 0, or `most` bytes are copied.
    fn copy_blocks(&mut self, most: u64, punch_zeros: bool) -> Result<u64, CopyError> {
        let mut copied = 0;
        let method = &mut self.worker.method;
        if method.offload == "unknown" {
            method.offload = "avoided";
        }
        while copied < most {
            self.check_stop()?;
            let room = self.worker.block_bytes();
            let part = usize::try_from(most - copied).unwrap_or(usize::MAX).min(room);
            let n = self.read(part)?;
            if n == 0 {
                break;
            }
            let bytes = &self.worker.buffer[..n];
            let written = if punch_zeros {
                write_with_holes(self.to, bytes)
            } else {
                sys::write_all(self.to, bytes)
            };
            written.map_err(CopyError::Write)?;
            copied += n as u64;
            self.show(n as u64);
        }
        Ok(copied)
    }

    /// Copies extent by extent; both cursors end at the end of the file.
    fn copy_extents(&mut self, size: u64, punch_zeros: bool) -> Result<u64, CopyError> {
        let mut at = 0;
        while at < size {
            let data = match sys::seek_data(self.from, at) {
                Ok(data) => data.clamp(at, size),
                Err(e) if e.raw_os_error() == Some(libc::ENXIO) => {
                    // If the last byte cannot be read, the file does not end in a hole: its size
                    // is invented.
                    if self.has_byte(size - 1)? {
                        break;
                    }
                    at
                }
                // Holes only save time: without `SEEK_DATA`, everything is read.
                Err(_) => at,
            };
            let end = match sys::seek_hole(self.from, data) {
                Ok(end) if end > data => end.min(size),
                _ => size,
            };
            self.seek_both(data)?;
            let length = end - data;
            let copied = if punch_zeros {
                self.copy_blocks(length, true)?
            } else {
                self.copy_range(length)?
            };
            if copied < length {
                return Ok(data + copied);
            }
            at = end;
        }
        self.seek_both(size)?;
        Ok(size)
    }

    /// Moves the source's cursor to `offset` and returns whether a byte can be read there.
    fn has_byte(&self, offset: u64) -> Result<bool, CopyError> {
        sys::seek(self.from, offset).map_err(CopyError::Read)?;
        sys::read(self.from, &mut [0]).map(|n| n == 1).map_err(CopyError::Read)
    }

    fn seek_both(&self, offset: u64) -> Result<(), CopyError> {
        sys::seek(self.from, offset).map_err(CopyError::Read)?;
        sys::seek(self.to, offset).map_err(CopyError::Write)?;
        Ok(())
    }
}

/// Writes the bytes but skips pages of zeros.
fn write_with_holes(to: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    for page in bytes.chunks(HOLE_BYTES) {
        if page.iter().all(|&byte| byte == 0) {
            sys::skip(to, page.len() as i64)?;
        } else {
            sys::write_all(to, page)?;
        }
    }
    Ok(())
}
