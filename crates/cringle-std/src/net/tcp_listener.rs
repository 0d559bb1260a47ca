//! TCP listeners.

use super::addr::AddrBuf;
use super::macros::{all_sockets, descriptors, std_calls};
use super::socket::{Direction, Socket};
use super::{TcpStream, ToSocketAddrs};
use cringle_driver::Op;
use cringle_sys::plainly;
use std::io;
use std::iter::FusedIterator;
use std::net::SocketAddr;
use std::os::fd::FromRawFd;

/// A TCP socket that accepts connections, as `std::net::TcpListener`.
///
/// Only the calling fiber waits. Any number of fibers, on all workers, may accept from one
/// listener.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use cringle::{fiber, net::TcpListener};
/// use std::io;
///
/// cringle::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:8080")?;
///     fiber::scope(|s| {
///         for stream in listener.incoming() {
///             let mut stream = stream?;
///             s.spawn(move || io::copy(&mut stream.try_clone()?, &mut stream));
///         }
///         Ok(())
///     })
/// })
/// # }
/// ```
pub struct TcpListener {
    pub(super) socket: Socket<std::net::TcpListener>,
}

descriptors!(TcpListener, std::net::TcpListener);
all_sockets!(TcpListener);

impl TcpListener {
    /// Listens on the first of the addresses that is free. For port 0 the kernel chooses a port.
    ///
    /// # Errors
    ///
    /// As std's: the error of the last address; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled) if a name had to be resolved.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        let std =
            super::addr::first_of(addr, |addr| plainly(|| std::net::TcpListener::bind(addr)))?;
        Ok(TcpListener { socket: Socket::fresh(std) })
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
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let Some(ring) = self.socket.ring(Direction::Receive)? else {
            return self.accept_plainly();
        };
        let mut addr = AddrBuf::new();
        let (storage, addr_len) = addr.parts();
        let fd = ring.accept(Op::Accept { fd: self.socket.fd(), addr: storage, addr_len })?;
        // SAFETY: the op has just returned this descriptor, which is newly opened and has no other
        // owner.
        let std = unsafe { std::net::TcpStream::from_raw_fd(fd as i32) };
        let stream = TcpStream { socket: self.socket.accepted(std) };
        Ok((stream, addr.internet()?))
    }

    fn accept_plainly(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (std, addr) = self.socket.accept_plainly(std::net::TcpListener::accept)?;
        Ok((TcpStream { socket: self.socket.accepted(std) }, addr))
    }

    std_calls! {
        /// Returns the address that the listener is bound to.
        fn local_addr() -> SocketAddr;
        /// Sets the time to live of packets that the accepted connections send (`IP_TTL`).
        fn set_ttl(ttl: u32) -> ();
        /// Returns the time to live of packets that the accepted connections send (`IP_TTL`).
        fn ttl() -> u32;
    }

    /// Returns an endless iterator over the connections. Each item is the stream of an
    /// [`accept`](Self::accept).
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }
}

/// An endless iterator over the connections of a [`TcpListener`]: see
/// [`incoming`](TcpListener::incoming).
///
/// ```
/// let listener = cringle::net::TcpListener::bind("127.0.0.1:0")?;
/// let connections: cringle::net::Incoming = listener.incoming();
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}
