//! System calls on sockets.

use super::{MAX_RW_BYTES, check, fstat, poll_now, syscall};
use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// Calls `recv(MSG_DONTWAIT)`, and returns a count or `-errno` (`-EAGAIN` if no data has arrived).
pub fn recv_nowait(fd: RawFd, buf: &mut [u8]) -> i32 {
    let len = buf.len().min(MAX_RW_BYTES);
    // SAFETY: `buf` is borrowed exclusively for the call.
    unsafe { syscall!(SYS_recvfrom, fd, buf.as_mut_ptr(), len, libc::MSG_DONTWAIT, 0, 0) as i32 }
}

/// Calls `send(MSG_DONTWAIT)`, and returns a count or `-errno` (`-EAGAIN` if it would wait).
#[inline]
pub fn send_nowait(fd: RawFd, buf: &[u8]) -> i32 {
    let (len, flags) = (buf.len().min(MAX_RW_BYTES), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: `buf` is borrowed for the call, which reads it.
    unsafe { syscall!(SYS_sendto, fd, buf.as_ptr(), len, flags, 0, 0) as i32 }
}

/// Returns the inode number of a socket, which all of its clones share; `None` for another file.
pub fn socket_number(fd: RawFd) -> Option<u64> {
    fstat(fd).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).map(|stat| stat.st_ino)
}

/// Sets or clears the non-blocking mode and no other flag (`ioctl(FIONBIO)`). It succeeds for every
/// socket.
pub fn make_nonblocking(fd: RawFd, nonblocking: bool) {
    let mut on = i32::from(nonblocking);
    // SAFETY: the integer is borrowed for the call, which reads it.
    unsafe { libc::ioctl(fd, libc::FIONBIO, &raw mut on) };
}

/// Whether a socket was shut down for reading. A datagram socket then returns `EAGAIN` from a call
/// that must not wait, and 0 from one that may.
pub fn is_shut_for_reading(fd: RawFd) -> bool {
    // SAFETY: the caller's op borrows the descriptor, so it is open for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    poll_now(fd, libc::POLLRDHUP).is_ok_and(|events| events & libc::POLLRDHUP != 0)
}

/// Whether the descriptor refers to a stream socket.
pub fn is_stream_socket(fd: RawFd) -> bool {
    // SAFETY: the caller's op borrows the descriptor, so it is open for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    matches!(socket2::SockRef::from(&fd).r#type(), Ok(socket2::Type::STREAM))
}

/// Returns the credentials of the peer of a Unix socket.
pub fn peer_credentials(fd: RawFd) -> io::Result<libc::ucred> {
    let mut out = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the structure is borrowed for the call, and the kernel writes at most `len` bytes of
    // it.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut out).cast(), &raw mut len) })?;
    Ok(out)
}

/// Describes a socket by its addresses; `None` if the descriptor is not a socket.
pub fn describe_socket(fd: RawFd) -> Option<String> {
    let address =
        |call: unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int| {
            // SAFETY: the contract of `try_init`: the call writes an address into the storage and
            // its length into `len`, or returns an error.
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
        None => "another address family".to_owned(),
    }
}
