//! The limit of a file's size. A loss of power compares all bytes of a file, so each sync copies
//! them: the simulation could not hold the copy of a file with a large hole.

use super::Core;
use cringle_driver::op::AT_CURSOR;
use cringle_driver::registered::Registered;
use cringle_driver::syscall::Syscall;
use cringle_driver::{FileOp, Memory, Op, Way};
use cringle_sys as sys;
use std::os::fd::RawFd;

/// The most bytes of a file.
const MOST_BYTES: u64 = 1 << 30;

impl Core {
    /// Whether the op would make a file of the world too long: it fails with `EFBIG`. (The call
    /// itself refuses numbers that are no offset, with `EINVAL`.)
    pub(super) fn exceeds_size(&mut self, op: &Op, fixed: &Registered) -> bool {
        let end = end_of(op, fixed).filter(|&(_, end)| end > MOST_BYTES);
        end.is_some_and(|(fd, _)| self.files.has(fd))
    }
}

/// Returns the file that an op may lengthen, and where its bytes end then.
fn end_of(op: &Op, fixed: &Registered) -> Option<(RawFd, u64)> {
    match *op {
        Op::File(FileOp::SetLen { fd, len }) => return Some((fd, len)),
        Op::File(FileOp::Allocate { fd, mode, range })
            if mode & libc::FALLOC_FL_PUNCH_HOLE == 0 =>
        {
            // SAFETY: I1. The op has not ended, so its range is valid.
            let range = unsafe { *range };
            let end = range.offset.saturating_add(range.len);
            return is_offset(range.offset.max(range.len)).then_some((fd, end));
        }
        Op::Syscall(Syscall::CopyRange { to, offsets, len, .. }) => {
            // SAFETY: I1. The op has not ended, so its offsets are valid.
            let [_, offset] = unsafe { *offsets };
            return Some((to, (offset as u64).saturating_add(len.into())));
        }
        _ => {}
    }
    let transfer = op.transfer().filter(|transfer| transfer.way == Way::Write)?;
    let fd = match transfer.file.as_fd() {
        Some(fd) => fd,
        None => fixed.file(transfer.file.number())?,
    };
    let bytes = match transfer.memory() {
        Memory::Bytes { len, .. } => u64::from(len),
        Memory::Slices { slices, count } => {
            // SAFETY: I1. The op has not ended, so its slices are valid.
            let slices = unsafe { std::slice::from_raw_parts(slices, count as usize) };
            slices.iter().map(|slice| slice.iov_len as u64).sum()
        }
    };
    // (A file that is appended to is not longer than the limit.)
    let first =
        if transfer.offset == AT_CURSOR { sys::simulated::cursor(fd) } else { transfer.offset };
    (bytes > 0 && is_offset(first)).then(|| (fd, first.saturating_add(bytes)))
}

fn is_offset(number: u64) -> bool {
    i64::try_from(number).is_ok()
}
