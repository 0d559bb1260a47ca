//! The calls for extended attributes.

use super::or_through_proc;
use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

/// Returns the names of the extended attributes, each with a final zero byte.
pub(crate) fn list_xattrs(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    read_growing(|| fs::flistxattr_query(fd), |buffer| fs::flistxattr(fd, buffer))
}

pub(crate) fn get_xattr(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    read_growing(|| fs::fgetxattr_query(fd, name), |buffer| fs::fgetxattr(fd, name, buffer))
}

/// Asks for the size, then for the value, and again if the value has grown meanwhile.
fn read_growing(
    size: impl Fn() -> rustix::io::Result<usize>,
    read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
) -> io::Result<Vec<u8>> {
    loop {
        let mut value = vec![0; size()?];
        if value.is_empty() {
            return Ok(value);
        }
        match read(&mut value) {
            Ok(length) => {
                value.truncate(length);
                return Ok(value);
            }
            Err(Errno::RANGE) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

pub(crate) fn set_xattr(fd: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    let flags = XattrFlags::empty();
    or_through_proc(fs::fsetxattr(fd, name, value, flags), fd, |path| {
        fs::setxattr(path, name, value, flags)
    })
}

/// Accepts that the attribute did not exist.
fn ignore_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP)) => Ok(()),
        result => result,
    }
}

pub(crate) fn remove_xattr(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let removed = fs::fremovexattr(fd, name);
    ignore_absent(or_through_proc(removed, fd, |path| fs::removexattr(path, name)))
}

pub(crate) fn lremove_xattr(path: &CStr, name: &CStr) -> io::Result<()> {
    ignore_absent(fs::lremovexattr(path, name).map_err(io::Error::from))
}

pub(crate) fn lset_xattr(path: &CStr, name: &CStr, value: &[u8]) -> io::Result<()> {
    Ok(fs::lsetxattr(path, name, value, XattrFlags::empty())?)
}

pub(crate) fn lget_xattr(path: &CStr, name: &CStr) -> io::Result<Vec<u8>> {
    read_growing(|| fs::lgetxattr_query(path, name), |buffer| fs::lgetxattr(path, name, buffer))
}

pub(crate) fn llist_xattrs(path: &CStr) -> io::Result<Vec<u8>> {
    read_growing(|| fs::llistxattr_query(path), |buffer| fs::llistxattr(path, buffer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// `rustix` returns 0, not the size, for an empty buffer.
    #[test]
    fn attributes_are_read_whole() {
        let place = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(place.path().join("file")).unwrap();
        let name = c"user.cringle";
        if let Err(e) = set_xattr(file.as_fd(), name, b"value") {
            return eprintln!("skipped: no extended attributes here: {e}");
        }
        assert_eq!(get_xattr(file.as_fd(), name).unwrap(), b"value");
        let names = list_xattrs(file.as_fd()).unwrap();
        assert!(names.split(|&byte| byte == 0).any(|listed| listed == name.to_bytes()));
        remove_xattr(file.as_fd(), name).unwrap();
        remove_xattr(file.as_fd(), name).unwrap();
        let error = get_xattr(file.as_fd(), name).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODATA));
    }
}
