//! Waiting for the end of a child.
//!
//! The ring polls a descriptor of the process (`pidfd_open(2)`). Polling consumes nothing, so a
//! cancelled caller loses nothing; afterwards std reaps the status without waiting.
//! `IORING_OP_WAITID` would save the descriptor but needs Linux 6.7; the descriptor is closed when
//! the wait ends.

use crate::fiber::backoff::Backoff;
use crate::io::{Interest, ready};
use cringle_core::worker::Current;
use cringle_sys as sys;
use std::io;

/// Waits until the child has ended. It has not been reaped, so its process id is still its own.
pub fn wait_for_end(current: Current, id: u32) -> io::Result<()> {
    let process = match sys::pidfd(id) {
        Ok(process) => process,
        // The kernel keeps no status (SIGCHLD is ignored), which the plain call reports.
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
        Err(e) if is_shortage(&e) => return poll_for_end(current, id),
        Err(e) => return Err(e),
    };
    ready(&process, Interest::READABLE).map(drop)
}

fn is_shortage(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Like [`wait_for_end`], but without a descriptor: polls with pauses.
#[cold]
fn poll_for_end(current: Current, id: u32) -> io::Result<()> {
    let mut backoff = Backoff::default();
    while !sys::has_ended(id)? {
        backoff.pause(current)?;
    }
    Ok(())
}
