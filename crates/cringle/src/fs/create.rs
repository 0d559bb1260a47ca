//! Making directories.

use super::perform::{c_path, perform};
use super::stat::metadata;
use crate::driver::Op;
use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a directory; only the calling fiber waits.
///
/// ```
/// use cringle::fs;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("new");
/// cringle::run(|| -> std::io::Result<()> {
///     fs::create_dir(&path)?;
///     assert_eq!(fs::read_dir(&path)?.count(), 0);
///     Ok(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As `std::fs::create_dir`; and [`Cancelled`](crate::Cancelled).
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().create(path)
}

/// Makes a directory, and those above it that are not there.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path();
/// cringle::fs::create_dir_all(root.join("a/b/c"))?;
/// cringle::fs::create_dir_all(root.join("a/b"))?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As `std::fs::create_dir_all`; and [`Cancelled`](crate::Cancelled). What was made stays.
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// How a directory is made: `std::fs::DirBuilder`, with std's own [`DirBuilderExt`] for its mode.
///
/// ```
/// use cringle::fs::DirBuilder;
/// use std::os::unix::fs::DirBuilderExt;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a/b");
/// DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct DirBuilder {
    mode: u32,
    recursive: bool,
}

impl std::fmt::Debug for DirBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fs::DirBuilder::new().recursive(self.recursive).mode(self.mode).fmt(f)
    }
}

impl DirBuilder {
    /// One directory, of mode 0o777 less the umask.
    #[allow(clippy::new_without_default, reason = "std's has no Default either")]
    pub fn new() -> DirBuilder {
        DirBuilder { mode: 0o777, recursive: false }
    }

    /// Also those above it; one that is there is no error then.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.recursive = recursive;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        match self.recursive {
            true => self.create_all(path.as_ref()),
            false => self.make(path.as_ref()),
        }
    }

    fn make(&self, path: &Path) -> io::Result<()> {
        make_dir(libc::AT_FDCWD, &c_path(path)?, self.mode)
    }

    /// Up until something is there, then down again: without recursion, which would take as much stack
    /// as the caller's path is deep.
    fn create_all(&self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = path;
        while at != Path::new("") {
            match self.make_or_find(at) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => missing.push(at),
                other => {
                    other?;
                    break;
                }
            }
            let Some(parent) = at.parent() else {
                return Err(io::Error::other("there is no directory to begin with"));
            };
            at = parent;
        }
        missing.into_iter().rev().try_for_each(|each| self.make_or_find(each))
    }

    fn make_or_find(&self, path: &Path) -> io::Result<()> {
        match self.make(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound && is_dir(path) => Ok(()),
            result => result,
        }
    }
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.mode = mode;
        self
    }
}

fn is_dir(path: &Path) -> bool {
    metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

pub(super) fn make_dir(dir: RawFd, path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: I1. The path outlives the call.
    unsafe { perform(Op::MakeDir { dir, path: path.as_ptr(), mode }) }.map(drop)
}
