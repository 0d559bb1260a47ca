//! Waiting for the other end of a FIFO.
//!
//! std's `open` of a FIFO waits in the kernel. Through the ring, that wait would hold one of the
//! few kernel threads that also perform buffered writes: a handful of FIFOs without peers would
//! stop every write of the worker, perhaps including the one that a peer waits for. So the library
//! opens with `O_NONBLOCK` and the fiber waits, where a cancel reaches it:
//!
//! - to write, `open` fails with `ENXIO` until a reader exists, and is retried with a backoff;
//! - to read, `open` succeeds at once, and the fiber keeps the descriptor and polls until a writer
//!   has opened the FIFO. To other processes, a reader that waits in `open(2)` is a reader too.
//!
//! The kernel does not report a writer that has opened the FIFO and written nothing, so both poll.

use crate::fiber::backoff::Backoff;
use crate::io::Interest;
use cringle_core::cancelled;
use cringle_core::cancelled::Reason;
use cringle_core::worker::Current;
use cringle_sys as sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The first and the longest time between two checks for the end of a FIFO.
const FIRST_CHECK: Duration = Duration::from_millis(10);
const LONGEST_CHECK: Duration = Duration::from_millis(500);

/// Waits until the FIFO has a writer, or has had one since `reader` was opened.
pub fn wait_for_writer(current: Current, reader: &impl AsFd) -> io::Result<()> {
    let (_reader, scratch) = sys::pipe()?;
    let mut backoff = Backoff::default();
    while !has_writer(reader, &scratch)? {
        backoff.pause(current)?;
    }
    Ok(())
}

fn has_writer(reader: &impl AsFd, scratch: &impl AsFd) -> io::Result<bool> {
    match sys::tee_byte(reader.as_fd(), scratch.as_fd()) {
        // No data and no writer. `poll` reports a hang-up if a writer has come and gone.
        Ok(0) => Ok(sys::poll_now(reader.as_fd(), libc::POLLIN)? != 0),
        Ok(_) => Ok(true),
        // No data yet, but a writer.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(e) => Err(e),
    }
}

/// Reads a FIFO, and checks for its end from time to time while the read waits. Linux 6.18
/// sometimes does not wake a poller when the last writer closes (`poll(2)` reports no hang-up
/// either), and a ring polls before it reads.
///
/// The ring gets the read only when there are bytes. At the end of a FIFO it would try 128 times,
/// and then give the read to a kernel thread, which may hold the file for a while after the
/// completion: a writer would still find a reader after `close`, and its bytes would be lost.
pub(super) fn read_until_end(
    current: Current,
    reader: &impl AsFd,
    read: impl Fn() -> io::Result<usize>,
) -> io::Result<usize> {
    if !current.worker.may_bypass() {
        return read();
    }
    let read_if_ready = || {
        loop {
            let events = sys::poll_now(reader.as_fd(), libc::POLLIN)?;
            if events == libc::POLLHUP {
                return Ok(0);
            }
            if events != 0 || !waits_for_bytes(reader) {
                return read();
            }
            crate::io::ready(reader, Interest::READABLE)?;
        }
    };
    let mut limit = FIRST_CHECK;
    loop {
        let result = crate::time::timeout(limit, read_if_ready);
        let is_our_timeout = |e: &io::Error| match cancelled::reason_of(e) {
            Some(Reason::Elapsed(elapsed)) => elapsed.limit() == Some(limit),
            _ => false,
        };
        match result {
            Err(e) if is_our_timeout(&e) && !current.fiber.is_cancelled() => {}
            result => return result,
        }
        let (_reader, scratch) = sys::pipe()?;
        if matches!(sys::tee_byte(reader.as_fd(), scratch.as_fd()), Ok(0)) {
            return Ok(0);
        }
        limit = (limit * 2).min(LONGEST_CHECK);
    }
}

/// Whether a read waits if there are no bytes; else it fails, or returns at once.
fn waits_for_bytes(file: &impl AsFd) -> bool {
    let flags = sys::status_flags(file.as_fd().as_raw_fd());
    flags & libc::O_NONBLOCK == 0 && flags & libc::O_ACCMODE != libc::O_WRONLY
}
