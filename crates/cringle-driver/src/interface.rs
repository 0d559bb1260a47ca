//! The types that a driver shares with its callers, whichever driver it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// No room for another op: the limit is reached, or the kernel accepts no more entries now.
#[derive(Debug)]
pub struct Full;

/// Whether a call into the kernel may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    No,
    /// Until a completion arrives or this time has come (`None`: no limit).
    Until(Option<Instant>),
}

/// Identifies a driver among all of the process, past and future: an index of a registered file or
/// buffer is valid only with the driver that gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverId(u64);

default_by_new!(DriverId);

impl DriverId {
    pub fn new() -> DriverId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DriverId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Whether the result of an op that was cancelled says so: `ECANCELED`, `EINTR`, or one of the
/// codes by which the kernel restarts calls (`ERESTARTSYS` to `ERESTART_RESTARTBLOCK`).
pub fn means_cancelled(result: i32) -> bool {
    result == -libc::ECANCELED || result == -libc::EINTR || (-516..=-512).contains(&result)
}
