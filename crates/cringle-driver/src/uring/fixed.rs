//! Registered files and buffers: slots of the ring's two tables.
//!
//! A table is created, sparse, when the first file or buffer is registered. It belongs to this ring
//! alone: on another ring the same index means another file.

use super::Uring;
use crate::registered::{BUFFER_SLOTS, FILE_SLOTS};
use cringle_sys::{self as sys, plainly};
use std::io;
use std::os::fd::RawFd;

impl Uring {
    pub(crate) fn register_file(&mut self, fd: RawFd) -> io::Result<u32> {
        let (ring, slots) = (self.ring.submitter(), &mut self.registered);
        plainly(|| {
            let duplicate = sys::duplicate(fd)?;
            if slots.has_no_files() {
                ring.register_files_sparse(FILE_SLOTS as u32).map_err(|e| explain(e, "file"))?;
            }
            let slot = slots.add_file(duplicate)?;
            if let Err(e) = ring.register_files_update(slot, &[fd]) {
                slots.remove_file(slot);
                return Err(explain(e, "file"));
            }
            Ok(slot)
        })
    }

    pub(crate) fn unregister_file(&mut self, slot: u32) {
        // A slot that cannot be emptied stays taken, so that it never means two files (I9).
        if plainly(|| self.ring.submitter().register_files_update(slot, &[-1])).is_ok() {
            self.registered.remove_file(slot);
        }
    }

    pub(crate) fn registered_file(&self, slot: u32) -> Option<RawFd> {
        self.registered.file(slot as i32)
    }

    /// # Safety
    ///
    /// I4: the memory stays allocated until the slot is removed or the ring is closed.
    pub(crate) unsafe fn register_buffer(&mut self, buf: *mut u8, len: usize) -> io::Result<u16> {
        let (ring, slots) = (self.ring.submitter(), &mut self.registered);
        let buf = libc::iovec { iov_base: buf.cast(), iov_len: len };
        plainly(|| {
            if slots.has_no_buffers() {
                let count = BUFFER_SLOTS as u32;
                ring.register_buffers_sparse(count).map_err(|e| explain(e, "buffer"))?;
            }
            let slot = slots.add_buffer()?;
            // SAFETY: I4, by this function's contract: the memory outlives its slot.
            if let Err(e) = unsafe { ring.register_buffers_update(slot.into(), &[buf], None) } {
                slots.remove_buffer(slot);
                return Err(explain(e, "buffer"));
            }
            Ok(slot)
        })
    }

    pub(crate) fn unregister_buffer(&mut self, slot: u16) {
        let (ring, slots) = (self.ring.submitter(), &mut self.registered);
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: no memory is registered: an empty vector empties the slot.
        let update = || unsafe { ring.register_buffers_update(slot.into(), &[nothing], None) };
        if plainly(update).is_ok() {
            slots.remove_buffer(slot);
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
