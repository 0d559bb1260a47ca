//! Changing names in a [`Dir`]: the directory of the name is found first, see
//! [`resolve`](super::resolve).

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
    /// Makes a directory in it.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn create_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let name = self.resolve(path.as_ref())?;
        make_dir(name.dir(), &name.name, 0o777)
    }

    /// Removes a name of a file in it.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn remove_file<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let name = self.resolve(path.as_ref())?;
        unlink(name.dir(), name.a_file()?, 0)
    }

    /// Removes an empty directory in it.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn remove_dir<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let name = self.resolve(path.as_ref())?;
        unlink(name.dir(), &name.name, libc::AT_REMOVEDIR)
    }

    /// Removes a directory in it with all that it has: see [`remove_dir_all`](crate::fs::remove_dir_all).
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn remove_dir_all<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let name = self.resolve(path.as_ref())?;
        remove_tree(name.dir(), &name.name)
    }

    /// Gives a file in it another name, in `to_dir`.
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
    /// # Ok::<(), std::io::Error>(())
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
        let original = self.resolve(original.as_ref())?;
        let link = link_dir.resolve(link.as_ref())?;
        link_at((original.dir(), original.a_file()?), (link.dir(), link.a_file()?))
    }

    /// Makes a symbolic link in it, which may say anything: it is looked at when it is followed.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(&self, original: P, link: Q) -> io::Result<()> {
        let name = self.resolve(link.as_ref())?;
        symlink_at(&c_path(original.as_ref())?, (name.dir(), name.a_file()?))
    }

    /// What a symbolic link in it says.
    ///
    /// # Errors
    ///
    /// See [`Dir`].
    pub fn read_link<P: AsRef<Path>>(&self, path: P) -> io::Result<PathBuf> {
        let name = self.resolve(path.as_ref())?;
        read_link_at((name.dir(), name.a_file()?))
    }

    fn resolve(&self, path: &Path) -> io::Result<NameInDir<'_>> {
        NameInDir::of(self.as_fd(), path)
    }
}
