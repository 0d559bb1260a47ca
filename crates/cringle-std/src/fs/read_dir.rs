//! Iterating over the entries of a directory.

use super::listing::Listing;
use super::perform::c_path;
use super::resolve::open_dir;
use super::stat::{self, stat};
use super::{FileType, Metadata};
use cringle_core::worker::fairness;
use cringle_sys::Owned;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns an iterator over the entries of a directory. Only the calling fiber waits.
///
/// # Errors
///
/// As `std::fs::read_dir`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    let fd = open_dir(libc::AT_FDCWD, &c_path(path)?, 0)?;
    Ok(ReadDir::new(fd, path))
}

/// An iterator over the entries of a directory, as `std::fs::ReadDir`.
///
/// It holds the directory open, and a buffer of 32 KiB whatever the size of the directory. A thread
/// of the pool fills the buffer, because the ring has no op for it.
///
/// ```
/// let entries = cringle::fs::read_dir("/proc/self/task")?;
/// for entry in entries {
///     println!("{}", entry?.path().display());
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancellation
///
/// A cancelled fiber gets the entries that are in the buffer, then the error of the cancel, then
/// `None`.
pub struct ReadDir {
    directory: Arc<Directory>,
    listing: Listing,
}

/// The directory, which its entries share.
struct Directory {
    fd: Owned,
    path: PathBuf,
}

impl ReadDir {
    pub(super) fn new(fd: Owned, path: &Path) -> ReadDir {
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

/// An entry of a directory, as `std::fs::DirEntry`. std's own [`DirEntryExt`] adds its inode
/// number.
///
/// ```
/// for entry in cringle::fs::read_dir("/proc/self/task")? {
///     let entry = entry?;
///     assert!(entry.file_type()?.is_dir());
/// }
/// # std::io::Result::Ok(())
/// ```
pub struct DirEntry {
    directory: Arc<Directory>,
    inode: u64,
    kind: u8,
    name: CString,
}

impl DirEntry {
    /// Returns the path of the entry: the path given to [`read_dir`], joined with the name.
    pub fn path(&self) -> PathBuf {
        self.directory.path.join(self.name())
    }

    /// Returns the name of the entry.
    pub fn file_name(&self) -> OsString {
        self.name().to_owned()
    }

    /// Returns the file type. Symbolic links are not followed. It makes no system call if the file
    /// system stores the type in the directory, as most do.
    ///
    /// # Errors
    ///
    /// As [`metadata`](DirEntry::metadata), if the directory does not store the type.
    pub fn file_type(&self) -> io::Result<FileType> {
        match FileType::of_entry(self.kind) {
            Some(kind) => Ok(kind),
            None => self.metadata().map(|metadata| metadata.file_type()),
        }
    }

    /// Returns the entry's metadata. Symbolic links are not followed. The name is looked up in the
    /// open directory, so it is found even if the directory has been renamed.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
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
