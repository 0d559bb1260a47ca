//! Terminals and other devices whose calls may wait although `poll` reports them ready.
//!
//! For a device that does not support `RWF_NOWAIT`, a ring polls and then makes the call on the
//! worker's thread, where a wait would stop all fibers. So:
//!
//! - a kernel thread performs each write: a terminal is ready as soon as it has room for a few
//!   bytes, but a write returns only when all bytes are written;
//! - a read honours `VMIN` and `VTIME` where a program has set them, as programs for serial lines
//!   do.

use crate::fiber::op::{perform_off_ring, perform_within};
use crate::io::{Interest, ready};
use cringle_core::worker::Current;
use cringle_driver::{Memory, Op, blocking};
use cringle_sys::{self as sys, ReadTiming};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};

/// Performs a read or a write of a slow device, while the fiber waits.
///
/// # Safety
///
/// The op's pointers are valid until this returns.
#[cold]
pub(crate) unsafe fn perform(current: Current, fd: &impl AsFd, op: Op) -> io::Result<usize> {
    // SAFETY: the caller's contract: the pointers are valid until this returns.
    unsafe {
        match op.is_read() {
            true => match sys::read_timing(fd.as_fd().as_raw_fd()) {
                Some(timing) => read(current, fd, timing, op),
                None => crate::fiber::op::perform(current, op),
            },
            false => write(current, op),
        }
    }
}

/// Reads a terminal in raw mode that returns by `VMIN` and `VTIME`.
///
/// # Safety
///
/// As [`perform`].
pub(crate) unsafe fn read(
    current: Current,
    fd: &impl AsFd,
    timing: ReadTiming,
    op: Op,
) -> io::Result<usize> {
    current.admit()?;
    match timing {
        // `VMIN` and `VTIME` are 0: a read never waits.
        ReadTiming { bytes: 0, pause } if pause.is_zero() => {
            // SAFETY: the caller's contract: the pointers are valid until this returns.
            return sys::result_of(unsafe { blocking::perform(&op) });
        }
        ReadTiming { bytes: 0, pause } => {
            let poll = Op::Poll { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN as u32 };
            if perform_within(current, poll, pause)?.is_none() {
                return Ok(0);
            }
        }
        // The timer starts with the first byte. A cancel ends the wait for that byte.
        _ => drop(ready(fd, Interest::READABLE)?),
    }
    // SAFETY: the caller's contract: the pointers are valid until this returns.
    sys::result_of(unsafe { perform_off_ring(current.worker, op) })
}

/// Writes on a kernel thread of the ring, where a cancel interrupts the write.
///
/// # Safety
///
/// As [`perform`].
unsafe fn write(current: Current, op: Op) -> io::Result<usize> {
    let gathered: Vec<u8>;
    let Op::Transfer(transfer) = op else { unreachable!("a write") };
    let (start, len) = match transfer.memory() {
        Memory::Bytes { start, len } => (start.cast_const(), len),
        Memory::Slices { slices, count } => {
            // SAFETY: the caller's contract. The slices are the caller's `IoSlice`s, which have
            // this layout.
            let slices =
                unsafe { std::slice::from_raw_parts(slices.cast::<IoSlice<'_>>(), count as usize) };
            gathered = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            (gathered.as_ptr(), gathered.len().min(sys::MAX_RW_BYTES) as u32)
        }
    };
    let op = Op::write(transfer.file.punted(), start, len, transfer.offset);
    crate::fiber::op::perform(current, op)
}
