//! Descriptors that belong to code which does not know the library, for the time of one call.
//!
//! Their kind is looked up for each call, because the number may name another file at the next one.

use super::File;
use super::fifo;
use cringle_driver::{Op, blocking};
use cringle_sys as sys;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};

impl File {
    /// Wraps a descriptor for a call. If the number is not open, the call fails with `EBADF`.
    pub(crate) fn borrow_number(fd: RawFd) -> io::Result<ManuallyDrop<File>> {
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: the contract of `from_raw_fd` is ownership, which the value never uses: it is not
        // dropped. A number that is not open is passed to the kernel alone, which refuses it.
        Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
    }

    /// Performs a read or a write at the cursor, or of a file without one.
    ///
    /// # Safety
    ///
    /// The op's pointers are valid until this returns.
    pub(crate) unsafe fn perform_at_cursor(&self, op: Op) -> io::Result<usize> {
        let writes = op.is_write();
        if self.is_seekable() && !(writes && self.appends()) {
            // SAFETY: by the contract.
            return unsafe { self.perform_as_one_call(op) };
        }
        match self.ring() {
            // SAFETY: by the contract.
            None => sys::result_of(unsafe { blocking::perform(&op) }),
            Some(current) if !writes && sys::is_named_fifo(self.fd()) => {
                fifo::read_until_end(current, self, || self.transfer(current, || op))
            }
            Some(current) => self.transfer(current, || op),
        }
    }
}
