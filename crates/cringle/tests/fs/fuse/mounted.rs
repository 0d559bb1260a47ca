//! The file system of these tests: ten files, whose reads and writes transfer only a part of the
//! request, as FUSE allows if the server opens its files with `FOPEN_DIRECT_IO`.

use cringle_testing::disk;
use cringle_testing::fuse::{Faulty, InitFlags, Rules};
use std::path::PathBuf;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Manner {
    /// Through the page cache. (A short read means the end there.)
    Cached,
    /// Direct: the server transfers at most 1,000 bytes by each reply.
    Short,
    /// The kernel may send several requests for one direct read or write.
    ShortAsync,
}

/// A mounted file system with ten empty files; unmounted when dropped.
pub(crate) struct Mounted {
    pub(crate) faulty: Faulty,
    _directory: TempDir,
}

fn name(file: usize) -> String {
    format!("victim{file}")
}

impl Mounted {
    /// Mounts the file system. Returns `None`, and prints why, where that is not possible.
    pub(crate) fn new(manner: Manner) -> Option<Mounted> {
        let directory = disk::directory();
        let capabilities = match manner {
            Manner::ShortAsync => InitFlags::FUSE_ASYNC_DIO,
            _ => InitFlags::empty(),
        };
        let faulty = Faulty::mount_with(directory.path(), "mounted", capabilities)?;
        if manner != Manner::Cached {
            faulty.set(
                Rules { longest_read: 1000, longest_write: 1000, ..Rules::default() }.direct(),
            );
        }
        (0..10).for_each(|file| faulty.put(&name(file), b""));
        Some(Mounted { faulty, _directory: directory })
    }

    pub(crate) fn path(&self, file: usize) -> PathBuf {
        self.faulty.at.join(name(file))
    }

    /// Returns the contents of a file from the server.
    pub(crate) fn bytes(&self, file: usize) -> Vec<u8> {
        self.faulty.get(&name(file)).unwrap().0
    }

    pub(crate) fn fill(&self, file: usize, bytes: &[u8]) {
        self.faulty.put(&name(file), bytes);
    }
}
