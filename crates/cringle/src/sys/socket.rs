//! System calls on sockets.

use super::{MAX_RW_BYTES, check, errno, fstat, poll_now};
use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// `recv` of what is there; `-EAGAIN` where nothing is.
pub(crate) fn recv_nowait(fd: RawFd, buf: &mut [u8]) -> i32 {
    let len = buf.len().min(MAX_RW_BYTES);
    // SAFETY: the call writes into `buf`.
    let n = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), len, libc::MSG_DONTWAIT) };
    if n < 0 { -errno() } else { n as i32 }
}

/// `send(MSG_DONTWAIT)`: a count, or `-errno` (`-EAGAIN` where it would have to wait).
#[inline]
pub(crate) fn send_nowait(fd: RawFd, buf: &[u8]) -> i32 {
    let (len, flags) = (buf.len().min(MAX_RW_BYTES), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: the call reads `buf`.
    let n = unsafe { libc::send(fd, buf.as_ptr().cast(), len, flags) };
    if n < 0 { -errno() } else { n as i32 }
}

/// The number of the socket behind a descriptor, by which all its clones are known; `None` where it is no
/// socket.
pub(crate) fn socket_number(fd: RawFd) -> Option<u64> {
    fstat(fd).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).map(|stat| stat.st_ino)
}

/// `ioctl(FIONBIO)`, which leaves the other flags alone. It fails for no socket.
pub(crate) fn make_nonblocking(fd: RawFd, nonblocking: bool) {
    let mut on = i32::from(nonblocking);
    // SAFETY: the kernel reads the number.
    unsafe { libc::ioctl(fd, libc::FIONBIO, &raw mut on) };
}

/// Whether a socket was shut for reading. A datagram socket then answers `EAGAIN` to a call that may not wait,
/// and 0 to one that may.
pub(crate) fn is_shut_for_reading(fd: RawFd) -> bool {
    // SAFETY: the caller's op borrows the descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    poll_now(fd, libc::POLLRDHUP).is_ok_and(|events| events & libc::POLLRDHUP != 0)
}

/// Whether it is a socket that has a stream of bytes.
pub(crate) fn is_stream_socket(fd: RawFd) -> bool {
    // SAFETY: the caller's op borrows the descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    matches!(socket2::SockRef::from(&fd).r#type(), Ok(socket2::Type::STREAM))
}

/// Whether it is a socket of this machine alone.
#[cfg(feature = "sim")]
pub(crate) fn is_unix_socket(fd: RawFd) -> bool {
    // SAFETY: the caller's op borrows the descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    matches!(socket2::SockRef::from(&fd).domain(), Ok(socket2::Domain::UNIX))
}

/// Who is at the other side of a Unix socket.
pub(crate) fn peer_credentials(fd: RawFd) -> io::Result<libc::ucred> {
    let mut out = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the kernel writes at most `len` bytes of the structure it is given.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut out).cast(), &raw mut len) })?;
    Ok(out)
}

/// The addresses of a socket, as a person writes them; `None` where it is none.
pub(crate) fn describe_socket(fd: RawFd) -> Option<String> {
    let address =
        |call: unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int| {
            // SAFETY: the call fills the storage, and says how much of it. A descriptor that is none is told.
            let result = unsafe {
                socket2::SockAddr::try_init(|storage, len| match call(fd, storage.cast(), len) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                })
            };
            result.ok().map(|((), address)| describe_address(&address))
        };
    let local = address(libc::getsockname)?;
    match address(libc::getpeername) {
        Some(peer) => Some(format!("socket {local}, peer {peer}")),
        None => Some(format!("socket {local}")),
    }
}

fn describe_address(address: &socket2::SockAddr) -> String {
    if let Some(address) = address.as_socket() {
        return address.to_string();
    }
    match address.as_pathname() {
        Some(path) => path.display().to_string(),
        None if address.is_unix() => "unnamed".to_owned(),
        None => "of another family".to_owned(),
    }
}
