//! Terminals, and other devices whose calls may wait though `poll` reports them ready.
//!
//! A ring asks a device that knows no `RWF_NOWAIT` whether it is ready, and then makes the call in the worker's
//! thread, where a wait would stop all fibers. So
//!
//! - a write goes to a kernel thread at once: a terminal is ready when it has room for a few bytes, but a write
//!   returns when all are written;
//! - a read follows `VMIN` and `VTIME` where a program has set them, as programs for serial lines do.

use crate::driver::{Op, Target, blocking};
use crate::fiber::op::{perform_off_ring, perform_within};
use crate::io::{Interest, ready};
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::Here;
use crate::sys::{self, ReadTiming};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};

/// Performs a read or a write while the fiber waits.
///
/// # Safety
///
/// The op's pointers are valid until this returns.
#[cold]
pub(crate) unsafe fn perform(
    worker: Here,
    fiber: FiberRef,
    fd: &impl AsFd,
    op: Op,
) -> io::Result<usize> {
    // SAFETY: by the contract.
    unsafe {
        match op {
            Op::Read { .. } | Op::ReadVectored { .. } => {
                match sys::read_timing(fd.as_fd().as_raw_fd()) {
                    Some(timing) => read(worker, fiber, fd, timing, op),
                    None => crate::fiber::op::perform(worker, fiber, op),
                }
            }
            _ => write(worker, fiber, op),
        }
    }
}

/// A read of a terminal that returns at other times than when there is data.
///
/// # Safety
///
/// As [`perform`].
pub(crate) unsafe fn read(
    worker: Here,
    fiber: FiberRef,
    fd: &impl AsFd,
    timing: ReadTiming,
    op: Op,
) -> io::Result<usize> {
    if worker.refuses(fiber) {
        return Err(fiber.cancel_error());
    }
    match timing {
        // It never waits.
        ReadTiming { bytes: 0, pause } if pause.is_zero() => {
            // SAFETY: by the contract.
            return sys::result_of(unsafe { blocking::perform(&op) });
        }
        ReadTiming { bytes: 0, pause } => {
            let poll = Op::Poll { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN as u32 };
            if perform_within(worker, fiber, poll, pause)?.is_none() {
                return Ok(0);
            }
        }
        // The time runs from the first byte on. A cancel ends the wait for that one.
        _ => drop(ready(fd, Interest::READABLE)?),
    }
    // SAFETY: by the contract.
    sys::result_of(unsafe { perform_off_ring(worker, op) })
}

/// A write by a kernel thread, where a cancel interrupts it.
///
/// # Safety
///
/// As [`perform`].
unsafe fn write(worker: Here, fiber: FiberRef, op: Op) -> io::Result<usize> {
    let gathered: Vec<u8>;
    let op = match op {
        Op::Write { target, buf, len, offset } => {
            Op::Write { target: target.punted(), buf, len, offset }
        }
        Op::WriteVectored { fd, slices, count, offset } => {
            // SAFETY: by the contract. The slices are the caller's `IoSlice`s, which have this layout.
            let slices =
                unsafe { std::slice::from_raw_parts(slices.cast::<IoSlice<'_>>(), count as usize) };
            gathered = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let (buf, len) = (gathered.as_ptr(), gathered.len().min(sys::MAX_RW_BYTES) as u32);
            Op::Write { target: Target::fd(fd).punted(), buf, len, offset }
        }
        op => op,
    };
    crate::fiber::op::perform(worker, fiber, op)
}
