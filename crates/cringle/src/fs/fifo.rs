//! Opening a FIFO: waiting for its other end.
//!
//! std's open of a FIFO waits in the kernel. In the ring that wait would hold one of the few kernel
//! threads that also do the buffered writes: a handful of FIFOs whose other ends are late would
//! stop every write of the worker, perhaps the one that their writers wait for. So the library
//! opens without waiting and the fiber itself waits, where a cancel reaches it:
//!
//! - to write, an open answers `ENXIO` until there is a reader, and is asked again;
//! - to read, it succeeds at once, and what it gave is kept (to everybody else, a reader that
//!   waits in `open(2)` is a reader too) until a writer has come.
//!
//! The kernel does not tell when a writer opens and writes nothing, so both look again after a
//! pause.

use crate::fiber::backoff::Backoff;
use crate::runtime::cancelled::Reason;
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::Here;
use crate::sys;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// Between two looks for the end of a FIFO.
const LONGEST_PATIENCE: Duration = Duration::from_millis(500);

/// Waits until the FIFO of this reading end has a writer, or had one since it was opened.
pub(super) fn wait_for_writer(worker: Here, fiber: FiberRef, reader: &impl AsFd) -> io::Result<()> {
    let (_unread, scratch) = io::pipe()?;
    let mut backoff = Backoff::default();
    while !writer_has_come(reader, &scratch)? {
        backoff.pause(worker, fiber)?;
    }
    Ok(())
}

fn writer_has_come(reader: &impl AsFd, scratch: &impl AsFd) -> io::Result<bool> {
    match sys::tee_byte(reader.as_fd(), scratch.as_fd()) {
        // Nothing to read, and nobody to write it; or somebody came and went: a hang-up.
        Ok(0) => Ok(sys::poll_now(reader.as_fd(), libc::POLLIN)? != 0),
        Ok(_) => Ok(true),
        // Nothing to read *yet*.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(e) => Err(e),
    }
}

/// Performs a read of a FIFO, and looks for its end now and then while it waits: Linux 6.18 at times does
/// not tell who polls a FIFO that its last writer has gone (`poll(2)` reports no hang-up either), and a
/// ring polls before it reads.
pub(super) fn read_to_its_end(
    fiber: FiberRef,
    reader: &impl AsFd,
    read: impl Fn() -> io::Result<usize>,
) -> io::Result<usize> {
    let mut patience = LONGEST_PAUSE;
    loop {
        let result = crate::time::timeout(patience, &read);
        let is_ours = |e: &io::Error| match Reason::of(e) {
            Some(Reason::Elapsed(elapsed)) => elapsed.limit() == Some(patience),
            _ => false,
        };
        match result {
            Err(e) if is_ours(&e) && !fiber.is_cancelled() => {}
            result => return result,
        }
        let (_unread, scratch) = io::pipe()?;
        if matches!(sys::tee_byte(reader.as_fd(), scratch.as_fd()), Ok(0)) {
            return Ok(0);
        }
        patience = (patience * 2).min(LONGEST_PATIENCE);
    }
}
