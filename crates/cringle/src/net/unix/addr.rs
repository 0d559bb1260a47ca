//! Addresses of Unix sockets, from the kernel's form and to it.

use super::SocketAddr;
use socket2::SockAddr;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// In the kernel's form; `None` for one without a name.
pub(super) fn to_raw(addr: &SocketAddr) -> io::Result<Option<SockAddr>> {
    if let Some(path) = addr.as_pathname() {
        return of_path(path).map(Some);
    }
    let Some(name) = addr.as_abstract_name() else { return Ok(None) };
    let marked = [b"\0", name].concat();
    SockAddr::unix(Path::new(OsStr::from_bytes(&marked))).map(Some)
}

/// A path in the kernel's form. What std refuses is refused in its words.
pub(super) fn of_path(path: &Path) -> io::Result<SockAddr> {
    SocketAddr::from_pathname(path)?;
    SockAddr::unix(path)
}

/// What the kernel has filled in.
pub(super) fn of_raw(addr: &SockAddr) -> io::Result<SocketAddr> {
    match (addr.as_pathname(), addr.as_abstract_namespace()) {
        (Some(path), _) => SocketAddr::from_pathname(path),
        (_, Some(name)) => SocketAddr::from_abstract_name(name),
        // An empty path is what std makes of no name.
        _ => SocketAddr::from_pathname(""),
    }
}
