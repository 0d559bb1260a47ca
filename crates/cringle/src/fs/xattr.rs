//! Extended attributes: small values by name, kept with a file. The ring gets and sets them; the pool
//! lists and removes.

use super::File;
use super::perform::{c_path, perform};
use crate::driver::Op;
use crate::driver::syscall::{Syscall, XattrCall};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Room that is mostly enough for a value or for the names.
const FIRST_TRY: usize = 1 << 10;
/// The most that the kernel keeps as one value, and lists.
const MOST: usize = 64 << 10;

/// The value of an extended attribute of the file that the path leads to; `None` if it has none of that
/// name. Users' own names begin with `user.`.
///
/// ```
/// use cringle::fs;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// cringle::run(|| -> std::io::Result<()> {
///     fs::write(&path, "text")?;
///     if let Err(e) = fs::set_xattr(&path, "user.origin", b"here") {
///         println!("this file system keeps none: {e}");
///         return Ok(());
///     }
///     assert_eq!(fs::get_xattr(&path, "user.origin")?.as_deref(), Some(&b"here"[..]));
///     assert!(fs::list_xattrs(&path)?.contains(&"user.origin".into()));
///     fs::remove_xattr(&path, "user.origin")
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// What `getxattr` says: `Unsupported` where the file system keeps none; and
/// [`Cancelled`](crate::Cancelled).
pub fn get_xattr<P: AsRef<Path>, N: AsRef<OsStr>>(path: P, name: N) -> io::Result<Option<Vec<u8>>> {
    let path = c_path(path.as_ref())?;
    get(&Of::Path(&path), name.as_ref())
}

/// Sets an extended attribute, made if it is not there.
///
/// # Errors
///
/// What `setxattr` says; and [`Cancelled`](crate::Cancelled).
pub fn set_xattr<P: AsRef<Path>, N: AsRef<OsStr>>(
    path: P,
    name: N,
    value: &[u8],
) -> io::Result<()> {
    let path = c_path(path.as_ref())?;
    set(&Of::Path(&path), name.as_ref(), value)
}

/// Removes an extended attribute.
///
/// # Errors
///
/// What `removexattr` says: `ENODATA` if it is not there; and [`Cancelled`](crate::Cancelled).
pub fn remove_xattr<P: AsRef<Path>, N: AsRef<OsStr>>(path: P, name: N) -> io::Result<()> {
    let path = c_path(path.as_ref())?;
    remove(&Of::Path(&path), name.as_ref())
}

/// The names of a file's extended attributes, as far as the caller may see them.
///
/// # Errors
///
/// What `listxattr` says; and [`Cancelled`](crate::Cancelled).
pub fn list_xattrs<P: AsRef<Path>>(path: P) -> io::Result<Vec<OsString>> {
    let path = c_path(path.as_ref())?;
    list(&Of::Path(&path))
}

impl File {
    /// The value of an extended attribute: see [`get_xattr`].
    ///
    /// # Errors
    ///
    /// As [`get_xattr`].
    pub fn get_xattr<N: AsRef<OsStr>>(&self, name: N) -> io::Result<Option<Vec<u8>>> {
        get(&Of::File(self), name.as_ref())
    }

    /// Sets an extended attribute, made if it is not there.
    ///
    /// # Errors
    ///
    /// As [`set_xattr`].
    pub fn set_xattr<N: AsRef<OsStr>>(&self, name: N, value: &[u8]) -> io::Result<()> {
        set(&Of::File(self), name.as_ref(), value)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    ///
    /// As [`remove_xattr`].
    pub fn remove_xattr<N: AsRef<OsStr>>(&self, name: N) -> io::Result<()> {
        remove(&Of::File(self), name.as_ref())
    }

    /// The names of the file's extended attributes.
    ///
    /// # Errors
    ///
    /// As [`list_xattrs`].
    pub fn list_xattrs(&self) -> io::Result<Vec<OsString>> {
        list(&Of::File(self))
    }
}

/// Whose attributes.
enum Of<'a> {
    Path(&'a CStr),
    File(&'a File),
}

impl Of<'_> {
    fn call(&self, name: Option<&CStr>, value: *mut u8, len: usize) -> XattrCall {
        let (fd, path) = match self {
            Of::Path(path) => (libc::AT_FDCWD, path.as_ptr()),
            Of::File(file) => (file.fd(), std::ptr::null()),
        };
        let name = name.map_or(std::ptr::null(), CStr::as_ptr);
        XattrCall { fd, path, name, value, len: len as u32, flags: 0 }
    }

    /// What a call leaves in a buffer that is large enough.
    fn read(
        &self,
        name: Option<&CStr>,
        op: impl Fn(*const XattrCall) -> Op,
    ) -> io::Result<Vec<u8>> {
        let mut room = FIRST_TRY;
        loop {
            let mut bytes = vec![0; room];
            let call = self.call(name, bytes.as_mut_ptr(), room);
            // SAFETY: I1. Call, name and buffer outlive it, and the buffer is as large as it says.
            match unsafe { perform(op(&call)) } {
                Ok(len) => {
                    bytes.truncate(len);
                    return Ok(bytes);
                }
                Err(e) if e.raw_os_error() == Some(libc::ERANGE) && room < MOST => room = MOST,
                Err(e) => return Err(e),
            }
        }
    }
}

fn get(of: &Of<'_>, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let name = c_name(name)?;
    match of.read(Some(&name), Op::GetXattr) {
        Err(e) if e.raw_os_error() == Some(libc::ENODATA) => Ok(None),
        result => result.map(Some),
    }
}

fn set(of: &Of<'_>, name: &OsStr, value: &[u8]) -> io::Result<()> {
    if value.len() > MOST {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let name = c_name(name)?;
    let call = of.call(Some(&name), value.as_ptr().cast_mut(), value.len());
    // SAFETY: I1. Call, name and value outlive it; the value is only read.
    unsafe { perform(Op::SetXattr(&call)) }.map(drop)
}

fn remove(of: &Of<'_>, name: &OsStr) -> io::Result<()> {
    let name = c_name(name)?;
    let call = of.call(Some(&name), std::ptr::null_mut(), 0);
    // SAFETY: I1. Call and name outlive it.
    unsafe { perform(Op::Syscall(Syscall::RemoveXattr(&call))) }.map(drop)
}

fn list(of: &Of<'_>) -> io::Result<Vec<OsString>> {
    let names = of.read(None, |call| Op::Syscall(Syscall::ListXattrs(call)))?;
    let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "the attribute's name has a NUL in it")
    })
}
