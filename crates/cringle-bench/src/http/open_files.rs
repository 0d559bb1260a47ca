//! The limit of open files: each end of a connection needs one.

use cringle_report::failure::{Failure, fail};
use std::io;

/// The most open files of a process besides its connections.
const OTHERS: u64 = 200;

/// Raises the limit for this number of connections. The failure names the remedy.
pub(super) fn allow(connections: usize) -> Result<(), Failure> {
    let needed = connections as u64 + OTHERS;
    let mut limit = get()?;
    if limit.rlim_cur >= needed {
        return Ok(());
    }
    let before = (limit.rlim_cur, limit.rlim_max);
    limit.rlim_cur = needed;
    limit.rlim_max = limit.rlim_max.max(needed);
    match set(&limit) {
        Ok(()) => Ok(()),
        Err(error) => fail(format!(
            "{connections} connections need {needed} open files, and the limit is {} (at most {}): \
             {error}; raise it (`ulimit -n {needed}`) or choose fewer connections",
            before.0, before.1
        )),
    }
}

/// Returns the limit of open files.
pub(super) fn allowed() -> io::Result<u64> {
    get().map(|limit| limit.rlim_cur)
}

fn get() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to `limit`, a whole `rlimit`.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: the call reads `limit`, a whole `rlimit`.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
