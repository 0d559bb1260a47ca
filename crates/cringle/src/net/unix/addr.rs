//! Addresses of Unix sockets, from the kernel's form and to it.

use super::SocketAddr;
use socket2::SockAddr;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
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

/// What the kernel has filled in. A path that has all of the 108 bytes, and no NUL, is one that std makes
/// in its own calls alone: a socket that is connected there is asked for it. Where that cannot be, it is
/// an address without a name, as the message that came from there is not to be lost.
pub(super) fn of_raw(addr: &SockAddr) -> io::Result<SocketAddr> {
    match (addr.as_pathname(), addr.as_abstract_namespace()) {
        (Some(path), _) => {
            SocketAddr::from_pathname(path).or_else(|_| asked_for(addr).map_or_else(unnamed, Ok))
        }
        (_, Some(name)) => SocketAddr::from_abstract_name(name),
        _ => unnamed(),
    }
}

/// An empty path is what std makes of no name.
fn unnamed() -> io::Result<SocketAddr> {
    SocketAddr::from_pathname("")
}

/// The address as std has it from a socket that is connected there.
#[cold]
fn asked_for(addr: &SockAddr) -> Option<SocketAddr> {
    let asks = UnixDatagram::unbound().ok()?;
    // The kernel says how long a path is with a NUL that it takes from nobody.
    let len = addr.len().min(size_of::<libc::sockaddr_un>() as libc::socklen_t);
    // SAFETY: the address is as long as that, and lives through the call.
    let connected = unsafe { libc::connect(asks.as_raw_fd(), addr.as_ptr().cast(), len) } == 0;
    let answer = connected.then(|| asks.peer_addr().ok()).flatten()?;
    // Somebody else may have the path by now.
    (answer.as_pathname() == addr.as_pathname()).then_some(answer)
}
