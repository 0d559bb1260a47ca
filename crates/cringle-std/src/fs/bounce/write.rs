//! Writes of any bytes of a direct file.

use super::super::File;
use super::{Bounce, Buffered, pool};
use cringle_sys::{self as sys, mapped_copy::copy_all};
use std::io::{self, IoSlice};

impl Bounce {
    /// Writes at an offset. A count smaller than the buffer's length is returned only if the rest
    /// failed: the next write returns the error.
    pub(in crate::fs) fn write(&self, file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
        file.check_offset(offset)?;
        if buf.is_empty() {
            return sys::pwrite(file.fd(), buf, offset);
        }
        let end = Bounce::end_of_request(offset, buf.len())?;
        let result = self.write_directly(file, buf, offset, end);
        self.plainly_if_refused(file, result, || file.write_through(buf, offset))
    }

    /// Writes up to the end, past the page cache as far as the file has whole blocks.
    fn write_directly(&self, file: &File, buf: &[u8], offset: u64, end: u64) -> io::Result<usize> {
        let blocks = self.floor(offset)..self.ceil(end);
        // The kernel writes whole blocks, so it would make the file end with a block.
        let is_past_end =
            || -> io::Result<bool> { Ok(self.within(end) > 0 && blocks.end > self.end_of(file)?) };
        let held = self.writes.lock(blocks.clone())?;
        if !is_past_end()? {
            return self.write_blocks(file, buf, offset);
        }
        drop(held);
        let _all = self.writes.lock(0..u64::MAX)?;
        // Another write may have made the file longer meanwhile.
        if !is_past_end()? {
            return self.write_blocks(file, buf, offset);
        }
        self.write_last_block(file, buf, offset)
    }

    /// Writes several buffers, as many as one call of the kernel takes, through a buffer of the
    /// pool, and as many bytes as that buffer holds.
    pub(in crate::fs) fn write_vectored(
        &self,
        file: &File,
        bufs: &[IoSlice<'_>],
        offset: u64,
    ) -> io::Result<usize> {
        let bufs = &bufs[..bufs.len().min(sys::MAX_SLICES)];
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut gathered = pool::take(len.min(pool::LARGE_BYTES));
        let mut rest = &mut gathered[..];
        for buf in bufs {
            let (now, later) = rest.split_at_mut(rest.len().min(buf.len()));
            copy_all(&buf[..now.len()], now)?;
            rest = later;
        }
        self.write(file, &gathered, offset)
    }

    /// Writes up to the end of the file, which becomes the end of the write or stays where it is
    /// within the same block. The bytes of that block go through the page cache: the kernel writes
    /// exactly these bytes there. All blocks are held, so that no direct write of this process is
    /// under way, with which the page cache would be in conflict.
    fn write_last_block(&self, file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
        let end = offset + buf.len() as u64;
        let before_last = (self.floor(end).max(offset) - offset) as usize;
        let (whole, last) = buf.split_at(before_last);
        if !whole.is_empty() {
            let count = self.write_blocks(file, whole, offset)?;
            if count < whole.len() {
                return Ok(count);
            }
        }
        let written = Buffered::begin(file)
            .and_then(|_buffered| file.write_through(last, offset + before_last as u64));
        match written {
            Ok(count) => Ok(before_last + count),
            Err(_) if before_last > 0 => Ok(before_last),
            Err(e) => Err(e),
        }
    }

    /// Writes bytes whose last block lies within the file, or ends with them. The blocks are held.
    fn write_blocks(&self, file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let (rest, at) = (&buf[done..], offset + done as u64);
            match self.write_piece(file, rest, at) {
                // The kernel has written nothing, and reports no error.
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Writes some of the bytes, and returns their number.
    fn write_piece(&self, file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
        let end = offset + buf.len() as u64;
        let address = buf.as_ptr().addr();
        if self.accepts(address, buf.len(), offset) {
            return file.write_through(buf, offset);
        }
        if self.ceil(end) - self.floor(offset) <= pool::SMALL_BYTES as u64 {
            return self.change_blocks(file, buf, offset);
        }
        if self.within(offset) > 0 || buf.len() < self.block {
            let in_block = self.block - self.within(offset);
            return self.change_blocks(file, &buf[..in_block.min(buf.len())], offset);
        }
        let whole = &buf[..buf.len() - buf.len() % self.block];
        if self.accepts(address, whole.len(), offset) {
            return file.write_through(whole, offset);
        }
        let piece = &whole[..whole.len().min(pool::LARGE_BYTES.max(self.block))];
        let mut buffer = pool::take(piece.len());
        copy_all(piece, &mut buffer)?;
        file.write_through(&buffer, offset)
    }

    /// Reads the blocks of a write, changes the written bytes, and writes the blocks.
    fn change_blocks(&self, file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
        let (from, before) = (self.floor(offset), self.within(offset));
        let len = (self.ceil(offset + buf.len() as u64) - from) as usize;
        let mut blocks = pool::take(len);
        if before > 0 || len > buf.len() {
            self.read_blocks(file, &mut blocks, from)?;
        }
        copy_all(buf, &mut blocks[before..][..buf.len()])?;
        let mut written = 0;
        while written < len {
            match file.write_through(&blocks[written..], from + written as u64) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(_) if written > before => break,
                Err(e) => return Err(e),
            }
        }
        Ok(written.saturating_sub(before).min(buf.len()))
    }

    /// Reads whole blocks, and zeros beyond the end of the file. Bytes that were not read would be
    /// overwritten by zeros: a read that was short is repeated, unless it reached the end.
    fn read_blocks(&self, file: &File, blocks: &mut [u8], from: u64) -> io::Result<()> {
        let (mut known, mut was_within) = (0, false);
        while known < blocks.len() {
            let count = file.read_through(&mut blocks[known..], from + known as u64)?;
            let end = known + count;
            let is_at_end =
                self.is_device && count == 0 || from + end as u64 >= self.end_of(file)?;
            if end < blocks.len() && is_at_end {
                blocks[end..].fill(0);
                return Ok(());
            }
            // The end may have passed these blocks since they were read: the writer of later blocks
            // does not wait for this one.
            if count == 0 && was_within {
                let text = "the kernel read no byte of a block that lies within the file, so the \
                            write could not keep the block's other bytes: nothing was written";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            was_within = count == 0;
            known = end - end % self.block;
        }
        Ok(())
    }
}
