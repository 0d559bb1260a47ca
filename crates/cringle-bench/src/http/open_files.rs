//! Open files: a connection is one on each side.

use cringle_report::failure::{Failure, fail};
use std::io;

/// What a process has open beside its connections, generously.
const OTHERS: u64 = 200;

/// Allows for so many connections, or says what has to be done.
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
            "{connections} connections need {needed} open files, and only {} are allowed, at most {} \
             ({error}): raise the limit (`ulimit -n {needed}`), or ask for fewer",
            before.0, before.1
        )),
    }
}

/// How many open files this process may have.
pub(super) fn allowed() -> io::Result<u64> {
    get().map(|limit| limit.rlim_cur)
}

fn get() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole `rlimit`, which the call only writes.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: the pointer is to a whole `rlimit`, which the call only reads.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
