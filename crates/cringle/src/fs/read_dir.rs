//! The entries of a directory, one by one.

use super::listing::Listing;
use super::perform::c_path;
use super::resolve::open_dir;
use super::stat::{self, stat};
use super::{FileType, Metadata};
use crate::runtime::worker::fairness;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The entries of a directory; only the calling fiber waits.
///
/// ```
/// use cringle::fs;
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// cringle::run(|| -> std::io::Result<()> {
///     fs::write(directory.join("file"), "text")?;
///     for entry in fs::read_dir(directory)? {
///         let entry = entry?;
///         assert_eq!(entry.file_name(), "file");
///         assert!(entry.file_type()?.is_file());
///     }
///     Ok(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As `std::fs::read_dir`; and [`Cancelled`](crate::Cancelled).
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    let fd = open_dir(libc::AT_FDCWD, &c_path(path)?, 0)?;
    Ok(ReadDir::new(fd, path))
}

/// An iterator over the entries of a directory: `std::fs::ReadDir`. It holds the directory open and
/// 32 KiB of names, however many there are; the pool fills them (the ring has no op for it).
///
/// # Cancellation
///
/// Names that are in the buffer are given out; the next call of the kernel is refused, and ends it.
pub struct ReadDir {
    directory: Arc<Directory>,
    listing: Listing,
}

/// What the entries share.
struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl ReadDir {
    pub(super) fn new(fd: OwnedFd, path: &Path) -> ReadDir {
        let directory = Arc::new(Directory { fd, path: path.to_owned() });
        ReadDir { directory, listing: Listing::new() }
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        fairness::spend();
        let record = self.listing.next(self.directory.fd.as_raw_fd())?;
        Some(record.map(|record| DirEntry {
            directory: Arc::clone(&self.directory),
            inode: record.inode,
            kind: record.kind,
            name: record.name.to_owned(),
        }))
    }
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReadDir").field(&self.directory.path).finish()
    }
}

/// An entry of a directory: `std::fs::DirEntry`. Its inode comes with std's own [`DirEntryExt`].
pub struct DirEntry {
    directory: Arc<Directory>,
    inode: u64,
    kind: u8,
    name: CString,
}

impl DirEntry {
    /// The path that was read, and the name.
    pub fn path(&self) -> PathBuf {
        self.directory.path.join(self.name())
    }

    /// The name.
    pub fn file_name(&self) -> OsString {
        self.name().to_owned()
    }

    /// What kind of file it is: known from the directory, without asking the kernel again, where the
    /// file system keeps it there. Links are not followed.
    ///
    /// # Errors
    ///
    /// As [`metadata`](DirEntry::metadata), where it has to be asked for.
    pub fn file_type(&self) -> io::Result<FileType> {
        match FileType::of_entry(self.kind) {
            Some(kind) => Ok(kind),
            None => self.metadata().map(|metadata| metadata.file_type()),
        }
    }

    /// What is known of it. Links are not followed. It is asked for in the directory that was read,
    /// though that has another name by now.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn metadata(&self) -> io::Result<Metadata> {
        let fd = self.directory.fd.as_raw_fd();
        stat(fd, &self.name, libc::AT_SYMLINK_NOFOLLOW, stat::ALL)
    }

    fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.name.to_bytes())
    }
}

impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.inode
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
