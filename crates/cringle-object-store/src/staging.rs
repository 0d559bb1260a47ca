//! Staging files: an object is written under another name, and gets its own when it is complete.
//!
//! The names are those of `LocalFileSystem` (`object#1`, `object#17`): neither store lists them.

use crate::engine::Engine;
use crate::error::Error;
use crate::names::{Named, Repairs, name_anew, sync_directory};
use cringle::fs::{self, File};
use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number that a staging file tries whose first number is taken. If each tried them one after
/// the other, many uploads of one object would take a time that grows with their square.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(2);

/// The number of names that a staging file tries. A file system that says of every name that it
/// exists would have it try for ever.
const NAMES: u32 = 1000;

/// The name of a staging file. Dropping it removes the file, if nothing else has.
#[derive(Debug)]
pub(crate) struct Staging {
    path: Option<PathBuf>,
    engine: Engine,
}

/// How a staging file gets the object's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// An object of that name is replaced.
    Replace,
    /// An object of that name is an error.
    Create,
}

impl Staging {
    /// Creates a staging file for the object, and its directory if necessary.
    pub(crate) fn create(
        dest: &Path,
        engine: Engine,
        fsync: bool,
    ) -> Result<(Staging, File), Error> {
        let open = |path: &Path| File::options().read(true).write(true).create_new(true).open(path);
        Staging::claim(dest, 1, engine, fsync, open)
    }

    /// Makes the staging file another name of an existing file.
    ///
    /// The name is removed after a rename that has no effect. So no other copy may use it: its
    /// number is random.
    pub(crate) fn link(
        from: &Path,
        dest: &Path,
        engine: Engine,
        fsync: bool,
    ) -> Result<Staging, Error> {
        let link = |path: &Path| fs::hard_link(from, path);
        Staging::claim(dest, random_number(), engine, fsync, link).map(|(staging, ())| staging)
    }

    /// Makes a file by a call that fails if the name exists. The first name has this number.
    fn claim<T>(
        dest: &Path,
        first: u64,
        engine: Engine,
        fsync: bool,
        make: impl Fn(&Path) -> io::Result<T>,
    ) -> Result<(Staging, T), Error> {
        let (mut number, mut is_short) = (first, false);
        let mut repairs = Repairs::new(fsync);
        for _ in 0..NAMES {
            let path = staging_path(dest, number);
            let e = match make(&path) {
                Ok(made) => return Ok((Staging { path: Some(path), engine }, made)),
                Err(e) => e,
            };
            match e.kind() {
                io::ErrorKind::AlreadyExists if is_short => number += 1,
                io::ErrorKind::AlreadyExists => {
                    number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
                }
                // The file system limits the name, mostly to 255 bytes: the digits may be too
                // many, although those of a small number are not.
                io::ErrorKind::InvalidFilename if number > 9 && !is_short => {
                    (number, is_short) = (2, true);
                }
                io::ErrorKind::NotFound => repairs.create_parents(&path, e)?,
                _ => return Err(Error::Io { action: "open it", path, source: e }),
            }
        }
        let source = io::ErrorKind::AlreadyExists.into();
        Err(Error::Io { action: "find a name for its staging file", path: dest.into(), source })
    }

    pub(crate) fn path<'a>(&'a self, dest: &'a Path) -> &'a Path {
        self.path.as_deref().unwrap_or(dest)
    }

    /// Closes the file and gives it the object's name. With `fsync`, its bytes and its name are
    /// durable when it returns. The staging file is gone in any case.
    pub(crate) fn publish(
        mut self,
        file: File,
        dest: &Path,
        how: Publish,
        fsync: bool,
    ) -> Result<(), Error> {
        let published = self.try_publish(file, dest, how, fsync);
        // As with `LocalFileSystem`, the object exists even if this fails.
        drop(self.remove());
        published
    }

    /// `close` reports errors of earlier writes on some file systems, so it comes first.
    fn try_publish(
        &mut self,
        file: File,
        dest: &Path,
        how: Publish,
        fsync: bool,
    ) -> Result<(), Error> {
        let staged = self.path(dest);
        if fsync {
            file.sync_all().map_err(Error::io("sync it", staged))?;
        }
        file.close().map_err(Error::io("close it", staged))?;
        match how {
            Publish::Replace => {
                fs::rename(staged, dest).map_err(Error::io("rename its staging file", dest))?;
                self.path = None;
            }
            Publish::Create => match name_anew(staged, dest) {
                Ok(Named::Linked) => {}
                Ok(Named::Renamed) => self.path = None,
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(Error::AlreadyExists { path: dest.into(), source });
                }
                Err(source) => {
                    let action = "name its staging file without replacing another";
                    return Err(Error::Io { action, path: dest.into(), source });
                }
            },
        }
        if fsync {
            sync_directory(dest.parent()).map_err(Error::io("sync its directory", dest))?;
        }
        Ok(())
    }

    /// Removes the file. Does nothing if it has been removed or has the object's name.
    pub(crate) fn remove(&mut self) -> Result<(), Error> {
        match self.path.take() {
            Some(path) => fs::remove_file(&path).map_err(Error::io("delete it", &path)),
            None => Ok(()),
        }
    }
}

impl Drop for Staging {
    /// Removes the file on a fiber, because the caller may be an async executor.
    fn drop(&mut self) {
        let Some(path) = self.path.take() else { return };
        let removed = path.clone();
        if self.engine.start(move || drop(fs::remove_file(removed))).is_err() {
            drop(std::fs::remove_file(path));
        }
    }
}

/// Returns the name that a staging file of this number has.
pub(crate) fn staging_path(dest: &Path, number: u64) -> PathBuf {
    let mut path = OsString::from(dest);
    path.push(format!("#{number}"));
    path.into()
}

/// Returns a number that no other process uses, either.
pub(crate) fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}
