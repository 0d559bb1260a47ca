//! Copies and renames of objects, on a fiber. `LocalFileSystem`'s own create directories for as
//! long as a name is refused, so the store does not use them.
//!
//! A copy is a hard link, as with `LocalFileSystem`: no object changes once it has its name. The
//! link gets a random staging name, which is renamed and then removed, because `rename(2)` does
//! nothing if the object already is the same file. Where the file system has no hard links, the
//! bytes are copied.

use crate::engine::Engine;
use crate::error::Error;
use crate::meta::open_file;
use crate::names::{Repairs, is_no_link, is_no_noreplace, sync_directory};
use crate::staging::{Publish, Staging, random_number, staging_path};
use cringle::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A copy or a rename.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
    pub(crate) how: Publish,
    pub(crate) engine: Engine,
    pub(crate) fsync: bool,
}

impl Transfer {
    pub(crate) fn copy(&self) -> Result<(), Error> {
        self.explain(self.is_there().and_then(|()| match self.how {
            Publish::Replace => self.copy_over(),
            Publish::Create => self.copy_anew(),
        }))
    }

    /// `cleanup` is the number of directories above the object that are removed if they are empty
    /// then, but not by a rename that may replace an object (as with `LocalFileSystem`).
    pub(crate) fn rename(&self, cleanup: usize) -> Result<(), Error> {
        self.explain(self.is_there().and_then(|()| match self.how {
            Publish::Replace => self.rename_with(|| self.rename_over()),
            Publish::Create => {
                self.rename_with(|| self.rename_anew())?;
                let above = self.from.ancestors().skip(1).take(cleanup);
                above.map(fs::remove_dir).find(Result::is_err);
                Ok(())
            }
        }))
    }

    /// Nothing is created for an object that does not exist.
    fn is_there(&self) -> Result<(), Error> {
        fs::symlink_metadata(&self.from).map(drop).map_err(Error::open(&self.from))
    }

    /// Reports an object that was removed meanwhile as one that does not exist.
    fn explain(&self, done: Result<(), Error>) -> Result<(), Error> {
        let Err(Error::Io { .. }) = done else { return done };
        match self.is_there() {
            Err(missing @ Error::NotFound { .. }) => Err(missing),
            _ => done,
        }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        let path = self.to.clone();
        move |source| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source },
            _ => Error::Io { action, path, source },
        }
    }

    fn copy_over(&self) -> Result<(), Error> {
        let linked = Staging::link(&self.from, &self.to, self.engine.clone(), self.fsync);
        let mut staging = match linked {
            Err(Error::Io { source, .. }) if is_no_link(&source) => return self.copy_bytes(),
            linked => linked?,
        };
        let renamed = fs::rename(staging.path(&self.to), &self.to);
        // It still exists after an error, and if the object was the same file already.
        drop(staging.remove());
        renamed.map_err(Error::io("rename its staging file", &self.to))?;
        self.sync(&self.to)
    }

    fn copy_anew(&self) -> Result<(), Error> {
        let mut repairs = Repairs::new(self.fsync);
        loop {
            match fs::hard_link(&self.from, &self.to) {
                Ok(()) => return self.sync(&self.to),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    repairs.create_parents(&self.to, e)?;
                }
                Err(e) if is_no_link(&e) => return self.copy_bytes(),
                Err(e) => return Err(self.failed("link it")(e)),
            }
        }
    }

    fn copy_bytes(&self) -> Result<(), Error> {
        // An open of a FIFO would wait.
        let (_, metadata) = open_file(&self.from)?;
        if metadata.is_dir() {
            let source = io::ErrorKind::IsADirectory.into();
            return Err(Error::Io { action: "copy it", path: self.from.clone(), source });
        }
        if self.how == Publish::Create && fs::symlink_metadata(&self.to).is_ok() {
            let source = io::ErrorKind::AlreadyExists.into();
            return Err(Error::AlreadyExists { path: self.to.clone(), source });
        }
        let (mut staging, file) = Staging::create(&self.to, self.engine.clone(), self.fsync)?;
        if let Err(e) = fs::copy(&self.from, staging.path(&self.to)) {
            drop(staging.remove());
            return Err(Error::io("copy it", &self.from)(e));
        }
        staging.publish(file, &self.to, self.how, self.fsync)
    }

    /// Renames by a call that fails if the directory of the new name does not exist.
    fn rename_with(&self, rename: impl Fn() -> io::Result<()>) -> Result<(), Error> {
        let mut repairs = Repairs::new(self.fsync);
        loop {
            match rename() {
                Err(e) if e.kind() == io::ErrorKind::NotFound && self.is_there().is_ok() => {
                    repairs.create_parents(&self.to, e)?;
                }
                renamed => break renamed.map_err(self.failed("rename it"))?,
            }
        }
        self.sync(&self.to)?;
        if self.from.parent() == self.to.parent() { Ok(()) } else { self.sync(&self.from) }
    }

    /// One step, so that of several renames of one object one succeeds, and the others leave
    /// nothing. Where the file system has no such call, there are two steps.
    fn rename_anew(&self) -> io::Result<()> {
        let (from, to) = (&self.from, &self.to);
        if fs::symlink_metadata(from)?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        match fs::rename_noreplace(from, to) {
            Err(e) if is_no_noreplace(&e) => {
                fs::hard_link(from, to).map_err(|link| if is_no_link(&link) { e } else { link })?;
                fs::remove_file(from)
            }
            renamed => renamed,
        }
    }

    /// `rename(2)` does nothing if both names are of one file, which they are after a copy. Then
    /// the old name is taken away first, by another rename: what is put there meanwhile is not
    /// lost.
    ///
    /// The look comes before the rename. A look behind it could not distinguish an old name that
    /// the rename has left from one that another caller has copied back, which has to stay. So if
    /// another caller makes a copy from one name to the other between the look and the rename, the
    /// old name remains.
    fn rename_over(&self) -> io::Result<()> {
        let (from, to) = (&self.from, &self.to);
        match fs::rename_noreplace(from, to) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists || is_no_noreplace(&e) => {}
            renamed => return renamed,
        }
        let identity = |path| fs::symlink_metadata(path).map(|m| (m.dev(), m.ino(), m.nlink() > 1));
        let (one, other) = (identity(from)?, identity(to).ok());
        if from == to || Some(one) != other || !one.2 {
            return fs::rename(from, to);
        }
        let aside = staging_path(to, random_number());
        fs::rename(from, &aside)?;
        fs::rename(&aside, to).inspect_err(|_| drop(fs::rename_noreplace(&aside, from)))?;
        // It still exists if it was the same file.
        drop(fs::remove_file(&aside));
        Ok(())
    }

    fn sync(&self, path: &Path) -> Result<(), Error> {
        match self.fsync {
            true => sync_directory(path.parent()).map_err(Error::io("sync its directory", path)),
            false => Ok(()),
        }
    }
}
