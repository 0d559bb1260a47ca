//! The methods of [`Dir`] that create, rename and remove names. Each opens the directory that
//! contains the name first: see [`resolve`](super::resolve).

use super::Dir;
use super::create::make_dir;
use super::names::{link_at, read_link_at, rename_at, symlink_at, unlink};
use super::perform::c_path;
use super::remove::remove_tree;
use super::resolve::NameInDir;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

impl Dir {
    /// Creates a directory below this one.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// let dir = cringle::fs::Dir::open(directory.path())?;
    /// dir.create_dir("new")?;
    /// assert!(dir.metadata("new")?.is_dir());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn create_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let name = self.resolve(path.as_ref())?;
        make_dir(name.dir(), &name.name, 0o777)
    }

    /// Removes a name of a file below this directory.
    ///
    /// ```
    /// use cringle::fs;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// fs::write(directory.path().join("file"), "text")?;
    /// let dir = fs::Dir::open(directory.path())?;
    /// dir.remove_file("file")?;
    /// assert!(!dir.exists("file")?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn remove_file<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let name = self.resolve(path.as_ref())?;
        unlink(name.dir(), name.file_name()?, 0)
    }

    /// Removes an empty directory below this one.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// let dir = cringle::fs::Dir::open(directory.path())?;
    /// dir.create_dir("empty")?;
    /// dir.remove_dir("empty")?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn remove_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let name = self.resolve(path.as_ref())?;
        unlink(name.dir(), &name.name, libc::AT_REMOVEDIR)
    }

    /// Removes a directory below this one with all of its contents: see
    /// [`remove_dir_all`](crate::fs::remove_dir_all).
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// let dir = cringle::fs::Dir::open(directory.path())?;
    /// dir.create_dir("tree")?;
    /// dir.create_dir("tree/branch")?;
    /// dir.remove_dir_all("tree")?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn remove_dir_all<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let name = self.resolve(path.as_ref())?;
        remove_tree(name.dir(), &name.name)
    }

    /// Renames a file below this directory to a path below `to_dir`, and replaces an existing file
    /// of that name.
    ///
    /// ```
    /// use cringle::fs::{Dir, File};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// let dir = Dir::open(directory.path())?;
    /// dir.open_file_with("draft", File::options().write(true).create_new(true))?.sync_all()?;
    /// dir.rename("draft", &dir, "text")?;
    /// dir.sync_all()?;
    /// assert!(dir.exists("text")? && !dir.exists("draft")?);
    /// # std::io::Result::Ok(())
    /// ```
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
        let (from, to) = (self.resolve(from.as_ref())?, to_dir.resolve(to.as_ref())?);
        rename_at((from.dir(), &from.with_slash()), (to.dir(), &to.with_slash()), 0)
    }

    /// Creates a hard link, below `link_dir`, to a file below this directory.
    ///
    /// ```
    /// use cringle::fs;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// fs::write(directory.path().join("one"), "text")?;
    /// let dir = fs::Dir::open(directory.path())?;
    /// dir.hard_link("one", &dir, "two")?;
    /// assert_eq!(dir.metadata("two")?.len(), 4);
    /// # std::io::Result::Ok(())
    /// ```
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
        let original = self.resolve(original.as_ref())?;
        let link = link_dir.resolve(link.as_ref())?;
        link_at((original.dir(), original.file_name()?), (link.dir(), link.file_name()?))
    }

    /// Creates a symbolic link below this directory. `original` may be any path: the kernel
    /// resolves it only when the link is followed.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// let dir = cringle::fs::Dir::open(directory.path())?;
    /// dir.symlink("target", "link")?;
    /// assert_eq!(dir.read_link("link")?, std::path::Path::new("target"));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(&self, original: P, link: Q) -> io::Result<()> {
        let name = self.resolve(link.as_ref())?;
        symlink_at(&c_path(original.as_ref())?, (name.dir(), name.file_name()?))
    }

    /// Returns the target of a symbolic link below this directory.
    ///
    /// ```
    /// let exe = cringle::fs::Dir::open("/proc/self")?.read_link("exe")?;
    /// assert!(exe.is_absolute());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn read_link<P: AsRef<Path>>(&self, path: P) -> io::Result<PathBuf> {
        let name = self.resolve(path.as_ref())?;
        read_link_at((name.dir(), name.file_name()?))
    }

    fn resolve(&self, path: &Path) -> io::Result<NameInDir<'_>> {
        NameInDir::of(self.as_fd(), path)
    }
}
