//! Registered files and buffers: slots of the ring's two tables.
//!
//! A table is created, sparse, when the first file or buffer is registered. It belongs to this ring
//! alone: on another ring the same index means another file.

use crate::sys::{self, Owned};
use io_uring::Submitter;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

const FILE_SLOTS: u32 = 1024;
const BUFFER_SLOTS: u32 = 4096;

/// The free slots of a table. The kernel owns the table itself.
#[derive(Debug, Default)]
struct Slots {
    size: u32,
    used: u32,
    free: Vec<u32>,
}

impl Slots {
    fn take(&mut self, what: &str) -> io::Result<u32> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        if self.used == self.size {
            let size = self.size;
            return Err(io::Error::other(format!(
                "all {size} slots for registered {what} of this worker's ring are taken: drop \
                 some, or use plain {what} for the rest"
            )));
        }
        self.used += 1;
        Ok(self.used - 1)
    }
}

#[derive(Debug, Default)]
pub(super) struct Fixed {
    files: Slots,
    /// Duplicates of the regular files, by slot: for the blocking call after an `EAGAIN` of the
    /// ring.
    regular: Vec<Option<Owned>>,
    buffers: Slots,
}

impl Fixed {
    pub(super) fn add_file(&mut self, ring: &Submitter<'_>, fd: RawFd) -> io::Result<u32> {
        let is_regular = sys::file_kind(fd).regular;
        let regular = is_regular.then(|| sys::duplicate(fd)).transpose()?;
        if self.files.size == 0 {
            ring.register_files_sparse(FILE_SLOTS).map_err(|e| explain(e, "file"))?;
            self.files.size = FILE_SLOTS;
        }
        let slot = self.files.take("files")?;
        match ring.register_files_update(slot, &[fd]) {
            Ok(_) => {
                let len = self.regular.len().max(slot as usize + 1);
                self.regular.resize_with(len, || None);
                self.regular[slot as usize] = regular;
                Ok(slot)
            }
            Err(e) => {
                self.files.free.push(slot);
                Err(explain(e, "file"))
            }
        }
    }

    pub(super) fn remove_file(&mut self, ring: &Submitter<'_>, slot: u32) {
        self.regular[slot as usize] = None;
        // A slot that cannot be emptied stays taken, so that it never means two files (I9).
        if ring.register_files_update(slot, &[-1]).is_ok() {
            self.files.free.push(slot);
        }
    }

    /// The descriptor of the file in a slot, if it is a regular file.
    pub(super) fn regular_file(&self, slot: u32) -> Option<RawFd> {
        self.regular.get(slot as usize)?.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// # Safety
    ///
    /// I4: the memory stays allocated until the slot is removed or the ring is closed.
    pub(super) unsafe fn add_buffer(
        &mut self,
        ring: &Submitter<'_>,
        buf: libc::iovec,
    ) -> io::Result<u16> {
        if self.buffers.size == 0 {
            ring.register_buffers_sparse(BUFFER_SLOTS).map_err(|e| explain(e, "buffer"))?;
            self.buffers.size = BUFFER_SLOTS;
        }
        let slot = self.buffers.take("buffers")?;
        // SAFETY: I4, by this function's contract: the memory outlives its slot.
        match unsafe { ring.register_buffers_update(slot, &[buf], None) } {
            Ok(()) => Ok(slot as u16),
            Err(e) => {
                self.buffers.free.push(slot);
                Err(explain(e, "buffer"))
            }
        }
    }

    pub(super) fn remove_buffer(&mut self, ring: &Submitter<'_>, slot: u16) {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: no memory is registered: an empty vector empties the slot.
        if unsafe { ring.register_buffers_update(slot.into(), &[nothing], None) }.is_ok() {
            self.buffers.free.push(slot.into());
        }
    }
}

const _: () = assert!(BUFFER_SLOTS <= 1 << 16, "a buffer's index has 16 bits");

fn explain(error: io::Error, what: &str) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            "more memory would be locked than RLIMIT_MEMLOCK allows: raise it (`ulimit -l`), or \
             register less"
        }
        Some(libc::EMFILE) => "RLIMIT_NOFILE is too low for the table: raise it (`ulimit -n`)",
        Some(libc::EFAULT | libc::EOPNOTSUPP) => {
            "this memory cannot be registered (a mapped file cannot)"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("cannot register a {what} with the ring: {remedy}"))
}
