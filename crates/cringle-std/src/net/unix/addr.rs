//! Conversion of Unix addresses to and from the kernel's form.

use super::SocketAddr;
use crate::net::addr::AddrBuf;
use cringle_sys::{Owned, syscall};
use socket2::SockAddr;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Converts an address to the kernel's form. `None` for an unnamed address.
pub(super) fn to_raw(addr: &SocketAddr) -> io::Result<Option<SockAddr>> {
    if let Some(path) = addr.as_pathname() {
        return of_path(path).map(Some);
    }
    let Some(name) = addr.as_abstract_name() else { return Ok(None) };
    let with_nul = [b"\0", name].concat();
    SockAddr::unix(Path::new(OsStr::from_bytes(&with_nul))).map(Some)
}

/// Converts a path to the kernel's form. Returns std's error for a path that std refuses.
pub(super) fn of_path(path: &Path) -> io::Result<SockAddr> {
    SocketAddr::from_pathname(path)?;
    SockAddr::unix(path)
}

/// Converts an address that the kernel has filled in.
///
/// std's constructors refuse a path of all 108 bytes without a NUL; only its system calls return
/// such an address. So a socket is connected to it, and returns it as its peer's. If that fails,
/// the result is an unnamed address, so that the message from that address is not lost.
pub(super) fn from_buf(buf: AddrBuf) -> io::Result<SocketAddr> {
    let addr = &buf.get();
    match (addr.as_pathname(), addr.as_abstract_namespace()) {
        (Some(path), _) => {
            SocketAddr::from_pathname(path).or_else(|_| look_up(addr).map_or_else(unnamed, Ok))
        }
        (_, Some(name)) => SocketAddr::from_abstract_name(name),
        _ => unnamed(),
    }
}

/// Returns an unnamed address, which std makes from an empty path.
fn unnamed() -> io::Result<SocketAddr> {
    SocketAddr::from_pathname("")
}

/// Connects a socket to the address and returns the peer's address, as std converts it.
#[cold]
fn look_up(addr: &SockAddr) -> Option<SocketAddr> {
    let socket = Owned::new(UnixDatagram::unbound().ok()?);
    // The length that the kernel reports includes a NUL, which it does not accept as part of an
    // address.
    let len = addr.len().min(size_of::<libc::sockaddr_un>() as libc::socklen_t);
    // SAFETY: the address is borrowed for the call and at least `len` bytes long.
    let connected = unsafe { syscall!(SYS_connect, socket.as_raw_fd(), addr.as_ptr(), len) } == 0;
    let answer = connected.then(|| socket.peer_addr().ok()).flatten()?;
    // Another socket may be bound to the path by now.
    (answer.as_pathname() == addr.as_pathname()).then_some(answer)
}
