//! Unix stream connections.

use super::{SocketAddr, addr};
use crate::fiber::backoff::Backoff;
use crate::net::macros::{all_sockets, descriptors, std_calls, timeouts};
use crate::net::message::messages_of_streams;
use crate::net::socket::Socket;
use crate::net::transfer::{peek_plain, reads_and_writes};
use cringle_core::worker::Current;
use cringle_driver::Op;
use cringle_sys::{Owned, plainly};
use socket2::{Domain, SockAddr, Type};
use std::io;
use std::net::Shutdown;
use std::os::unix::net;
use std::path::Path;

/// A Unix stream connection, as `std::os::unix::net::UnixStream`.
///
/// `UnixStream` and `&UnixStream` implement `Read` and `Write`. Only the calling fiber waits.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::os::unix::net::UnixStream;
/// use std::io::{Read, Write};
///
/// cringle::run(|| {
///     let (mut ours, mut theirs) = UnixStream::pair()?;
///     ours.write_all(b"ahoy")?;
///     drop(ours);
///     let mut text = String::new();
///     theirs.read_to_string(&mut text)?;
///     assert_eq!(text, "ahoy");
///     Ok(())
/// })
/// # }
/// ```
///
/// # Cancellation
///
/// As for [`TcpStream`](crate::net::TcpStream).
pub struct UnixStream {
    pub(super) socket: Socket<net::UnixStream>,
}

descriptors!(UnixStream, net::UnixStream);
all_sockets!(UnixStream);
timeouts!(UnixStream);
reads_and_writes!(UnixStream);
messages_of_streams!(UnixStream);

/// The credentials of a peer: see [`UnixStream::peer_cred`].
///
/// ```
/// use cringle::os::unix::net::{UCred, UnixStream};
///
/// let (ours, _theirs) = UnixStream::pair()?;
/// let UCred { uid, gid, .. } = ours.peer_cred()?;
/// println!("user {uid}, group {gid}");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UCred {
    /// The user ID.
    pub uid: libc::uid_t,
    /// The group ID.
    pub gid: libc::gid_t,
    /// The process ID, if the process is visible from this one.
    pub pid: Option<libc::pid_t>,
}

impl UnixStream {
    /// Connects to the listener at a path.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        let path = path.as_ref();
        connect(|| addr::of_path(path).map(Some), || net::UnixStream::connect(path))
    }

    /// Connects to the listener at an address, which may be abstract.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        connect(|| addr::to_raw(addr), || net::UnixStream::connect_addr(addr))
    }

    /// Creates two streams that are connected to each other.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = plainly(net::UnixStream::pair)?;
        let [a, b] = [a, b].map(|std| UnixStream { socket: Socket::fresh(std) });
        Ok((a, b))
    }

    /// Reads without removing the data from the queue, so that the next read returns it again.
    ///
    /// # Errors
    ///
    /// As [`read`](std::io::Read::read).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buf, libc::MSG_PEEK, peek_plain)
    }

    /// Returns the credentials of the peer at the time of the connection (`SO_PEERCRED`).
    ///
    /// ```
    /// # use cringle::os::unix::net::UnixStream;
    /// let (ours, _theirs) = UnixStream::pair()?;
    /// assert_eq!(ours.peer_cred()?.pid, Some(std::process::id() as i32));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        let libc::ucred { pid, uid, gid } = cringle_sys::peer_credentials(self.socket.fd())?;
        Ok(UCred { uid, gid, pid: (pid != 0).then_some(pid) })
    }

    std_calls! {
        /// Returns the local address of the connection.
        fn local_addr() -> SocketAddr;
        /// Returns the address of the peer.
        fn peer_addr() -> SocketAddr;
        /// Shuts down reading, writing or both. A fiber that waits in a read, also of a clone, is
        /// woken and reads 0 bytes.
        fn shutdown(how: Shutdown) -> ();
    }
}

fn connect(
    addr: impl FnOnce() -> io::Result<Option<SockAddr>>,
    plain: impl FnOnce() -> io::Result<net::UnixStream>,
) -> io::Result<UnixStream> {
    let Some(current) = Current::get() else {
        return plainly(plain).map(UnixStream::from);
    };
    current.admit()?;
    current.spend();
    // An unnamed address: std's call returns an error without waiting.
    let Some(addr) = addr()? else { return plainly(plain).map(UnixStream::from) };
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    let socket = Owned::new(socket);
    if !current.worker.may_bypass() {
        // The plain call takes no virtual time, so an op does.
        crate::fiber::op::perform(current, Op::Nop)?;
    }
    let mut backoff = Backoff::default();
    // `EAGAIN`: the listener's queue is full.
    while let Err(e) = plainly(|| socket.connect(&addr)) {
        match e.raw_os_error() {
            Some(libc::EAGAIN) => backoff.pause(current)?,
            Some(libc::EINTR) => {}
            _ => return Err(e),
        }
    }
    plainly(|| socket.set_nonblocking(false))?;
    Ok(UnixStream { socket: Socket::fresh(socket.into_std().into()) })
}
