//! The limit of open files: each end of a connection needs one.

use cringle_report::failure::{Failure, fail};
use rlimit::Resource;
use std::io;

/// The most open files of a process besides its connections.
const OTHERS: u64 = 200;

/// Raises the limit for this number of connections. The failure names the remedy.
pub(super) fn allow(connections: usize) -> Result<(), Failure> {
    let needed = connections as u64 + OTHERS;
    let (soft, hard) = Resource::NOFILE.get()?;
    if soft >= needed {
        return Ok(());
    }
    Resource::NOFILE.set(needed, hard.max(needed)).or_else(|error| {
        fail(format!(
            "{connections} connections need {needed} open files, and the limit is {soft} (at most \
             {hard}): {error}; raise it (`ulimit -n {needed}`) or choose fewer connections",
        ))
    })
}

/// Returns the limit of open files.
pub(super) fn allowed() -> io::Result<u64> {
    Resource::NOFILE.get().map(|(soft, _)| soft)
}
