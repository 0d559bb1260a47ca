//! Removing a directory with all of its contents.
//!
//! Nothing outside of the tree is removed, whatever other processes do to the tree meanwhile: each
//! directory is opened by its name *in its parent's descriptor*, never through a symbolic link
//! (`O_NOFOLLOW`), and each name is removed from an open directory. A directory that another
//! process replaces by a link is unlinked, not entered.
//!
//! A tree may be deeper than the limits on descriptors and stack. So the walk is a loop, and at
//! most [`OPEN_LEVELS`] directories are open: upper ones are closed on the way down and opened
//! again through `..` on the way up, where their device and inode numbers must be the same.

use super::listing::Listing;
use super::names::unlink;
use super::perform::c_path;
use super::resolve::open_dir;
use super::stat::{self, stat, stat_open};
use cringle_sys::Owned;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The number of directories open at once, each with a buffer of entries.
const OPEN_LEVELS: usize = 16;
/// The number of directories that may still exist after their removal. A level that was closed is
/// listed again from its beginning, so such a directory would be emptied for ever.
const MOST_STUBBORN: usize = 16;

/// Removes a directory with all of its contents. A symbolic link is removed itself.
///
/// Links are not followed, also if another process replaces a directory by one meanwhile. At most
/// 16 descriptors are open at once, however deep the tree is.
///
/// # Errors
///
/// As `std::fs::remove_dir_all`; and [`Cancelled`](cringle_core::cancelled::Cancelled). After an
/// error, a part of the tree may have been removed. A name that another process removes first is
/// not an error. `DirectoryNotEmpty` if the removal of a directory succeeds without effect, again
/// and again.
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    remove_tree(libc::AT_FDCWD, &c_path(path.as_ref())?)
}

/// Removes the tree at a path relative to an open directory.
pub(super) fn remove_tree(dir: RawFd, path: &CStr) -> io::Result<()> {
    let metadata = stat(dir, path, libc::AT_SYMLINK_NOFOLLOW, stat::ALL)?;
    if metadata.is_symlink() {
        return unlink(dir, path, 0);
    }
    let mut tree =
        Tree { levels: vec![Level::new(enter(dir, path)?, path)], closed: 0, stubborn: 0 };
    while let Some(name) = tree.clear_till_directory()? {
        match tree.descend(name)? {
            Some(level) => tree.levels.push(level),
            None => continue,
        }
        tree.close_one_above()?;
    }
    // The root is empty now.
    unlink(dir, path, libc::AT_REMOVEDIR)
}

/// The path from the root to the directory that is being emptied.
struct Tree {
    levels: Vec<Level>,
    /// The number of closed levels, which are the uppermost.
    closed: usize,
    /// The number of directories that still existed after their removal.
    stubborn: usize,
}

struct Level {
    /// Its name in the level above.
    name: CString,
    state: LevelState,
}

enum LevelState {
    Open(Owned, Listing),
    /// The identity of the directory, to be checked when it is opened again.
    Closed {
        device: u64,
        inode: u64,
    },
}

impl Level {
    fn new(fd: Owned, name: &CStr) -> Level {
        Level { name: name.to_owned(), state: LevelState::Open(fd, Listing::new()) }
    }
}

impl Tree {
    /// Removes files and empty directories until it finds a directory to enter, and returns its
    /// name. `None` when the root is empty.
    fn clear_till_directory(&mut self) -> io::Result<Option<CString>> {
        loop {
            let (directory, listing) = self.lowest();
            while let Some(record) = listing.next(directory) {
                let record = record?;
                let is_directory = match record.kind {
                    libc::DT_DIR | libc::DT_UNKNOWN => true,
                    // `EISDIR`: another process has put a directory in its place.
                    _ => match ignore_missing(unlink(directory, record.name, 0)) {
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

    /// Enters a directory of the lowest level. Removes the name instead if it is not a directory.
    fn descend(&mut self, name: CString) -> io::Result<Option<Level>> {
        let (directory, _) = self.lowest();
        match enter(directory, &name) {
            Ok(fd) => Ok(Some(Level::new(fd, &name))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP)) => {
                ignore_missing(unlink(directory, &name, 0)).map(|()| None)
            }
            Err(e) => Err(e),
        }
    }

    /// Leaves the lowest level, which is empty, and removes it from its parent.
    fn ascend(&mut self) -> io::Result<()> {
        let emptied = self.levels.pop().expect("there are two levels");
        let above = self.levels.last_mut().expect("there were two levels");
        let mut is_listed_again = false;
        if let LevelState::Closed { device, inode } = above.state {
            let LevelState::Open(below, _) = &emptied.state else {
                unreachable!("the lowest level is open")
            };
            let fd = enter(below.as_raw_fd(), c"..")?;
            let found = stat_open(&fd, stat::ALL)?;
            if (found.dev(), found.ino()) != (device, inode) {
                return Err(io::Error::other(
                    "a directory was moved out of the tree while the tree was being removed",
                ));
            }
            above.state = LevelState::Open(fd, Listing::new());
            self.closed -= 1;
            is_listed_again = true;
        }
        let (directory, _) = self.lowest();
        ignore_missing(unlink(directory, &emptied.name, libc::AT_REMOVEDIR))?;
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        if is_listed_again && stat(directory, &emptied.name, flags, stat::ALL).is_ok() {
            self.stubborn += 1;
            if self.stubborn > MOST_STUBBORN {
                let text = "a directory of the tree exists again after each removal";
                return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, text));
            }
        }
        Ok(())
    }

    /// Closes the uppermost open level if too many are open.
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

/// Opens a directory, but not through a symbolic link.
fn enter(dir: RawFd, name: &CStr) -> io::Result<Owned> {
    open_dir(dir, name, libc::O_NOFOLLOW)
}

/// Turns `NotFound` into success: another process has removed the name first.
fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
