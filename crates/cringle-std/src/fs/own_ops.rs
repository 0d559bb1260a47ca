//! Operations of a batch that a file performs itself, by a call that may wait for others:
//!
//! - the direct reads and writes that the kernel would refuse, and all direct writes, if the file
//!   was opened with [`Direct::Bounce`](super::Direct): a write may touch a block that another one
//!   changes;
//! - writes that are durable when they return (`O_DSYNC`): the kernel reports a failure of several
//!   to one of them (`file/reports.rs`);
//! - all reads and writes of a FUSE file, which a ring would perform at the wrong offsets.

use super::File;
use super::bounce::Bounce;
use cringle_core::cancelled;
use cringle_driver::{Memory, Op, Way, blocking};
use cringle_sys as sys;
use std::error::Error;
use std::io;
use std::ptr::NonNull;
use std::slice;

/// How a batch performs a read or a write.
pub enum Route {
    /// The driver performs the op as it is.
    Plain,
    /// A fiber has the file perform the whole call: `File::perform_itself`.
    Whole,
    /// The kernel refuses every such call with this `errno`.
    Refused(i32),
}

impl File {
    /// Returns how a batch performs a read or a write at an offset.
    pub(crate) fn route(&self, op: &Op) -> Route {
        match self.refuses_at_offset(op.is_write()) {
            Some(errno) => Route::Refused(errno),
            None if self.performs_itself(op) => Route::Whole,
            None => Route::Plain,
        }
    }

    /// Whether the file performs this read or write of a batch itself.
    pub(crate) fn performs_itself(&self, op: &Op) -> bool {
        let Some(transfer) = op.transfer() else { return self.is_off_ring() };
        match (transfer.way, transfer.memory(), &self.bounce) {
            _ if self.is_off_ring() => true,
            (Way::Read, Memory::Bytes { start, len }, Some(bounce)) => {
                bounce.helps_to_read(start.addr(), len as usize, transfer.offset)
            }
            (Way::Read, ..) => false,
            (Way::Write, _, bounce) => bounce.is_some() || self.writes_durably(),
        }
    }

    /// Performs a read or write of a batch, and returns its result as the kernel does.
    ///
    /// # Safety
    ///
    /// The contract of the op's memory is as for `read_raw` or `write_raw` of `cringle-storage`,
    /// until this returns.
    pub(crate) unsafe fn perform_itself(&self, op: &Op) -> i32 {
        // SAFETY: by the contract.
        let plainly = || unsafe { self.perform_at_offset(*op) };
        let result = match &self.bounce {
            // SAFETY: as above.
            Some(bounce) => unsafe { self.perform_bounced(bounce, op) },
            None if op.is_write() => self.write_as_opened(plainly),
            None => plainly(),
        };
        match result {
            Ok(count) => count as i32,
            Err(e) if cancelled::reason_of(&e).is_some() => -libc::ECANCELED,
            Err(e) => -errno_of(&e),
        }
    }

    /// Performs a read or a write at an offset that is not negative. Only the kernel accesses the
    /// memory: it returns `EFAULT` where Rust must not make a reference.
    ///
    /// # Safety
    ///
    /// The op's pointers are valid until this returns.
    pub(crate) unsafe fn perform_at_offset(&self, op: Op) -> io::Result<usize> {
        let is_write = op.is_write();
        let ring = self.ring().filter(|_| !(is_write && self.takes_no_pwrite()));
        let Some(current) = ring.filter(|_| !self.is_stream()) else {
            // SAFETY: by the contract. The kernel refuses a call at an offset of a stream at once.
            return sys::result_of(unsafe { blocking::perform(&op) });
        };
        self.transfer(current, || op)
    }

    /// # Safety
    ///
    /// As [`perform_itself`](File::perform_itself): the memory of such a file is NULL, or valid for
    /// a slice.
    unsafe fn perform_bounced(&self, bounce: &Bounce, op: &Op) -> io::Result<usize> {
        let Op::Transfer(transfer) = op else { unreachable!("a read or a write") };
        let Memory::Bytes { start, len } = transfer.memory() else { unreachable!("of bytes") };
        if start.is_null() && len > 0 {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        let start = if len > 0 { start } else { NonNull::dangling().as_ptr() };
        // SAFETY: by the contract.
        unsafe {
            match transfer.way {
                Way::Read => bounce.read(
                    self,
                    slice::from_raw_parts_mut(start, len as usize),
                    transfer.offset,
                ),
                Way::Write => {
                    bounce.write(self, slice::from_raw_parts(start, len as usize), transfer.offset)
                }
            }
        }
    }
}

/// Returns the `errno` of an error, also of one that wraps the error of an earlier call.
fn errno_of(e: &io::Error) -> i32 {
    let first = || e.source()?.downcast_ref::<io::Error>()?.raw_os_error();
    e.raw_os_error().or_else(first).unwrap_or(libc::EIO)
}
