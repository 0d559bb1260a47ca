//! Creating directories.

use super::perform::{c_path, perform};
use super::stat::metadata;
use cringle_driver::{Op, PathOp};
use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a directory. Only the calling fiber waits.
///
/// # Errors
///
/// As `std::fs::create_dir`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().create(path)
}

/// Creates a directory and all of its missing parents.
///
/// # Errors
///
/// As `std::fs::create_dir_all`; and [`Cancelled`](cringle_core::cancelled::Cancelled). After an
/// error, the directories that were created remain.
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// Creates directories with options, as `std::fs::DirBuilder`. std's own [`DirBuilderExt`] sets the
/// mode.
///
/// ```
/// use cringle::fs::DirBuilder;
/// use std::os::unix::fs::DirBuilderExt;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a/b");
/// DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
/// # std::io::Result::Ok(())
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
    /// Returns a builder that creates one directory with mode 0o777, minus the umask.
    #[allow(clippy::new_without_default, reason = "std's has no Default either")]
    pub fn new() -> DirBuilder {
        DirBuilder { mode: 0o777, recursive: false }
    }

    /// Sets whether missing parents are created too. If so, an existing directory is not an error.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.recursive = recursive;
        self
    }

    /// Creates the directory.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        if self.recursive { self.create_all(path.as_ref()) } else { self.make(path.as_ref()) }
    }

    fn make(&self, path: &Path) -> io::Result<()> {
        make_dir(libc::AT_FDCWD, &c_path(path)?, self.mode)
    }

    /// Walks up to the first directory that exists or can be created, then creates the others on
    /// the way down. It is a loop because recursion would need stack in proportion to the path's
    /// depth.
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
                return Err(io::Error::other("the path has no existing parent directory"));
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
    unsafe { perform(Op::Path(PathOp::MakeDir { dir, path: path.as_ptr(), mode })) }.map(drop)
}
