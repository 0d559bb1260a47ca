//! A directory as a handle, and paths that cannot leave it: see [`resolve`](super::resolve).

use super::call::{ask, c_path};
use super::create::make_dir;
use super::names::{link_at, read_link_at, rename_at, symlink_at, unlink};

use super::remove::remove_tree;
use super::resolve::{Base, Place, open, open_dir};
use super::stat::{self, stat_open};
use super::{File, Metadata, OpenOptions, ReadDir};
use crate::driver::Op;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

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

    /// Makes a directory in it.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn create_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let place = self.place(path.as_ref())?;
        make_dir(place.dir(), &place.name, 0o777)
    }

    /// Removes a name of a file in it.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn remove_file<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let place = self.place(path.as_ref())?;
        unlink(place.dir(), place.a_file()?, 0)
    }

    /// Removes an empty directory in it.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn remove_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let place = self.place(path.as_ref())?;
        unlink(place.dir(), &place.name, libc::AT_REMOVEDIR)
    }

    /// Removes a directory in it with all that it has: see [`remove_dir_all`](crate::fs::remove_dir_all).
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn remove_dir_all<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let place = self.place(path.as_ref())?;
        remove_tree(place.dir(), &place.name)
    }

    /// Gives a file in it another name, in `to_dir`.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(
        &self,
        from: P,
        to_dir: &Dir,
        to: Q,
    ) -> io::Result<()> {
        let (from, to) = (self.place(from.as_ref())?, to_dir.place(to.as_ref())?);
        rename_at((from.dir(), &from.with_slash()), (to.dir(), &to.with_slash()))
    }

    /// Gives a file in it one more name, in `link_dir`.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(
        &self,
        original: P,
        link_dir: &Dir,
        link: Q,
    ) -> io::Result<()> {
        let original = self.place(original.as_ref())?;
        let link = link_dir.place(link.as_ref())?;
        link_at((original.dir(), original.a_file()?), (link.dir(), link.a_file()?))
    }

    /// Makes a symbolic link in it, which may say anything: it is looked at when it is followed.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(&self, original: P, link: Q) -> io::Result<()> {
        let place = self.place(link.as_ref())?;
        symlink_at(&c_path(original.as_ref())?, (place.dir(), place.a_file()?))
    }

    /// What a symbolic link in it says.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn read_link<P: AsRef<Path>>(&self, path: P) -> io::Result<PathBuf> {
        let place = self.place(path.as_ref())?;
        read_link_at((place.dir(), place.a_file()?))
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
        unsafe { ask(op) }.map(drop)
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

    fn place(&self, path: &Path) -> io::Result<Place<'_>> {
        Place::of(self.as_fd(), path)
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
