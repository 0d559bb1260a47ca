//! Removing a directory with all that is in it.
//!
//! Whatever others do to the tree meanwhile, nothing outside of it is touched: each directory is opened
//! by its name *in the one above*, never through a link (`O_NOFOLLOW`), and each name is removed from
//! the directory that is open, so a directory that is swapped for a link is unlinked, not entered.
//!
//! The depth of a tree is bounded by nothing, descriptors and stack are. So there is no recursion, and
//! at most [`OPEN_LEVELS`] directories are open: those further up are closed on the way down and opened
//! again through `..` on the way up, where they must turn out to be the same ones.

use super::listing::Listing;
use super::names::unlink;
use super::perform::c_path;
use super::resolve::open_dir;
use super::stat::{self, stat, stat_open};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Directories open at once, each with a buffer of names.
const OPEN_LEVELS: usize = 16;

/// Removes a directory with all that is in it; a link itself. Links are not followed, nor is what
/// somebody puts in place of a directory meanwhile. It needs 16 descriptors, however deep the tree.
///
/// ```
/// use cringle::fs;
///
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path().join("tree");
/// cringle::run(|| -> std::io::Result<()> {
///     fs::create_dir_all(root.join("branch"))?;
///     fs::write(root.join("branch/leaf"), "green")?;
///     fs::remove_dir_all(&root)?;
///     assert!(!fs::exists(&root)?);
///     Ok(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As `std::fs::remove_dir_all`; and [`Cancelled`](crate::Cancelled). What was removed stays so. That
/// others remove the same things is no error.
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    remove_tree(libc::AT_FDCWD, &c_path(path.as_ref())?)
}

/// The same for a name in a directory.
pub(super) fn remove_tree(dir: RawFd, path: &CStr) -> io::Result<()> {
    let metadata = stat(dir, path, libc::AT_SYMLINK_NOFOLLOW, stat::ALL)?;
    if metadata.is_symlink() {
        return unlink(dir, path, 0);
    }
    let mut tree = Tree { levels: vec![Level::new(enter(dir, path)?, path)], closed: 0 };
    while let Some(name) = tree.clear_till_directory()? {
        match tree.descend(name)? {
            Some(level) => tree.levels.push(level),
            None => continue,
        }
        tree.close_one_above()?;
    }
    // All is empty but the root itself.
    unlink(dir, path, libc::AT_REMOVEDIR)
}

/// From the root down to the directory that is being emptied.
struct Tree {
    levels: Vec<Level>,
    /// How many of the first levels are closed.
    closed: usize,
}

struct Level {
    /// Its name in the level above.
    name: CString,
    state: LevelState,
}

enum LevelState {
    Open(OwnedFd, Listing),
    /// Which directory it was.
    Closed {
        device: u64,
        inode: u64,
    },
}

impl Level {
    fn new(fd: OwnedFd, name: &CStr) -> Level {
        Level { name: name.to_owned(), state: LevelState::Open(fd, Listing::new()) }
    }
}

impl Tree {
    /// Removes files, and directories that have become empty, until there is a directory to enter: its
    /// name. `None` when the root is empty.
    fn clear_till_directory(&mut self) -> io::Result<Option<CString>> {
        loop {
            let (directory, listing) = self.lowest();
            while let Some(record) = listing.next(directory) {
                let record = record?;
                let is_directory = match record.kind {
                    libc::DT_DIR | libc::DT_UNKNOWN => true,
                    // Something else has its name by now.
                    _ => match gone(unlink(directory, record.name, 0)) {
                        Err(e) if e.raw_os_error() == Some(libc::EISDIR) => true,
                        result => result.map(|()| false)?,
                    },
                };
                if is_directory {
                    return Ok(Some(record.name.to_owned()));
                }
            }
            if self.levels.len() == 1 {
                return Ok(None);
            }
            self.ascend()?;
        }
    }

    fn lowest(&mut self) -> (RawFd, &mut Listing) {
        match self.levels.last_mut().map(|level| &mut level.state) {
            Some(LevelState::Open(fd, listing)) => (fd.as_raw_fd(), listing),
            _ => unreachable!("the lowest level is open"),
        }
    }

    /// Enters a directory of the lowest level; removes it at once if it is none.
    fn descend(&mut self, name: CString) -> io::Result<Option<Level>> {
        let (directory, _) = self.lowest();
        match enter(directory, &name) {
            Ok(fd) => Ok(Some(Level::new(fd, &name))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP)) => {
                gone(unlink(directory, &name, 0)).map(|()| None)
            }
            Err(e) => Err(e),
        }
    }

    /// Leaves the lowest level, which is empty, and removes it.
    fn ascend(&mut self) -> io::Result<()> {
        let emptied = self.levels.pop().expect("there are two");
        let above = self.levels.last_mut().expect("there were two");
        if let LevelState::Closed { device, inode } = above.state {
            let LevelState::Open(below, _) = &emptied.state else {
                unreachable!("the lowest level is open")
            };
            let fd = enter(below.as_raw_fd(), c"..")?;
            let found = stat_open(&fd, stat::ALL)?;
            if (found.dev(), found.ino()) != (device, inode) {
                return Err(io::Error::other(
                    "a directory was moved elsewhere while the tree around it was being removed",
                ));
            }
            above.state = LevelState::Open(fd, Listing::new());
            self.closed -= 1;
        }
        let (directory, _) = self.lowest();
        gone(unlink(directory, &emptied.name, libc::AT_REMOVEDIR))
    }

    /// Closes the uppermost open level if too many are.
    fn close_one_above(&mut self) -> io::Result<()> {
        if self.levels.len() - self.closed > OPEN_LEVELS {
            let level = &mut self.levels[self.closed];
            if let LevelState::Open(fd, _) = &level.state {
                let known = stat_open(fd, stat::ALL)?;
                level.state = LevelState::Closed { device: known.dev(), inode: known.ino() };
                self.closed += 1;
            }
        }
        Ok(())
    }
}

/// Opens a directory, and no link to one.
fn enter(dir: RawFd, name: &CStr) -> io::Result<OwnedFd> {
    open_dir(dir, name, libc::O_NOFOLLOW)
}

/// That somebody else has removed it is as well.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
