//! Reads of any bytes of a direct file.

use super::super::File;
use super::{Bounce, pool};
use cringle_sys::{self as sys, mapped_copy::copy_all};
use std::io::{self, IoSliceMut};

/// The number of reads without a byte of the request that are repeated, before the file ends.
const MOST_EMPTY: u32 = 100;

impl Bounce {
    /// Reads at an offset until the buffer is full or the file ends.
    pub(in crate::fs) fn read(
        &self,
        file: &File,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        if self.refuses_reads {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        file.check_offset(offset)?;
        if buf.is_empty() {
            return sys::pread(file.fd(), buf, offset);
        }
        Bounce::end_of_request(offset, buf.len())?;
        let result = self.read_directly(file, buf, offset);
        self.plainly_if_refused(file, result, || file.read_through(buf, offset))
    }

    fn read_directly(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut done, mut empty) = (0, 0);
        while done < buf.len() {
            let (rest, at) = (&mut buf[done..], offset + done as u64);
            let piece = if self.accepts(rest.as_ptr().addr(), rest.len(), at) {
                let len = rest.len();
                file.read_through(rest, at).map(|count| (count, count == len))
            } else if self.lies_aligned(rest, at) {
                self.read_in_place(file, rest, at)
            } else {
                self.read_copied(file, rest, at)
            };
            match piece {
                Ok((count, true)) => done += count,
                // A read that was short has ended before the first byte of the request.
                Ok((0, false)) if empty < MOST_EMPTY && at < self.end_of(file)? => empty += 1,
                Ok((count, false)) => return Ok(done + count),
                // Returns the bytes that were read; the next read returns the error.
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Reads into several buffers, as many as one call of the kernel takes, through a buffer of the
    /// pool, and as many bytes as that buffer holds.
    pub(in crate::fs) fn read_vectored(
        &self,
        file: &File,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<usize> {
        let most = bufs.len().min(sys::MAX_SLICES);
        let bufs = &mut bufs[..most];
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut gathered = pool::take(len.min(pool::LARGE_BYTES));
        let count = self.read(file, &mut gathered, offset)?;
        let mut rest = &gathered[..count];
        for buf in bufs {
            let (now, later) = rest.split_at(rest.len().min(buf.len()));
            copy_all(now, &mut buf[..now.len()])?;
            rest = later;
        }
        Ok(count)
    }

    /// Whether some whole blocks of the request lie in aligned memory of the caller.
    fn lies_aligned(&self, buf: &[u8], offset: u64) -> bool {
        let head = (self.ceil(offset) - offset) as usize;
        buf.len() >= head + self.block && self.accepts_memory(buf[head..].as_ptr().addr())
    }

    /// Reads whole blocks into the caller's memory, and the blocks at the edges through a buffer,
    /// by one call. Returns the number of bytes, and whether it is all that was asked for.
    fn read_in_place(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<(usize, bool)> {
        let most = sys::MAX_RW_BYTES - 2 * self.block;
        let asked = if buf.len() > most { most - most % self.block } else { buf.len() };
        let before = self.within(offset);
        let head = (self.ceil(offset) - offset) as usize;
        let tail = (asked - head) % self.block;
        let (head_buf, rest) = buf[..asked].split_at_mut(head);
        let (middle, tail_buf) = rest.split_at_mut(asked - head - tail);
        let edges = usize::from(head > 0) + usize::from(tail > 0);
        let mut edges = pool::take(edges * self.block);
        let (first, last) = edges.split_at_mut(if head > 0 { self.block } else { 0 });
        let mut slices = [IoSliceMut::new(first), IoSliceMut::new(middle), IoSliceMut::new(last)];
        // Slices without bytes are left out.
        let slices = &mut slices[usize::from(head == 0)..2 + usize::from(tail > 0)];
        let from = self.floor(offset);
        let count = file.read_vectored_through(slices, from, 0)?;
        let count = count.saturating_sub(before).min(asked);
        let in_head = count.min(head);
        copy_all(&first[before..][..in_head], &mut head_buf[..in_head])?;
        let in_tail = count.saturating_sub(asked - tail);
        copy_all(&last[..in_tail], &mut tail_buf[..in_tail])?;
        Ok((count, count == asked))
    }

    /// Reads through a buffer, as many bytes as it holds.
    fn read_copied(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<(usize, bool)> {
        let (from, before) = (self.floor(offset), self.within(offset));
        let most = pool::LARGE_BYTES.max(self.block) - before;
        let asked = buf.len().min(most);
        let blocks = (self.ceil(offset + asked as u64) - from) as usize;
        let mut buffer = pool::take(blocks);
        let count = file.read_through(&mut buffer, from)?;
        let count = count.saturating_sub(before).min(asked);
        copy_all(&buffer[before..][..count], &mut buf[..count])?;
        Ok((count, count == asked))
    }
}
