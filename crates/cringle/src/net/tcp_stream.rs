//! A connection.

use super::ToSocketAddrs;
use super::addr::first_of;
use super::macros::{all_sockets, descriptors, std_calls, timeouts};
use super::message::messages_of_streams;
use super::socket::{Direction, Socket};
use super::transfer::{reads_and_writes, receive, sends_without_copy};
use crate::driver::Op;
use crate::fiber::op::{perform, perform_within};
use crate::runtime::worker::Worker;
use socket2::{Domain, SockAddr, SockRef, Type};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A TCP connection, as `std::net::TcpStream`: `Read` and `Write` for it and for references to it. Only
/// the calling fiber waits.
///
/// ```
/// use cringle::fiber;
/// use cringle::net::{TcpListener, TcpStream};
/// use std::io::{self, Read, Write};
///
/// cringle::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let addr = listener.local_addr()?;
///     fiber::scope(|s| {
///         s.spawn_local(|| -> io::Result<()> {
///             let (mut stream, _peer) = listener.accept()?;
///             stream.write_all(b"ahoy")
///         });
///         let mut text = String::new();
///         TcpStream::connect(addr)?.read_to_string(&mut text)?;
///         assert_eq!(text, "ahoy");
///         Ok::<(), io::Error>(())
///     })
/// })
/// # ?; Ok::<(), io::Error>(())
/// ```
///
/// Dropping it closes it at once; one that lingers ([`set_linger`](TcpStream::set_linger)) lets the
/// fiber wait, and nobody else.
///
/// # Cancellation
///
/// A read, write or connect that waits is given up; bytes that have been moved are returned. A write of
/// which nothing is known (`write_all`, say) may have sent a part.
pub struct TcpStream {
    pub(super) socket: Socket<std::net::TcpStream>,
}

descriptors!(TcpStream, std::net::TcpStream);
all_sockets!(TcpStream);
timeouts!(TcpStream);
reads_and_writes!(TcpStream);
messages_of_streams!(TcpStream);
sends_without_copy!(TcpStream);

impl TcpStream {
    /// Connects to the first of the addresses that answers.
    ///
    /// # Errors
    ///
    /// As std's: that of the last address that was tried; and [`Cancelled`](crate::Cancelled).
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        first_of(addr, |addr| connect(addr, None))
    }

    /// Connects to an address within this time.
    ///
    /// # Errors
    ///
    /// As std's: `TimedOut` when the time is up, `InvalidInput` for none; and
    /// [`Cancelled`](crate::Cancelled).
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        match timeout.is_zero() {
            true => std::net::TcpStream::connect_timeout(addr, timeout).map(TcpStream::from),
            false => connect(addr, Some(timeout)),
        }
    }

    std_calls! {
        /// The address of the other side.
        fn peer_addr() -> SocketAddr;
        /// The address of this side.
        fn local_addr() -> SocketAddr;
        /// Ends reading, writing or both. Who waits in a read, of a clone too, is woken and finds the end.
        fn shutdown(how: Shutdown) -> ();
        /// Whether small writes are sent at once.
        fn set_nodelay(nodelay: bool) -> ();
        /// Whether small writes are sent at once.
        fn nodelay() -> bool;
        /// The `IP_TTL` of what is sent.
        fn set_ttl(ttl: u32) -> ();
        /// The `IP_TTL` of what is sent.
        fn ttl() -> u32;
    }

    /// Reads, and leaves what was read to be read again.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self.socket.ring(Direction::Receive)? {
            Some(ring) => ring.perform(receive(&self.socket, buf, libc::MSG_PEEK)),
            None => self.socket.std().peek(buf),
        }
    }

    /// How long closing the connection waits for the peer to take what was written. Only the fiber
    /// waits that drops the last handle. With no time at all the connection is reset instead.
    ///
    /// # Errors
    ///
    /// What `setsockopt` says.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.socket.set_linger(linger)
    }

    /// How long closing the connection waits.
    ///
    /// # Errors
    ///
    /// What `getsockopt` says.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self).linger()
    }
}

fn connect(addr: &SocketAddr, limit: Option<Duration>) -> io::Result<TcpStream> {
    let Some((worker, fiber)) = Worker::current() else {
        return match limit {
            None => std::net::TcpStream::connect(addr),
            Some(limit) => std::net::TcpStream::connect_timeout(addr, limit),
        }
        .map(TcpStream::from);
    };
    let socket = socket2::Socket::new(Domain::for_address(*addr), Type::STREAM, None)?;
    let addr = SockAddr::from(*addr);
    let op =
        Op::Connect { fd: socket.as_raw_fd(), addr: addr.as_ptr().cast(), addr_len: addr.len() };
    let connected = match limit {
        None => perform(worker, fiber, op).map(Some),
        Some(limit) => perform_within(worker, fiber, op, limit),
    };
    if connected?.is_none() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"));
    }
    Ok(TcpStream { socket: Socket::fresh(socket.into()) })
}
