//! A directory handle whose paths cannot leave the directory: see [`resolve`](super::resolve).

use super::perform::{c_path, perform};
use super::resolve::{Base, open, open_dir};
use super::stat::{self, stat_open};
use super::{File, Metadata, OpenOptions, ReadDir};
use cringle_driver::{FileOp, Op};
use cringle_sys::{self as sys, Owned};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// An open directory, as a base for paths that cannot leave it.
///
/// Each method resolves its path relative to the directory. A path that would leave it, by `..`,
/// through a symbolic link, or because it is absolute, is refused with `CrossesDevices` (`EXDEV`).
/// Requires Linux 5.6 (`openat2` with `RESOLVE_BENEATH`).
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
/// # ?; std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// Each method returns the errors of the function of the same name in [`fs`](crate::fs), and
/// `EXDEV` as above. Methods that create, rename or remove a name return `InvalidInput` if the path
/// ends in `.` or `..`.
pub struct Dir {
    fd: Owned,
}

impl Dir {
    /// Opens a directory. This path may be absolute and lead anywhere.
    ///
    /// ```
    /// let dir = cringle::fs::Dir::open("/proc/self")?;
    /// assert!(dir.exists("status")?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_dir`](crate::fs::read_dir).
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<Dir> {
        open_dir(libc::AT_FDCWD, &c_path(path.as_ref())?, 0).map(|fd| Dir { fd })
    }

    /// Opens a directory below this one.
    ///
    /// ```
    /// let task = cringle::fs::Dir::open("/proc/self")?.open_dir("task")?;
    /// assert!(task.read_dir(".")?.count() > 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn open_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<Dir> {
        self.open_beneath(path.as_ref(), libc::O_DIRECTORY).map(|fd| Dir { fd })
    }

    /// Opens a file below this directory for reading.
    ///
    /// The path is relative: an absolute one is refused with `CrossesDevices`, also if it leads to
    /// a file below this directory. Strip the directory from it, or use
    /// [`File::open`](crate::fs::File::open), which may lead anywhere.
    ///
    /// ```
    /// use cringle::fs::Dir;
    /// use std::{io::ErrorKind, path::Path};
    ///
    /// let (root, path) = (Path::new("/proc/self"), Path::new("/proc/self/status"));
    /// let dir = Dir::open(root)?;
    /// assert_eq!(dir.open_file(path).unwrap_err().kind(), ErrorKind::CrossesDevices);
    /// dir.open_file(path.strip_prefix(root).unwrap())?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// ```
    /// let status = cringle::fs::Dir::open("/proc/self")?.open_file("status")?;
    /// assert!(std::io::read_to_string(status)?.contains("Pid:"));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn open_file<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        self.open_file_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file below this directory with the given options.
    ///
    /// ```
    /// use cringle::fs::{Dir, OpenOptions};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// let dir = Dir::open(directory.path())?;
    /// dir.open_file_with("new", OpenOptions::new().write(true).create_new(true))?;
    /// assert!(dir.exists("new")?);
    /// # std::io::Result::Ok(())
    /// ```
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

    /// Returns the entries of a directory below this one; `"."` is this directory itself.
    ///
    /// ```
    /// use cringle::fs::Dir;
    ///
    /// let fds = Dir::open("/proc/self")?.read_dir("fd")?;
    /// assert!(fds.count() > 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn read_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<ReadDir> {
        let path = path.as_ref();
        Ok(ReadDir::new(self.open_beneath(path, libc::O_DIRECTORY)?, path))
    }

    /// Returns the metadata of the file that the path leads to. Symbolic links are followed.
    ///
    /// ```
    /// assert!(cringle::fs::Dir::open("/proc/self")?.metadata("task")?.is_dir());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn metadata<P: AsRef<Path>>(&self, path: P) -> io::Result<Metadata> {
        stat_open(&self.open_beneath(path.as_ref(), libc::O_PATH)?, stat::ALL)
    }

    /// Returns the metadata of the path's last component, which is not followed if it is a symbolic
    /// link.
    ///
    /// ```
    /// assert!(cringle::fs::Dir::open("/proc/self")?.symlink_metadata("exe")?.is_symlink());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn symlink_metadata<P: AsRef<Path>>(&self, path: P) -> io::Result<Metadata> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        stat_open(&self.open_beneath(path.as_ref(), flags)?, stat::ALL)
    }

    /// Returns whether the path leads to an existing file.
    ///
    /// ```
    /// assert!(!cringle::fs::Dir::open("/proc/self")?.exists("no such file")?);
    /// # std::io::Result::Ok(())
    /// ```
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

    /// Waits until the directory's entries are on the disk (`fsync`). Only then does a file that
    /// was created or renamed survive a crash under its name.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// let dir = cringle::fs::Dir::open(directory.path())?;
    /// dir.create_dir("new")?;
    /// dir.sync_all()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `fsync(2)`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn sync_all(&self) -> io::Result<()> {
        let op = Op::File(FileOp::Sync { fd: self.fd.as_raw_fd(), data_only: false });
        // SAFETY: the op has no pointers.
        unsafe { perform(op) }.map(drop)
    }

    /// Returns another handle to the same directory.
    ///
    /// ```
    /// let clone = cringle::fs::Dir::open("/proc/self")?.try_clone()?;
    /// assert!(clone.exists("status")?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// No descriptor is free (`EMFILE`).
    pub fn try_clone(&self) -> io::Result<Dir> {
        sys::duplicate(self.fd.as_raw_fd()).map(|fd| Dir { fd })
    }

    fn open_beneath(&self, path: &Path, flags: i32) -> io::Result<Owned> {
        open(Base::Beneath(self.as_fd()), &c_path(path)?, flags | libc::O_CLOEXEC, 0)
    }
}

impl From<OwnedFd> for Dir {
    fn from(fd: OwnedFd) -> Dir {
        Dir { fd: Owned::new(fd) }
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> OwnedFd {
        dir.fd.into_std()
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
