//! Divides the file descriptors that a copy may use.
//!
//! The soft limit (`RLIMIT_NOFILE`) is raised towards the hard one as far as a copy can use it; a
//! copy has no children that would inherit it. Each worker gets what one name needs. The rest is
//! for speed: open directories, unfinished listings, files that are read ahead or wait for their
//! fsync. With few descriptors there are fewer workers, at least one. A call that meets the limit
//! nevertheless closes directories that no worker uses, and is retried.

use crate::sys;
use crate::tree::OpenDirs;
use crate::workers::lock;
use std::sync::{Mutex, Weak};

/// The descriptors that one worker holds at most while it copies one name: directories, files, and
/// those through which it reopens directories.
const PER_WORKER: usize = 10;
/// With `--fsync`, a worker also has a ring, an event and a descriptor for each file system.
const PER_RUNTIME: usize = 6;
/// Signals, `--trace` and whatever is opened later.
const OTHERS: usize = 8;

const MAX_DIRECTORIES: usize = 48;
const MAX_LISTINGS: usize = 64;
const MAX_READ_AHEAD: usize = 128;
const MAX_SYNCS: usize = 64;

/// The division of the descriptors of one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) jobs: usize,
    /// Directories that are kept open, a source and a target each.
    pub(crate) directories: usize,
    /// Directories whose listing is unfinished.
    pub(crate) listings: usize,
    /// Cold files that all workers read ahead together.
    pub(crate) read_ahead: usize,
    /// Files of all workers that wait for their own fsync.
    pub(crate) syncs: usize,
}

impl Budget {
    /// Raises the soft limit if that helps, and divides what it allows.
    pub(crate) fn of_this_process(jobs: usize, fsync: bool) -> Budget {
        let used = sys::open_descriptors().unwrap_or(16) + OTHERS;
        let (directories, syncs) = (MAX_DIRECTORIES, MAX_SYNCS);
        let most = 2 * directories + MAX_LISTINGS + MAX_READ_AHEAD + syncs;
        let limit = sys::allow_descriptors(used + most + jobs * Budget::per_worker(fsync));
        Budget::of(limit.saturating_sub(used), jobs, fsync)
    }

    fn per_worker(fsync: bool) -> usize {
        PER_WORKER + if fsync { PER_RUNTIME } else { 0 }
    }

    /// Gives at most half to the workers. One worker, one directory and one file are always
    /// allowed.
    fn of(free: usize, jobs: usize, fsync: bool) -> Budget {
        let each = Budget::per_worker(fsync);
        let jobs = jobs.min(free / 2 / each).max(1);
        let rest = free.saturating_sub(jobs * each);
        Budget {
            jobs,
            directories: (rest / 6).clamp(1, MAX_DIRECTORIES),
            listings: (rest / 6).min(MAX_LISTINGS),
            read_ahead: (rest / 4).min(MAX_READ_AHEAD),
            syncs: (rest / 6).min(MAX_SYNCS),
        }
    }

    /// Returns one worker's share of a number.
    pub(crate) fn share(&self, of_all: usize) -> usize {
        (of_all / self.jobs).max(1)
    }
}

/// The open directories of all running copies. Static, because the process has one table of
/// descriptors.
static OPEN: Mutex<Vec<Weak<OpenDirs>>> = Mutex::new(Vec::new());

/// Allows [`make_room`] to close these directories until they are dropped.
pub(crate) fn may_close(directories: Weak<OpenDirs>) {
    let mut open = lock(&OPEN);
    open.retain(|directories| directories.strong_count() > 0);
    open.push(directories);
}

/// Closes directories that no worker uses; returns false if none was closed.
pub(crate) fn make_room() -> bool {
    let open = lock(&OPEN).clone();
    let directories = open.iter().filter_map(Weak::upgrade);
    directories.filter(|directories| directories.close_unused()).count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_fits_and_uses_plenty() {
        for fsync in [false, true] {
            for free in 0..4096 {
                for jobs in [1, 4, 16, 256] {
                    let budget = Budget::of(free, jobs, fsync);
                    let Budget { jobs: workers, directories, listings, read_ahead, syncs } = budget;
                    let workers = workers * Budget::per_worker(fsync);
                    let sum = workers + 2 * directories + listings + read_ahead + syncs;
                    let least = Budget::per_worker(fsync) + 2;
                    assert!(sum <= free.max(least), "{free}: {budget:?}");
                }
            }
            let plenty = Budget::of(1000, 16, fsync);
            let most = (MAX_DIRECTORIES, MAX_LISTINGS, MAX_READ_AHEAD, MAX_SYNCS);
            let Budget { directories, listings, read_ahead, syncs, .. } = plenty;
            assert_eq!(
                (directories, listings, read_ahead, syncs, plenty.jobs),
                (most.0, most.1, most.2, most.3, 16)
            );
        }
    }
}
