//! The reads of mapped files in a batch.

use super::{Copied, MappedFile, copying, pause};
use crate::notes::Note;
use crate::{Batch, OpId};
use cringle_core::worker::Current;
use cringle_driver::completion::OpState;
use cringle_driver::{Memory, Op};
use cringle_sys::{self as sys, MAX_RW_BYTES};
use std::ptr::NonNull;

impl<'b> Batch<'b> {
    /// Adds a read of a mapped file from `offset` (in bytes) into `buf`. `submit` copies it if its
    /// pages are in memory, and sends it to the ring with the others if not. Its result is as of
    /// [`read`](Batch::read).
    ///
    /// ```
    /// use cringle::block::{Batch, MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// let mut pages = vec![0; 4 * 4096];
    /// let mut batch = Batch::new();
    /// for (page, offset) in pages.chunks_mut(4096).zip((0..).step_by(4096)) {
    ///     batch.read_mapped(&program, page, offset);
    /// }
    /// assert!(batch.submit().iter().all(|count| matches!(count, Ok(4096))));
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    pub fn read_mapped(&mut self, file: &'b MappedFile, buf: &'b mut [u8], offset: u64) -> OpId {
        // SAFETY: the slice is borrowed for as long as the batch.
        unsafe { self.read_mapped_raw(file, buf.as_mut_ptr(), buf.len(), offset) }
    }

    /// Adds a read of a mapped file from `offset` (in bytes) into `len` bytes of memory at `buf`,
    /// as [`read_mapped`](Batch::read_mapped), for memory of which Rust has no slice.
    ///
    /// ```
    /// use cringle::block::{Batch, MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// let mut magic = [0; 4];
    /// let mut batch = Batch::new();
    /// // SAFETY: the contract of the call: `magic` is accessed only after `submit` has returned.
    /// let read = unsafe { batch.read_mapped_raw(&program, magic.as_mut_ptr(), 4, 0) };
    /// assert_eq!(batch.submit().get(read)?, 4);
    /// assert_eq!(&magic, b"\x7fELF");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Safety
    ///
    /// As [`read_raw`](Batch::read_raw). The memory must be mapped and writable: a copy to it is no
    /// system call, which would return `EFAULT`. It may be the mapping of a file that becomes
    /// shorter; then the result is `EFAULT`.
    #[inline]
    pub unsafe fn read_mapped_raw(
        &mut self,
        file: &'b MappedFile,
        buf: *mut u8,
        len: usize,
        offset: u64,
    ) -> OpId {
        // SAFETY: the contract of `read_raw` is the caller's.
        let id = unsafe { self.read_raw(file.file(), buf, len, offset) };
        self.notes.push((id, Note::Mapped(NonNull::from(file), Copied::No)));
        id
    }

    /// Adds a read of a mapped file from `offset` (in bytes) that continues until `buf` is full.
    /// Its result is as of [`read_exact`](Batch::read_exact).
    ///
    /// ```
    /// use cringle::block::{Batch, MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// let mut magic = [0; 4];
    /// let mut batch = Batch::new();
    /// let read = batch.read_exact_mapped(&program, &mut magic, 0);
    /// assert_eq!(batch.submit().get(read)?, 4);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn read_exact_mapped(
        &mut self,
        file: &'b MappedFile,
        buf: &'b mut [u8],
        offset: u64,
    ) -> OpId {
        let fits_op = buf.len() <= MAX_RW_BYTES;
        let id = self.read_exact(file.file(), buf, offset);
        if fits_op {
            self.notes.push((id, Note::Mapped(NonNull::from(file), Copied::No)));
        }
        id
    }

    /// Copies the reads of mapped files whose pages are in memory, and completes them. Returns
    /// whether no operation is left.
    pub(crate) fn copy_resident(&mut self, current: Option<Current>) -> bool {
        if self.notes.is_empty() {
            return self.slots.is_empty();
        }
        let Ok(here) = copying(current) else { return false };
        let (mut now, mut looked, mut in_doubt) = (sys::coarse_ns(), None, false);
        let (mut before, mut count) = (0, 0);
        for at in 0..self.notes.len() {
            // While one range is copied, the processor loads the begin of the next one.
            if let Some((next, Note::Mapped(file, _))) = self.notes.get(at + 1)
                && let Op::Transfer(next) = self.slots[next.0 as usize].op
            {
                // SAFETY: I16. The batch borrows the file.
                unsafe { file.as_ref() }.prefetch(next.offset, now);
            }
            let (id, Note::Mapped(place, copied)) = &mut self.notes[at] else { continue };
            let slot = &self.slots[id.0 as usize];
            if slot.completion.state() == OpState::Done {
                before += 1;
                continue;
            }
            let Op::Transfer(read) = slot.op else { continue };
            let Memory::Bytes { start, len } = read.memory() else { continue };
            // SAFETY: I16. The batch borrows the file.
            let file = unsafe { place.as_ref() };
            if looked != Some(*place) {
                looked = Some(*place);
                file.look_if_due(here.map(|current| current.worker), now);
            }
            let begin = now;
            let pause = || {
                now = here.map_or(now, |current| pause(current, now));
                now
            };
            // SAFETY: I16. The batch borrows the buffer.
            *copied = unsafe { file.copy(start, len as usize, read.offset, begin, pause) };
            in_doubt |= *copied == Copied::IfWithinFile;
            if *copied == Copied::Whole {
                slot.completion.refuse(len as i32);
                count += 1;
            }
        }
        if in_doubt {
            count += self.complete_within_files();
        }
        if let Some(Current { worker, .. }) = here {
            (0..count).for_each(|_| worker.events().copied_mapped());
        }
        before + count == self.slots.len()
    }

    /// Completes the reads that were copied and are in doubt, if their files still reach their
    /// ends.
    fn complete_within_files(&mut self) -> usize {
        let (mut count, mut sized) = (0, None);
        for (id, note) in &self.notes {
            let Note::Mapped(place, Copied::IfWithinFile) = note else { continue };
            let slot = &self.slots[id.0 as usize];
            if slot.completion.state() == OpState::Done {
                continue;
            }
            let Op::Transfer(read) = slot.op else { continue };
            let Memory::Bytes { len, .. } = read.memory() else { continue };
            // The size is looked up after all copies, once for successive reads of a file.
            let size = match sized {
                Some((file, size)) if file == *place => size,
                // SAFETY: I16. The batch borrows the file.
                _ => unsafe { place.as_ref() }.size(),
            };
            sized = Some((*place, size));
            if read.offset + u64::from(len) <= size {
                slot.completion.refuse(len as i32);
                count += 1;
            }
        }
        count
    }
}
