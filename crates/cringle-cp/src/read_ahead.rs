//! Copies files that most likely have no target yet: a small file in the page cache with one read;
//! a cold file after it has been read ahead, while others are copied.

use crate::choices::{Follow, When};
use crate::messages::quote;
use crate::regular::{Outcome, Target, devices, is_sparse, open_source};
use crate::summary::Counters;
use crate::sys::{self, Stat};
use crate::tree::{Dir, Item, Side};
use crate::workers::Worker;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The cold files that one worker keeps open to read them ahead.
const MAX_READ_AHEAD: usize = 32;

/// A small file that is being read into the page cache.
pub(crate) struct Deferred {
    dir: Arc<Dir>,
    name: CString,
    file: OwnedFd,
    stat: Stat,
    releases: u64,
    looked: i64,
}

impl Worker<'_> {
    /// Copies a regular file of a tree whose target most likely does not exist. Returns `None`,
    /// without having done anything, if the file must be copied the general way.
    pub(crate) fn copy_likely_new(&mut self, item: &Item<'_>) -> Option<Outcome> {
        let options = &self.shared.options;
        let file = open_source(item, options.follows(false)).ok()?;
        let stat = sys::stat_of(file.as_fd()).ok()?;
        // Through links, a file with one name can be found twice.
        let linked =
            options.preserve.links && (stat.st_nlink > 1 || options.follow == Follow::Always);
        if sys::kind(&stat) != libc::S_IFREG || linked {
            return None;
        }
        if self.shared.names_late() && sys::stat_at(item.target_dir, item.target, false).is_ok() {
            return None;
        }
        let size = stat.st_size as usize;
        let mut read = None;
        if size > 0 && size < self.buffer.len() && self.uses_buffer(item, &stat) {
            match sys::read_cached(file.as_fd(), &mut self.buffer) {
                Ok(n) if n == size => read = Some(n),
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                    if let Some(dir) = item.dir {
                        self.defer(dir, item, file, stat);
                        return Some(Outcome::Good);
                    }
                }
                _ => {}
            }
        }
        match self.copy_regular(item, file, &stat, Target::LikelyNew, read) {
            Outcome::Exists => None,
            ended => Some(ended),
        }
    }

    /// Returns whether the file is copied through the buffer, not by the kernel.
    fn uses_buffer(&self, item: &Item<'_>, stat: &Stat) -> bool {
        let options = &self.shared.options;
        let clones =
            options.reflink != When::Never && !self.no_clone.contains(&devices(item, stat));
        !clones && !is_sparse(stat) && options.sparse != When::Always
    }

    /// Starts to read a cold file, and copies it later.
    fn defer(&mut self, dir: &Arc<Dir>, item: &Item<'_>, file: OwnedFd, stat: Stat) {
        sys::start_reading(file.as_fd(), stat.st_size as u64);
        dir.pending.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = item.source.to_owned();
        let (releases, looked) = (self.releases, self.looked);
        self.deferred.push(Deferred { dir: Arc::clone(dir), name, file, stat, releases, looked });
        let budget = &self.shared.budget;
        if self.deferred.len() >= budget.share(budget.read_ahead).min(MAX_READ_AHEAD) {
            self.copy_deferred();
        }
    }

    /// Copies the files that were read ahead.
    pub(crate) fn copy_deferred(&mut self) {
        for deferred in std::mem::take(&mut self.deferred) {
            let Deferred { dir, name, file, stat, releases, looked } = deferred;
            (self.releases, self.looked) = (releases, looked);
            let target = dir.fd(Side::Target, &self.shared.open);
            let source = dir.fd(Side::Source, &self.shared.open);
            match (source, target) {
                _ if self.shared.stopped() => {}
                (Ok(source), Ok(target)) => {
                    let item = Item {
                        dir: Some(&dir),
                        source_dir: source.as_fd(),
                        source: &name,
                        target_dir: target.as_fd(),
                        target: &name,
                    };
                    let ended = self.copy_regular(&item, file, &stat, Target::LikelyNew, None);
                    let good = match ended {
                        Outcome::Exists => self.copy_general(&item),
                        ended => ended == Outcome::Good,
                    };
                    if !good {
                        self.reporter().fail_silently();
                        Counters::add(&self.shared.counters.failures, 1);
                    }
                }
                (Err(e), _) | (_, Err(e)) => {
                    self.reporter().fail_on("cannot access", quote(dir.path(Side::Target)), &e);
                }
            }
            self.part_done(dir);
        }
    }
}
