//! A directory as a handle, and paths that cannot leave it: see [`resolve`](super::resolve).

use super::perform::{c_path, perform};

use super::resolve::{Base, open, open_dir};
use super::stat::{self, stat_open};
use super::{File, Metadata, OpenOptions, ReadDir};
use crate::driver::Op;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// An open directory. The paths of its methods begin in it and cannot leave it: one that would, by `..`,
/// by a link, or because it is absolute, is refused with `CrossesDevices` (`EXDEV`). Linux 5.6.
///
/// ```
/// use cringle::fs::{self, Dir};
/// use std::io::{ErrorKind, Write};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// cringle::run(|| -> std::io::Result<()> {
///     let dir = Dir::open(path)?;
///     dir.create_dir("inside")?;
///     dir.open_file_with("inside/file", fs::File::options().write(true).create(true))?
///         .write_all(b"text")?;
///     assert_eq!(dir.metadata("inside/../inside/file")?.len(), 4);
///     assert_eq!(dir.open_file("../file").unwrap_err().kind(), ErrorKind::CrossesDevices);
///     dir.remove_dir_all("inside")
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// Each method's are those of the function of its name in [`fs`](crate::fs), and `EXDEV` as above;
/// `InvalidInput` where a name is changed and the path ends in `.` or `..`.
pub struct Dir {
    fd: OwnedFd,
}

impl Dir {
    /// Opens a directory by any path.
    ///
    /// # Errors
    ///
    /// As [`read_dir`](crate::fs::read_dir).
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<Dir> {
        open_dir(libc::AT_FDCWD, &c_path(path.as_ref())?, 0).map(Dir::from)
    }

    /// Opens a directory in it.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn open_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<Dir> {
        self.open_beneath(path.as_ref(), libc::O_DIRECTORY).map(Dir::from)
    }

    /// Opens a file in it to read.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn open_file<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        self.open_file_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file in it with these options.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn open_file_with<P: AsRef<Path>>(
        &self,
        path: P,
        options: &OpenOptions,
    ) -> io::Result<File> {
        options.open_from(Base::Beneath(self.as_fd()), path.as_ref())
    }

    /// The entries of a directory in it; of itself: `"."`.
    ///
    /// ```
    /// use cringle::fs::Dir;
    ///
    /// let fds = Dir::open("/proc/self")?.read_dir("fd")?;
    /// assert!(fds.count() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn read_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<ReadDir> {
        let path = path.as_ref();
        Ok(ReadDir::new(self.open_beneath(path, libc::O_DIRECTORY)?, path))
    }

    /// What is known of the file that the path leads to.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn metadata<P: AsRef<Path>>(&self, path: P) -> io::Result<Metadata> {
        stat_open(&self.open_beneath(path.as_ref(), libc::O_PATH)?, stat::ALL)
    }

    /// What is known of the file itself, though it is a symbolic link.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn symlink_metadata<P: AsRef<Path>>(&self, path: P) -> io::Result<Metadata> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        stat_open(&self.open_beneath(path.as_ref(), flags)?, stat::ALL)
    }

    /// Whether the path leads to something.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn exists<P: AsRef<Path>>(&self, path: P) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Waits until the names in it are on the disk (`fsync`): a file that was made, or given a name,
    /// survives a crash only then.
    ///
    /// # Errors
    ///
    /// What `fsync` says; and [`Cancelled`](crate::Cancelled).
    pub fn sync_all(&self) -> io::Result<()> {
        let op = Op::Sync { fd: self.fd.as_raw_fd(), data_only: false };
        // SAFETY: the op has no pointers.
        unsafe { perform(op) }.map(drop)
    }

    /// Another handle to the same directory.
    ///
    /// # Errors
    ///
    /// None is left to open (`EMFILE`).
    pub fn try_clone(&self) -> io::Result<Dir> {
        self.fd.try_clone().map(Dir::from)
    }

    fn open_beneath(&self, path: &Path, flags: i32) -> io::Result<OwnedFd> {
        open(Base::Beneath(self.as_fd()), &c_path(path)?, flags | libc::O_CLOEXEC, 0)
    }
}

impl From<OwnedFd> for Dir {
    fn from(fd: OwnedFd) -> Dir {
        Dir { fd }
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> OwnedFd {
        dir.fd
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Dir {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dir").field("fd", &self.fd.as_raw_fd()).finish()
    }
}
