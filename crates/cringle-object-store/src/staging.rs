//! Staging files: an object is written under another name, and gets its own when it is complete.
//!
//! The names are those of `LocalFileSystem` (`object#1`, `object#17`): neither store lists them.

use crate::engine::Engine;
use crate::error::Error;
use cringle::fs::{self, File};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number that a staging file tries whose first number is taken. If each tried them one after
/// the other, many uploads of one object would take a time that grows with their square.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(2);

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
        let (mut number, mut is_short) = (1, false);
        loop {
            let path = staging_path(dest, number);
            let opened = File::options().read(true).write(true).create_new(true).open(&path);
            match opened {
                Ok(file) => return Ok((Staging { path: Some(path), engine }, file)),
                Err(e) => match e.kind() {
                    io::ErrorKind::AlreadyExists if is_short => number += 1,
                    io::ErrorKind::AlreadyExists => {
                        number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
                    }
                    // The file system limits the name, mostly to 255 bytes: the digits may be too
                    // many, although those of a small number are not.
                    io::ErrorKind::InvalidFilename if number > 9 && !is_short => {
                        (number, is_short) = (2, true);
                    }
                    io::ErrorKind::NotFound => create_parents(&path, e, fsync)?,
                    _ => return Err(Error::Io { action: "open it", path, source: e }),
                },
            }
        }
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
        let staged = self.path.as_deref().unwrap_or(dest);
        if fsync {
            file.sync_all().map_err(Error::io("sync it", staged))?;
        }
        file.close().map_err(Error::io("close it", staged))?;
        match how {
            Publish::Replace => {
                fs::rename(staged, dest).map_err(Error::io("rename its staging file", dest))?;
                self.path = None;
            }
            Publish::Create => fs::hard_link(staged, dest).map_err(|source| {
                if source.kind() == io::ErrorKind::AlreadyExists {
                    Error::AlreadyExists { path: dest.into(), source }
                } else {
                    Error::Io { action: "link its staging file", path: dest.into(), source }
                }
            })?,
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

fn staging_path(dest: &Path, number: u64) -> PathBuf {
    let mut path = OsString::from(dest);
    path.push(format!("#{number}"));
    path.into()
}

/// Creates the directories above `path`. With `fsync`, their names are durable when it returns.
fn create_parents(path: &Path, missing: io::Error, fsync: bool) -> Result<(), Error> {
    let Some(parent) = path.parent() else {
        return Err(Error::Io { action: "create it", path: path.into(), source: missing });
    };
    // The deepest directory that exists: the names below it are new.
    let mut existing = parent;
    while fsync && !fs::exists(existing).unwrap_or(false) {
        let Some(above) = existing.parent() else { break };
        existing = above;
    }
    fs::create_dir_all(parent).map_err(Error::io("create the directory", parent))?;
    if fsync {
        for directory in parent.ancestors() {
            sync_directory(Some(directory)).map_err(Error::io("sync the directory", directory))?;
            if directory == existing {
                break;
            }
        }
    }
    Ok(())
}

fn sync_directory(directory: Option<&Path>) -> io::Result<()> {
    match directory {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
