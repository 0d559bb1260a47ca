//! Operations of a batch that a file performs itself, by a call that may wait for others:
//!
//! - the direct reads and writes that the kernel would refuse, and all direct writes, if the file
//!   was opened with [`Direct::Bounce`](super::Direct): a write may touch a block that another one
//!   changes;
//! - writes that are durable when they return (`O_DSYNC`): the kernel reports a failure of several
//!   to one of them (`file/reports.rs`).

use super::File;
use super::bounce::Bounce;
use crate::driver::{Op, blocking};
use crate::runtime::cancelled::Reason;
use crate::sys;
use std::error::Error;
use std::io;
use std::slice;

impl File {
    /// Whether the file performs some operations of a batch itself.
    pub(crate) fn may_perform_itself(&self) -> bool {
        self.bounce.is_some() || self.writes_durably()
    }

    /// Whether the file performs this read or write of a batch itself.
    pub(crate) fn performs_itself(&self, op: &Op) -> bool {
        match (*op, &self.bounce) {
            (Op::Read { buf, len, offset, .. }, Some(bounce)) => {
                bounce.helps_to_read(buf.addr(), len as usize, offset)
            }
            (Op::Write { .. }, bounce) => bounce.is_some() || self.writes_durably(),
            _ => false,
        }
    }

    /// Performs a read or write of a batch, and returns its result as the kernel does.
    ///
    /// # Safety
    ///
    /// The contract of the op's memory is as for [`read_raw`](crate::block::Batch::read_raw) or
    /// `write_raw`, until this returns.
    pub(crate) unsafe fn perform_itself(&self, op: &Op) -> i32 {
        let result = match &self.bounce {
            // SAFETY: by the contract.
            Some(bounce) => unsafe { self.perform_bounced(bounce, op) },
            // SAFETY: as above.
            None => self.write_as_opened(|| unsafe { self.perform_unchanged(*op) }),
        };
        match result {
            Ok(count) => count as i32,
            Err(e) if Reason::of(&e).is_some() => -libc::ECANCELED,
            Err(e) => -errno_of(&e),
        }
    }

    /// Performs an op whose memory only the kernel accesses: it returns `EFAULT` where Rust must
    /// not make a reference.
    ///
    /// # Safety
    ///
    /// As [`perform_itself`](File::perform_itself).
    unsafe fn perform_unchanged(&self, op: Op) -> io::Result<usize> {
        match self.ring() {
            Some(current) => self.transfer(current, || op),
            // SAFETY: by the contract.
            None => sys::result_of(unsafe { blocking::perform(&op) }),
        }
    }

    /// # Safety
    ///
    /// As [`perform_itself`](File::perform_itself): the memory of such a file is NULL, or valid for
    /// a slice.
    unsafe fn perform_bounced(&self, bounce: &Bounce, op: &Op) -> io::Result<usize> {
        match *op {
            Op::Read { len: 0, offset, .. } => bounce.read(self, &mut [], offset),
            Op::Write { len: 0, offset, .. } => bounce.write(self, &[], offset),
            Op::Read { buf, .. } if buf.is_null() => Err(inaccessible()),
            Op::Write { buf, .. } if buf.is_null() => Err(inaccessible()),
            Op::Read { buf, len, offset, .. } => {
                // SAFETY: by the contract.
                bounce.read(self, unsafe { slice::from_raw_parts_mut(buf, len as usize) }, offset)
            }
            Op::Write { buf, len, offset, .. } => {
                // SAFETY: by the contract.
                bounce.write(self, unsafe { slice::from_raw_parts(buf, len as usize) }, offset)
            }
            _ => unreachable!("a file performs reads and writes itself"),
        }
    }
}

fn inaccessible() -> io::Error {
    io::Error::from_raw_os_error(libc::EFAULT)
}

/// Returns the `errno` of an error, also of one that wraps the error of an earlier call.
fn errno_of(e: &io::Error) -> i32 {
    let first = || e.source()?.downcast_ref::<io::Error>()?.raw_os_error();
    e.raw_os_error().or_else(first).unwrap_or(libc::EIO)
}
