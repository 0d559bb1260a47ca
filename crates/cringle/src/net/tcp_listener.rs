//! Waiting for connections.

use super::addr::AddrBuf;
use super::macros::{all_sockets, descriptors, std_calls};
use super::socket::{Direction, Socket};
use super::{TcpStream, ToSocketAddrs};
use crate::driver::Op;
use std::io;
use std::iter::FusedIterator;
use std::net::SocketAddr;
use std::os::fd::FromRawFd;

/// A socket that connections come to, as `std::net::TcpListener`. Only the calling fiber waits; any
/// number of fibers, of all workers, may accept from one.
///
/// ```no_run
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
///         Ok::<(), io::Error>(())
///     })
/// })
/// # ?; Ok::<(), io::Error>(())
/// ```
pub struct TcpListener {
    pub(super) socket: Socket<std::net::TcpListener>,
}

descriptors!(TcpListener, std::net::TcpListener);
all_sockets!(TcpListener);

impl TcpListener {
    /// Listens at the first of the addresses that is free; port 0 has the kernel choose one.
    ///
    /// # Errors
    ///
    /// As std's: that of the last address that was tried; and [`Cancelled`](crate::Cancelled) where a
    /// name had to be resolved.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        let std = super::addr::first_of(addr, |addr| std::net::TcpListener::bind(addr))?;
        Ok(TcpListener { socket: Socket::fresh(std) })
    }

    /// Waits for the next connection, and says who it is from.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled). A connection that came before the cancel is
    /// returned.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let Some(ring) = self.socket.ring(Direction::Receive)? else {
            return self.accept_plainly();
        };
        let mut addr = AddrBuf::new();
        let (storage, addr_len) = addr.parts();
        let fd = ring.accept(Op::Accept { fd: self.socket.fd(), addr: storage, addr_len })?;
        // SAFETY: the kernel has just made it, for us.
        let std = unsafe { std::net::TcpStream::from_raw_fd(fd as i32) };
        let stream = TcpStream { socket: self.socket.accepted(std) };
        Ok((stream, addr.internet()?))
    }

    fn accept_plainly(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (std, addr) = self.socket.accept_plainly(std::net::TcpListener::accept)?;
        Ok((TcpStream { socket: self.socket.accepted(std) }, addr))
    }

    std_calls! {
        /// Where it listens.
        fn local_addr() -> SocketAddr;
        /// The `IP_TTL` of what its connections send.
        fn set_ttl(ttl: u32) -> ();
        /// The `IP_TTL` of what its connections send.
        fn ttl() -> u32;
    }

    /// The connections one after the other, without an end: each as [`accept`](Self::accept) has it.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }
}

/// The connections of a [`TcpListener`]: see [`incoming`](TcpListener::incoming).
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
