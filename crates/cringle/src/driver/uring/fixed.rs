//! Registered files and buffers: slots of the ring's two tables.
//!
//! A table is created, sparse, when the first file or buffer is registered. It belongs to this ring
//! alone: on another ring the same index means another file.

use crate::driver::registered::{BUFFER_SLOTS, FILE_SLOTS, insert};
use crate::sys::{self, Owned};
use io_uring::Submitter;
use slab::Slab;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

#[derive(Debug, Default)]
pub(super) struct Fixed {
    /// Of a regular file a duplicate: for the blocking call after an `EAGAIN` of the ring.
    files: Slab<Option<Owned>>,
    buffers: Slab<()>,
}

impl Fixed {
    pub(super) fn add_file(&mut self, ring: &Submitter<'_>, fd: RawFd) -> io::Result<u32> {
        let is_regular = sys::file_kind(fd).regular;
        let regular = is_regular.then(|| sys::duplicate(fd)).transpose()?;
        if is_new(&self.files) {
            ring.register_files_sparse(FILE_SLOTS as u32).map_err(|e| explain(e, "file"))?;
        }
        let slot = insert(&mut self.files, FILE_SLOTS, "files", regular)?;
        match ring.register_files_update(slot as u32, &[fd]) {
            Ok(_) => Ok(slot as u32),
            Err(e) => {
                self.files.remove(slot);
                Err(explain(e, "file"))
            }
        }
    }

    pub(super) fn remove_file(&mut self, ring: &Submitter<'_>, slot: u32) {
        // A slot that cannot be emptied stays taken, so that it never means two files (I9).
        if ring.register_files_update(slot, &[-1]).is_ok() {
            self.files.remove(slot as usize);
        }
    }

    /// The descriptor of the file in a slot, if it is a regular file.
    pub(super) fn regular_file(&self, slot: u32) -> Option<RawFd> {
        self.files.get(slot as usize)?.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// # Safety
    ///
    /// I4: the memory stays allocated until the slot is removed or the ring is closed.
    pub(super) unsafe fn add_buffer(
        &mut self,
        ring: &Submitter<'_>,
        buf: libc::iovec,
    ) -> io::Result<u16> {
        if is_new(&self.buffers) {
            let slots = BUFFER_SLOTS as u32;
            ring.register_buffers_sparse(slots).map_err(|e| explain(e, "buffer"))?;
        }
        let slot = insert(&mut self.buffers, BUFFER_SLOTS, "buffers", ())?;
        // SAFETY: I4, by this function's contract: the memory outlives its slot.
        match unsafe { ring.register_buffers_update(slot as u32, &[buf], None) } {
            Ok(()) => Ok(slot as u16),
            Err(e) => {
                self.buffers.remove(slot);
                Err(explain(e, "buffer"))
            }
        }
    }

    pub(super) fn remove_buffer(&mut self, ring: &Submitter<'_>, slot: u16) {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: no memory is registered: an empty vector empties the slot.
        if unsafe { ring.register_buffers_update(slot.into(), &[nothing], None) }.is_ok() {
            self.buffers.remove(slot.into());
        }
    }
}

const _: () = assert!(BUFFER_SLOTS <= 1 << 16, "a buffer's index has 16 bits");

/// Whether no slot was ever taken: a slab keeps its memory.
fn is_new<T>(slots: &Slab<T>) -> bool {
    slots.capacity() == 0
}

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
