//! Resolves paths, either freely or beneath a directory.
//!
//! The kernel resolves a path beneath a directory with `RESOLVE_BENEATH`: neither `..`, nor a
//! symbolic link, nor an absolute path leads out of it, whatever other processes rename meanwhile.
//! Opening a file is one `openat2`. The calls that change a name have no such flag, so the library
//! first opens the name's parent directory that way, and then changes the name in it; no call
//! follows the last component.

use super::perform::{c_path, may_try_inline, perform};
use cringle_core::worker::Current;
use cringle_driver::{Op, PathOp, blocking};
use cringle_sys::Owned;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The directory that a relative path starts from.
#[derive(Clone, Copy)]
pub(super) enum Base<'a> {
    /// The process's working directory. The path may be absolute and lead anywhere.
    Ambient,
    /// A directory that the path must not leave.
    Beneath(BorrowedFd<'a>),
}

impl Base<'_> {
    pub(super) fn fd(self) -> i32 {
        match self {
            Base::Ambient => libc::AT_FDCWD,
            Base::Beneath(dir) => dir.as_raw_fd(),
        }
    }
}

/// The number of times that an open beneath a directory is retried after `EAGAIN`, by which the
/// kernel reports that a concurrent rename kept it from deciding whether a `..` left the directory.
const RENAME_RACES: u32 = 128;

/// Opens a path with exactly these flags. An open that waits for another process (a FIFO, a lease)
/// blocks the thread that performs it.
pub(super) fn open(base: Base<'_>, path: &CStr, flags: i32, mode: u32) -> io::Result<Owned> {
    let (dir, path) = (base.fd(), path.as_ptr());
    let fd = match base {
        // SAFETY: I1. The path outlives the call.
        Base::Ambient => unsafe { perform(Op::Path(PathOp::Open { dir, path, flags, mode })) },
        Base::Beneath(_) => {
            let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
            // SAFETY: an all-zero structure of integers is valid, and requests nothing.
            let mut how: libc::open_how = unsafe { std::mem::zeroed() };
            // The cast avoids sign extension. The kernel refuses a mode if no file is created.
            how.flags = u64::from(flags as u32);
            how.mode = if makes { u64::from(mode & 0o7777) } else { 0 };
            how.resolve = libc::RESOLVE_BENEATH;
            let mut races = 0;
            loop {
                // SAFETY: I1. The path outlives the call, and so does `how`.
                match unsafe { perform(Op::Path(PathOp::OpenHow { dir, path, how: &how })) } {
                    Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && races < RENAME_RACES => {
                        races += 1;
                    }
                    other => break other,
                }
            }
        }
    }?;
    // SAFETY: the op has just returned this descriptor, which is newly opened and has no other
    // owner.
    Ok(unsafe { Owned::of_new(fd as RawFd) })
}

/// Opens an existing file by a plain call that does not wait, if the kernel has all names of the
/// path in memory (`RESOLVE_CACHED`, Linux 5.12). `None` if it was not tried or would wait, and for
/// an error that [`open`] finds too.
///
/// `flags` contain `O_NONBLOCK`, so that the call does not wait for the other end of a FIFO or for
/// the holder of a lease. A ring makes the same call in the turn's batch, and passes the open on to
/// a kernel thread if it would wait.
pub(super) fn open_cached(current: Current, path: &CStr, flags: i32) -> Option<io::Result<Owned>> {
    debug_assert!(flags & libc::O_NONBLOCK != 0, "the call must not wait");
    let creates =
        flags & (libc::O_CREAT | libc::O_TRUNC) != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    if creates || !may_try_inline(current) {
        return None;
    }
    // SAFETY: an all-zero structure of integers is valid, and requests nothing.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    // The cast avoids sign extension.
    how.flags = u64::from(flags as u32);
    how.resolve = libc::RESOLVE_CACHED;
    let op = Op::Path(PathOp::OpenHow { dir: libc::AT_FDCWD, path: path.as_ptr(), how: &how });
    // SAFETY: I1. The path and `how` outlive the call.
    let fd = unsafe { blocking::perform(&op) };
    current.worker.events().tried_inline(fd >= 0 || fd == -libc::ENOENT);
    match fd {
        // SAFETY: the call has just returned this descriptor, which is newly opened and has no
        // other owner.
        0.. => Some(Ok(unsafe { Owned::of_new(fd) })),
        _ if fd == -libc::ENOENT => Some(Err(io::Error::from_raw_os_error(libc::ENOENT))),
        _ => None,
    }
}

/// Opens a directory for reading its entries.
pub(super) fn open_dir(dir: RawFd, path: &CStr, flags: i32) -> io::Result<Owned> {
    let (path, flags) = (path.as_ptr(), libc::O_DIRECTORY | libc::O_CLOEXEC | flags);
    // SAFETY: I1. The path outlives the call.
    let fd = unsafe { perform(Op::Path(PathOp::Open { dir, path, flags, mode: 0 })) }?;
    // SAFETY: the op has just returned this descriptor, which is newly opened and has no other
    // owner.
    Ok(unsafe { Owned::of_new(fd as RawFd) })
}

/// A name, which contains no slash, and the open directory that contains it.
pub(super) struct NameInDir<'a> {
    above: Above<'a>,
    pub(super) name: CString,
    /// Whether the path ended in a slash, so that the name must be a directory's.
    is_directory: bool,
}

enum Above<'a> {
    Itself(BorrowedFd<'a>),
    Opened(Owned),
}

impl<'a> NameInDir<'a> {
    /// Opens the directory that contains the last component of `path`, in or beneath `dir`.
    pub(super) fn of(dir: BorrowedFd<'a>, path: &Path) -> io::Result<NameInDir<'a>> {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        let (named, slashes) = bytes.split_at(end);
        let start = named.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (above, name) = named.split_at(start);
        if bytes.starts_with(b"/") {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        match name {
            b"" => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
            b"." | b".." => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
            _ => {}
        }
        let name = c_path(Path::new(OsStr::from_bytes(name)))?;
        let above = match above {
            b"" => Above::Itself(dir),
            above => {
                let above = c_path(Path::new(OsStr::from_bytes(above)))?;
                let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
                Above::Opened(open(Base::Beneath(dir), &above, flags, 0)?)
            }
        };
        Ok(NameInDir { above, name, is_directory: !slashes.is_empty() })
    }

    pub(super) fn dir(&self) -> RawFd {
        match &self.above {
            Above::Itself(fd) => fd.as_raw_fd(),
            Above::Opened(fd) => fd.as_raw_fd(),
        }
    }

    /// Returns the name for a call on files that are not directories: `ENOTDIR` after a trailing
    /// slash.
    pub(super) fn file_name(&self) -> io::Result<&CStr> {
        if self.is_directory {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        Ok(&self.name)
    }

    /// Returns the name with its trailing slash, for a call that never follows the last component.
    pub(super) fn with_slash(&self) -> CString {
        let mut name = self.name.clone().into_bytes();
        name.extend(self.is_directory.then_some(b'/'));
        CString::new(name).expect("the name has no NUL")
    }
}
