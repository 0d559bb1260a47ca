//! Extended attributes: small named values that a file system stores with a file. The ring gets and
//! sets them; a thread of the pool lists and removes them.

use super::File;
use super::perform::{c_path, perform};
use cringle_driver::syscall::{Syscall, XattrCall};
use cringle_driver::{FileOp, Op};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The size of the first buffer, which is usually enough for a value or for the names.
const FIRST_BYTES: usize = 1 << 10;
/// The kernel's limits on the size of a value and of the list of names.
const MAX_BYTES: usize = 64 << 10;

/// Returns the value of an extended attribute, or `None` if the file has none of that name.
///
/// Symbolic links are followed. The names of users' own attributes begin with `user.`.
///
/// ```
/// use cringle::fs;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// cringle::run(|| -> std::io::Result<()> {
///     fs::write(&path, "text")?;
///     if let Err(e) = fs::set_xattr(&path, "user.origin", b"here") {
///         println!("this file system has no user attributes: {e}");
///         return Ok(());
///     }
///     assert_eq!(fs::get_xattr(&path, "user.origin")?.as_deref(), Some(&b"here"[..]));
///     assert!(fs::list_xattrs(&path)?.contains(&"user.origin".into()));
///     fs::remove_xattr(&path, "user.origin")
/// })
/// # ?; std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The errors of `getxattr(2)`, such as `Unsupported` if the file system has no extended
/// attributes; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn get_xattr<P: AsRef<Path>, N: AsRef<OsStr>>(path: P, name: N) -> io::Result<Option<Vec<u8>>> {
    let path = c_path(path.as_ref())?;
    get(&Owner::Path(&path), name.as_ref())
}

/// Sets an extended attribute, and creates it if it does not exist. Symbolic links are followed.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// cringle::fs::write(&path, "text")?;
/// if cringle::fs::set_xattr(&path, "user.origin", b"here").is_ok() {
///     assert!(cringle::fs::get_xattr(&path, "user.origin")?.is_some());
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The errors of `setxattr(2)`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn set_xattr<P: AsRef<Path>, N: AsRef<OsStr>>(
    path: P,
    name: N,
    value: &[u8],
) -> io::Result<()> {
    let path = c_path(path.as_ref())?;
    set(&Owner::Path(&path), name.as_ref(), value)
}

/// Removes an extended attribute. Symbolic links are followed.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// cringle::fs::write(&path, "text")?;
/// if cringle::fs::set_xattr(&path, "user.origin", b"here").is_ok() {
///     cringle::fs::remove_xattr(&path, "user.origin")?;
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The errors of `removexattr(2)`, such as `ENODATA` if the attribute does not exist; and
/// [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn remove_xattr<P: AsRef<Path>, N: AsRef<OsStr>>(path: P, name: N) -> io::Result<()> {
    let path = c_path(path.as_ref())?;
    remove(&Owner::Path(&path), name.as_ref())
}

/// Returns the names of a file's extended attributes that the caller may see. Symbolic links are
/// followed.
///
/// ```
/// for name in cringle::fs::list_xattrs("/tmp")? {
///     println!("{}", name.display());
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The errors of `listxattr(2)`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
pub fn list_xattrs<P: AsRef<Path>>(path: P) -> io::Result<Vec<OsString>> {
    let path = c_path(path.as_ref())?;
    list(&Owner::Path(&path))
}

impl File {
    /// Returns the value of an extended attribute, or `None` if the file has none of that name.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let file = cringle::fs::File::create(directory.path().join("file"))?;
    /// if let Ok(value) = file.get_xattr("user.origin") {
    ///     assert_eq!(value, None);
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`get_xattr`].
    pub fn get_xattr<N: AsRef<OsStr>>(&self, name: N) -> io::Result<Option<Vec<u8>>> {
        get(&Owner::File(self), name.as_ref())
    }

    /// Sets an extended attribute, and creates it if it does not exist.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let file = cringle::fs::File::create(directory.path().join("file"))?;
    /// if let Err(e) = file.set_xattr("user.origin", b"here") {
    ///     println!("this file system has no user attributes: {e}");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_xattr`].
    pub fn set_xattr<N: AsRef<OsStr>>(&self, name: N, value: &[u8]) -> io::Result<()> {
        set(&Owner::File(self), name.as_ref(), value)
    }

    /// Removes an extended attribute.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let file = cringle::fs::File::create(directory.path().join("file"))?;
    /// if file.set_xattr("user.origin", b"here").is_ok() {
    ///     file.remove_xattr("user.origin")?;
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`remove_xattr`].
    pub fn remove_xattr<N: AsRef<OsStr>>(&self, name: N) -> io::Result<()> {
        remove(&Owner::File(self), name.as_ref())
    }

    /// Returns the names of the file's extended attributes that the caller may see.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let file = cringle::fs::File::create(directory.path().join("file"))?;
    /// if file.set_xattr("user.origin", b"here").is_ok() {
    ///     assert!(file.list_xattrs()?.contains(&"user.origin".into()));
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`list_xattrs`].
    pub fn list_xattrs(&self) -> io::Result<Vec<OsString>> {
        list(&Owner::File(self))
    }
}

/// The file whose attributes a call accesses.
enum Owner<'a> {
    Path(&'a CStr),
    File(&'a File),
}

impl Owner<'_> {
    fn call(&self, name: Option<&CStr>, value: *mut u8, len: usize) -> XattrCall {
        let (fd, path) = match self {
            Owner::Path(path) => (libc::AT_FDCWD, path.as_ptr()),
            Owner::File(file) => (file.fd(), std::ptr::null()),
        };
        let name = name.map_or(std::ptr::null(), CStr::as_ptr);
        XattrCall { fd, path, name, value, len: len as u32, flags: 0 }
    }

    /// Performs a call that fills a buffer, and retries it with the largest buffer if the first is
    /// too small.
    fn read(
        &self,
        name: Option<&CStr>,
        op: impl Fn(*const XattrCall) -> Op,
    ) -> io::Result<Vec<u8>> {
        let mut room = FIRST_BYTES;
        loop {
            let mut bytes = vec![0; room];
            let call = self.call(name, bytes.as_mut_ptr(), room);
            // SAFETY: I1. The call's arguments, the name and the buffer outlive the call, and the
            // buffer has the length that the arguments state.
            match unsafe { perform(op(&call)) } {
                Ok(len) => {
                    bytes.truncate(len);
                    return Ok(bytes);
                }
                Err(e) if e.raw_os_error() == Some(libc::ERANGE) && room < MAX_BYTES => {
                    room = MAX_BYTES
                }
                Err(e) => return Err(e),
            }
        }
    }
}

fn get(owner: &Owner<'_>, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let name = c_name(name)?;
    match owner.read(Some(&name), |call| Op::File(FileOp::GetXattr(call))) {
        Err(e) if e.raw_os_error() == Some(libc::ENODATA) => Ok(None),
        result => result.map(Some),
    }
}

fn set(owner: &Owner<'_>, name: &OsStr, value: &[u8]) -> io::Result<()> {
    if value.len() > MAX_BYTES {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let name = c_name(name)?;
    let call = owner.call(Some(&name), value.as_ptr().cast_mut(), value.len());
    // SAFETY: I1. The arguments, the name and the value outlive the call, which only reads the
    // value.
    unsafe { perform(Op::File(FileOp::SetXattr(&call))) }.map(drop)
}

fn remove(owner: &Owner<'_>, name: &OsStr) -> io::Result<()> {
    let name = c_name(name)?;
    let call = owner.call(Some(&name), std::ptr::null_mut(), 0);
    // SAFETY: I1. The arguments and the name outlive the call.
    unsafe { perform(Op::Syscall(Syscall::RemoveXattr(&call))) }.map(drop)
}

fn list(owner: &Owner<'_>) -> io::Result<Vec<OsString>> {
    let names = owner.read(None, |call| Op::Syscall(Syscall::ListXattrs(call)))?;
    let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "the attribute's name contains a NUL byte")
    })
}
