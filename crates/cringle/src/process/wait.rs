//! Waiting for a child's end.
//!
//! The ring polls a descriptor of the process (`pidfd_open(2)`), which takes nothing from the child: who
//! is cancelled has lost nothing, and who is not asks std for the status, which has it from the kernel
//! without a wait. (`IORING_OP_WAITID` would take one descriptor less, but Linux 6.7; and this one is
//! closed again when the wait ends.)

use crate::fiber::backoff::Backoff;
use crate::io::{Interest, ready};
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::Here;
use crate::sys;
use std::io;

/// Waits until the child has ended. It has not been waited for, so its number is its own.
pub(super) fn wait_for_end(worker: Here, fiber: FiberRef, id: u32) -> io::Result<()> {
    let process = match sys::pidfd(id) {
        Ok(process) => process,
        // The kernel gives its status to nobody (SIGCHLD is ignored), which the plain call reports.
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
        Err(e) if is_shortage(&e) => return look_for_end(worker, fiber, id),
        Err(e) => return Err(e),
    };
    ready(&process, Interest::READABLE).map(drop)
}

fn is_shortage(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// The same where no descriptor is left: looks again and again, with pauses.
#[cold]
fn look_for_end(worker: Here, fiber: FiberRef, id: u32) -> io::Result<()> {
    let mut backoff = Backoff::default();
    while !sys::has_ended(id)? {
        backoff.pause(worker, fiber)?;
    }
    Ok(())
}
