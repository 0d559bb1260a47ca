//! Unix stream listeners.

use super::{SocketAddr, UnixStream};
use crate::net::macros::{all_sockets, descriptors, std_calls};
use crate::net::socket::{Direction, Socket};
use cringle_driver::Op;
use cringle_sys::plainly;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::net;
use std::path::Path;

/// A Unix socket that accepts stream connections, as `std::os::unix::net::UnixListener`. Only the
/// calling fiber waits.
///
/// ```
/// # fn main() -> std::io::Result<()> {
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
///         Ok(())
///     })
/// })
/// # }
/// ```
pub struct UnixListener {
    pub(super) socket: Socket<net::UnixListener>,
}

descriptors!(UnixListener, net::UnixListener);
all_sockets!(UnixListener);

impl UnixListener {
    /// Listens on a path, which must not exist.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        let path = path.as_ref();
        let std = plainly(|| net::UnixListener::bind(path))?;
        Ok(UnixListener { socket: Socket::fresh(std) })
    }

    /// Listens on an address, which may be abstract.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixListener> {
        Ok(UnixListener { socket: Socket::fresh(plainly(|| net::UnixListener::bind_addr(addr))?) })
    }

    /// Waits for the next connection, and returns it with the peer's address.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    ///
    /// # Cancellation
    ///
    /// A cancel ends the wait. A connection that was accepted before is returned.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let Some(ring) = self.socket.ring(Direction::Receive)? else {
            let (std, addr) = self.socket.accept_plainly(net::UnixListener::accept)?;
            return Ok((UnixStream { socket: self.socket.accepted(std) }, addr));
        };
        let (addr, addr_len) = (std::ptr::null_mut(), std::ptr::null_mut());
        let fd = ring.accept(Op::Accept { fd: self.socket.fd(), addr, addr_len })?;
        // SAFETY: the op has just returned this descriptor, which is newly opened and has no other
        // owner.
        let std = unsafe { net::UnixStream::from_raw_fd(fd as i32) };
        let stream = UnixStream { socket: self.socket.accepted(std) };
        let addr = stream.peer_addr()?;
        Ok((stream, addr))
    }

    /// Returns an endless iterator over the connections. Each item is the stream of an
    /// [`accept`](Self::accept).
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    std_calls! {
        /// Returns the address that the listener is bound to.
        fn local_addr() -> SocketAddr;
    }
}

/// An endless iterator over the connections of a [`UnixListener`]: see
/// [`incoming`](UnixListener::incoming).
///
/// ```
/// use cringle::os::unix::net::{Incoming, UnixListener};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("socket");
/// let listener = UnixListener::bind(&path)?;
/// let connections: Incoming = listener.incoming();
/// # std::io::Result::Ok(())
/// ```
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
