//! What paths start from and may lead to: opening them, and finding the directory of a name.
//!
//! A path beneath a directory is resolved by the kernel with `RESOLVE_BENEATH`: neither `..`, nor a link,
//! nor an absolute path leads out, whatever others rename meanwhile. What opens a file is one `openat2`.
//! What changes a name has no such flag in the kernel, so the directory above the name is opened that
//! way first, and the name itself, which no call follows, is changed in it.

use super::perform::{c_path, perform};
use crate::driver::Op;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a relative path starts from.
#[derive(Clone, Copy)]
pub(super) enum Base<'a> {
    /// The process's working directory; the path may be absolute, and lead anywhere.
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

/// How often an open beneath a directory is asked for again when the kernel could not tell, because
/// something was renamed meanwhile, whether a `..` left it.
const RENAME_RACES: u32 = 128;

/// `open`, with the flags as they are. Where it may wait for another process, this waits on its thread.
pub(super) fn open(base: Base<'_>, path: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let (dir, path) = (base.fd(), path.as_ptr());
    let fd = match base {
        // SAFETY: I1. The path outlives the call.
        Base::Ambient => unsafe { perform(Op::Open { dir, path, flags, mode }) },
        Base::Beneath(_) => {
            let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
            // SAFETY: a structure of integers, and zeros mean nothing asked.
            let mut how: libc::open_how = unsafe { std::mem::zeroed() };
            // The sign is no flag. The mode is refused where nothing is made.
            how.flags = u64::from(flags as u32);
            how.mode = if makes { u64::from(mode & 0o7777) } else { 0 };
            how.resolve = libc::RESOLVE_BENEATH;
            let mut races = 0;
            loop {
                // SAFETY: I1. The path outlives the call, and so does `how`.
                match unsafe { perform(Op::OpenHow { dir, path, how: &how }) } {
                    Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && races < RENAME_RACES => {
                        races += 1;
                    }
                    other => break other,
                }
            }
        }
    }?;
    // SAFETY: the op has just returned this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Opens a directory to read its names.
pub(super) fn open_dir(dir: RawFd, path: &CStr, flags: i32) -> io::Result<OwnedFd> {
    let (path, flags) = (path.as_ptr(), libc::O_DIRECTORY | libc::O_CLOEXEC | flags);
    // SAFETY: I1. The path outlives the call.
    let fd = unsafe { perform(Op::Open { dir, path, flags, mode: 0 }) }?;
    // SAFETY: the op has just returned this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A name and the open directory that it is in. The name has no slash: nothing follows it.
pub(super) struct NameInDir<'a> {
    above: Above<'a>,
    pub(super) name: CString,
    /// A slash came after it.
    is_directory: bool,
}

enum Above<'a> {
    Itself(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl<'a> NameInDir<'a> {
    /// Where the name that the path ends in is to be changed, in `dir` or beneath it.
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

    /// The name, of what is no directory.
    pub(super) fn a_file(&self) -> io::Result<&CStr> {
        match self.is_directory {
            true => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
            false => Ok(&self.name),
        }
    }

    /// The name with its slash, for a call that never follows the last name.
    pub(super) fn with_slash(&self) -> CString {
        let mut name = self.name.clone().into_bytes();
        name.extend(self.is_directory.then_some(b'/'));
        CString::new(name).expect("it had no NUL")
    }
}
