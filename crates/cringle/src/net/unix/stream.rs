//! A connection within this machine.

use super::{SocketAddr, addr};
use crate::driver::Op;
use crate::fiber::backoff::Backoff;
use crate::net::macros::{all_sockets, descriptors, std_calls, timeouts};
use crate::net::message::messages_of_streams;
use crate::net::socket::{Direction, Socket};
use crate::net::transfer::{reads_and_writes, receive, sends_without_copy};
use crate::runtime::worker::Worker;
use socket2::{Domain, SockAddr, Type};
use std::io;
use std::net::Shutdown;
use std::os::unix::net;
use std::path::Path;

/// A connection within this machine, as `std::os::unix::net::UnixStream`: `Read` and `Write` for it and
/// for references to it. Only the calling fiber waits.
///
/// ```
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
///     Ok::<(), std::io::Error>(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
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
sends_without_copy!(UnixStream);

/// Who is at the other side of a Unix socket: as it was when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UCred {
    /// The user.
    pub uid: libc::uid_t,
    /// The group.
    pub gid: libc::gid_t,
    /// The process, where there is one.
    pub pid: Option<libc::pid_t>,
}

impl UnixStream {
    /// Connects to a listener at a path.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        let path = path.as_ref();
        connect(|| addr::of_path(path).map(Some), || net::UnixStream::connect(path))
    }

    /// Connects to a listener at an address, which may be an abstract one.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        connect(|| addr::to_raw(addr), || net::UnixStream::connect_addr(addr))
    }

    /// Two that are connected to each other.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = net::UnixStream::pair()?;
        let [a, b] = [a, b].map(|std| UnixStream { socket: Socket::fresh(std) });
        Ok((a, b))
    }

    /// Reads, and leaves what was read to be read again.
    ///
    /// # Errors
    ///
    /// As [`read`](std::io::Read::read).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self.socket.ring(Direction::Receive)? {
            Some(ring) => ring.perform(receive(&self.socket, buf, libc::MSG_PEEK)),
            None => crate::net::transfer::peek_plainly(&self.socket, buf),
        }
    }

    /// Who is at the other side (`SO_PEERCRED`).
    ///
    /// ```
    /// # use cringle::os::unix::net::UnixStream;
    /// let (ours, _theirs) = UnixStream::pair()?;
    /// assert_eq!(ours.peer_cred()?.pid, Some(std::process::id() as i32));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `getsockopt` says.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        let libc::ucred { pid, uid, gid } = crate::sys::peer_credentials(self.socket.fd())?;
        Ok(UCred { uid, gid, pid: (pid != 0).then_some(pid) })
    }

    std_calls! {
        /// The address of this side.
        fn local_addr() -> SocketAddr;
        /// The address of the other side.
        fn peer_addr() -> SocketAddr;
        /// Ends reading, writing or both. Who waits in a read, of a clone too, is woken and finds the end.
        fn shutdown(how: Shutdown) -> ();
    }
}

fn connect(
    addr: impl FnOnce() -> io::Result<Option<SockAddr>>,
    plain: impl FnOnce() -> io::Result<net::UnixStream>,
) -> io::Result<UnixStream> {
    let Some((worker, fiber)) = Worker::current() else { return plain().map(UnixStream::from) };
    if worker.refuses(fiber) {
        return Err(fiber.cancel_error());
    }
    // What has no name cannot be connected to: std's call says so, and does not wait.
    let Some(addr) = addr()? else { return plain().map(UnixStream::from) };
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    if worker.is_simulated() {
        // The call takes no time; here it does.
        crate::fiber::op::perform(worker, fiber, Op::Nop)?;
    }
    let mut backoff = Backoff::default();
    // The listener may have no room for another one.
    while let Err(e) = socket.connect(&addr) {
        match e.raw_os_error() {
            Some(libc::EAGAIN) => backoff.pause(worker, fiber)?,
            Some(libc::EINTR) => {}
            _ => return Err(e),
        }
    }
    socket.set_nonblocking(false)?;
    Ok(UnixStream { socket: Socket::fresh(socket.into()) })
}
