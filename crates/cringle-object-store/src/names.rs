//! Names of files: directories that are missing, and names that replace no other.
//!
//! A call is bounded: it creates missing directories at most [`REPAIRS`] times, and tries a limited
//! number of names for a staging file. So no call depends on the file system's honesty for its end.
//! `tests/store/endless.rs` answers each system call of the store with one `errno` for ever.

use crate::error::Error;
use cringle::fs::{self, File};
use nix::errno::Errno;
use std::io;
use std::path::Path;

/// The number of times that a call creates the missing directories of its file. Each time another
/// process may remove them at once: `delete` with `automatic_cleanup` does. But where a name is
/// refused by `NotFound` although its directory exists, it is refused for ever.
const REPAIRS: u32 = 100;

/// Creates the directories of a file, a limited number of times.
pub(crate) struct Repairs {
    left: u32,
    fsync: bool,
}

impl Repairs {
    pub(crate) fn new(fsync: bool) -> Repairs {
        Repairs { left: REPAIRS, fsync }
    }

    /// Creates the directories above `path`, for whose name the error `missing` was returned. With
    /// `fsync`, their names are durable when it returns.
    pub(crate) fn create_parents(&mut self, path: &Path, missing: io::Error) -> Result<(), Error> {
        let Some(parent) = path.parent().filter(|_| self.left > 0) else {
            let action = "create it, although its directory was created";
            return Err(Error::Io { action, path: path.into(), source: missing });
        };
        self.left -= 1;
        match create_directories(parent, self.fsync) {
            Err(Error::Io { source, .. }) if self.left > 0 && is_removed(&source) => Ok(()),
            created => created,
        }
    }
}

/// Whether the creation of directories may have failed because another process has removed one of
/// them meanwhile. `AlreadyExists`: it existed for `mkdir`, but not for the look that follows.
fn is_removed(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

fn create_directories(parent: &Path, fsync: bool) -> Result<(), Error> {
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

pub(crate) fn sync_directory(directory: Option<&Path>) -> io::Result<()> {
    match directory {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// How a file got a new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// It has both names.
    Linked,
    /// It has lost the old one.
    Renamed,
}

/// Gives a staging file a name that does not exist yet: by a hard link, or where the file system
/// has none by a rename.
pub(crate) fn name_anew(from: &Path, to: &Path) -> io::Result<Named> {
    match fs::hard_link(from, to) {
        Err(e) if is_no_link(&e) => fs::rename_noreplace(from, to).map(|()| Named::Renamed),
        linked => linked.map(|()| Named::Linked),
    }
}

/// Whether the error of a hard link means that the file system has none, or that this file cannot
/// have another.
pub(crate) fn is_no_link(e: &io::Error) -> bool {
    use Errno::{EMLINK, ENOSYS, EOPNOTSUPP, EPERM, EXDEV};
    let errno = e.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| [EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EXDEV].contains(&errno))
}

/// Whether the error of `rename_noreplace` may mean that the file system does not support it.
pub(crate) fn is_no_noreplace(e: &io::Error) -> bool {
    use Errno::{EINVAL, ENOSYS, EOPNOTSUPP};
    let errno = e.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| [EINVAL, ENOSYS, EOPNOTSUPP].contains(&errno))
}
