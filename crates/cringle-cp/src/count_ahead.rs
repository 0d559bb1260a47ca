//! Counts the files and bytes of the sources ahead of the copy, for the progress.
//!
//! The count is a lower bound until it is complete, and stays one if a part of the sources cannot
//! be counted: a directory that cannot be read, a path that is too long, a device, a link to a
//! directory that was counted before.

use crate::choices::Follow;
use crate::options::Options;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The regular files of the sources, as far as they have been counted.
#[derive(Default)]
pub(crate) struct Total {
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
    is_exact: AtomicBool,
    stop: AtomicBool,
}

impl Total {
    /// Returns whether everything has been counted.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact.load(Relaxed)
    }

    /// Ends the count.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Counts what a copy of these sources would read.
    pub(crate) fn count(&self, options: &Options, sources: Vec<OsString>) {
        let (seen, below) = (HashSet::new(), Vec::new());
        let mut walk = Walk { total: self, options, is_exact: true, seen, below };
        for source in sources {
            walk.source(source.into());
        }
        if !self.stop.load(Relaxed) {
            self.is_exact.store(walk.is_exact, Relaxed);
        }
    }
}

struct Walk<'a> {
    total: &'a Total,
    options: &'a Options,
    is_exact: bool,
    /// Files with several names; where links are followed, also directories.
    seen: HashSet<(u64, u64)>,
    /// Directories whose entries have not been counted.
    below: Vec<PathBuf>,
}

impl Walk<'_> {
    /// Counts one name of the command line, with everything below it.
    fn source(&mut self, path: PathBuf) {
        let follow = self.options.follow != Follow::Never;
        let Ok(metadata) = look(&path, follow) else {
            self.is_exact = false;
            return;
        };
        let device = metadata.dev();
        self.add(path, &metadata, device, follow);
        while let Some(directory) = self.below.pop() {
            if self.entries(&directory, device).is_err() {
                self.is_exact = false;
            }
        }
    }

    fn entries(&mut self, directory: &PathBuf, device: u64) -> io::Result<()> {
        let follow = self.options.follow == Follow::Always;
        for entry in fs::read_dir(directory)? {
            if self.total.stop.load(Relaxed) {
                self.below.clear();
                return Ok(());
            }
            let path = entry?.path();
            match look(&path, follow) {
                Ok(metadata) => self.add(path, &metadata, device, follow),
                Err(_) => self.is_exact = false,
            }
        }
        Ok(())
    }

    /// `follow`: it may have been reached through a link, so that its name may be one of several.
    fn add(&mut self, path: PathBuf, metadata: &Metadata, device: u64, follow: bool) {
        let kind = metadata.file_type();
        let id = (metadata.dev(), metadata.ino());
        if kind.is_dir() {
            let elsewhere = self.options.one_file_system && metadata.dev() != device;
            if !self.options.recursive || elsewhere {
                return;
            }
            // A link may lead back up, or to a directory that is copied a second time.
            if self.options.follow == Follow::Always && !self.seen.insert(id) {
                self.is_exact = false;
                return;
            }
            self.below.push(path);
        } else if kind.is_file() {
            let has_names = metadata.nlink() > 1 || follow;
            if self.options.preserve.links && has_names && !self.seen.insert(id) {
                return;
            }
            self.total.files.fetch_add(1, Relaxed);
            self.total.bytes.fetch_add(metadata.len(), Relaxed);
        } else if self.options.as_regular && !kind.is_symlink() && !kind.is_socket() {
            // The size of a device or a pipe is not known.
            self.is_exact = false;
        }
    }
}

fn look(path: &PathBuf, follow: bool) -> io::Result<Metadata> {
    if follow { fs::metadata(path) } else { fs::symlink_metadata(path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn counted(options: &Options, source: &Path) -> (u64, u64, bool) {
        let total = Total::default();
        total.count(options, vec![source.into()]);
        (total.files.load(Relaxed), total.bytes.load(Relaxed), total.is_exact())
    }

    #[test]
    fn each_file_is_counted_as_it_is_copied() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("tree/below")).unwrap();
        fs::write(at("tree/first"), "12345").unwrap();
        fs::hard_link(at("tree/first"), at("tree/below/second")).unwrap();
        fs::write(at("other"), "123").unwrap();
        symlink(at("other"), at("tree/link")).unwrap();
        let tree = at("tree");
        assert_eq!(counted(&Options::new().recursive(true), &tree), (2, 10, true));
        assert_eq!(counted(&Options::new().archive(), &tree), (1, 5, true));
        let follows = Options::new().recursive(true).follow(Follow::Always);
        assert_eq!(counted(&follows, &tree), (3, 13, true));
        assert_eq!(counted(&Options::new(), &tree), (0, 0, true));
        // Two links to a file with one name.
        symlink(at("other"), at("tree/another")).unwrap();
        let archives = Options::new().archive().follow(Follow::Always);
        assert_eq!(counted(&archives, &tree), (2, 8, true));
    }

    #[test]
    fn what_cannot_be_counted_makes_a_lower_bound() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("tree")).unwrap();
        fs::write(at("tree/file"), "12345").unwrap();
        symlink(at("tree"), at("tree/up")).unwrap();
        let follows = Options::new().recursive(true).follow(Follow::Always);
        assert_eq!(counted(&follows, &at("tree")), (1, 5, false));
        assert_eq!(counted(&Options::new(), &at("missing")), (0, 0, false));
        assert_eq!(counted(&Options::new(), Path::new("/dev/zero")), (0, 0, false));
    }
}
