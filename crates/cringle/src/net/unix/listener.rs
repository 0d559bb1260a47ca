//! Waiting for connections of this machine.

use super::{SocketAddr, UnixStream};
use crate::driver::Op;
use crate::net::macros::{all_sockets, descriptors, std_calls};
use crate::net::socket::{Direction, Socket};
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::net;
use std::path::Path;

/// A socket that connections of this machine come to, as `std::os::unix::net::UnixListener`.
///
/// ```
/// use cringle::fiber;
/// use cringle::os::unix::net::{UnixListener, UnixStream};
/// use std::io::{self, Read, Write};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("socket");
/// cringle::run(|| {
///     let listener = UnixListener::bind(&path)?;
///     fiber::scope(|s| {
///         s.spawn_local(|| listener.accept()?.0.write_all(b"ahoy"));
///         let mut text = String::new();
///         UnixStream::connect(&path)?.read_to_string(&mut text)?;
///         assert_eq!(text, "ahoy");
///         Ok::<(), io::Error>(())
///     })
/// })
/// # ?; Ok::<(), io::Error>(())
/// ```
pub struct UnixListener {
    pub(super) socket: Socket<net::UnixListener>,
}

descriptors!(UnixListener, net::UnixListener);
all_sockets!(UnixListener);

impl UnixListener {
    /// Listens at a path, where there must be nothing.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        Ok(UnixListener { socket: Socket::fresh(net::UnixListener::bind(path)?) })
    }

    /// Listens at an address, which may be an abstract one.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixListener> {
        Ok(UnixListener { socket: Socket::fresh(net::UnixListener::bind_addr(addr)?) })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled). A connection that came before the cancel is
    /// returned.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let Some(ring) = self.socket.ring(Direction::Receive)? else {
            let (std, addr) = self.socket.accept_plainly(net::UnixListener::accept)?;
            return Ok((UnixStream { socket: self.socket.accepted(std) }, addr));
        };
        let (addr, addr_len) = (std::ptr::null_mut(), std::ptr::null_mut());
        let fd = ring.accept(Op::Accept { fd: self.socket.fd(), addr, addr_len })?;
        // SAFETY: the kernel has just made it, for us.
        let std = unsafe { net::UnixStream::from_raw_fd(fd as i32) };
        let addr = std.peer_addr()?;
        Ok((UnixStream { socket: self.socket.accepted(std) }, addr))
    }

    /// The connections one after the other, without an end: each as [`accept`](Self::accept) has it.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    std_calls! {
        /// Where it listens.
        fn local_addr() -> SocketAddr;
    }
}

/// The connections of a [`UnixListener`]: see [`incoming`](UnixListener::incoming).
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = Incoming<'a>;

    fn into_iter(self) -> Incoming<'a> {
        self.incoming()
    }
}
