//! TCP connections.

use super::ToSocketAddrs;
use super::addr::first_of;
use super::macros::{all_sockets, descriptors, std_calls, timeouts};
use super::message::messages_of_streams;
use super::socket::Socket;
use super::transfer::reads_and_writes;
use crate::fiber::op::{perform, perform_within};
use cringle_core::worker::Current;
use cringle_driver::Op;
use cringle_sys::{Owned, plainly};
use socket2::{Domain, SockAddr, SockRef, Type};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A TCP connection, as `std::net::TcpStream`.
///
/// `TcpStream` and `&TcpStream` implement `Read` and `Write`. Only the calling fiber waits.
///
/// ```
/// # fn main() -> std::io::Result<()> {
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
///         Ok(())
///     })
/// })
/// # }
/// ```
///
/// Dropping it closes the connection at once. If it lingers
/// ([`set_linger`](TcpStream::set_linger)), the drop waits, and suspends only the calling fiber.
///
/// # Cancellation
///
/// A cancel ends a read, write or connect that waits. A call that has transferred bytes returns
/// their number. Calls that do not return a number, such as `write_all`, may have sent a part.
pub struct TcpStream {
    pub(super) socket: Socket<std::net::TcpStream>,
}

descriptors!(TcpStream, std::net::TcpStream);
all_sockets!(TcpStream);
timeouts!(TcpStream);
reads_and_writes!(TcpStream);
messages_of_streams!(TcpStream);

impl TcpStream {
    /// Connects to the first of the addresses that accepts the connection.
    ///
    /// # Errors
    ///
    /// As std's: the error of the last address; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        first_of(addr, |addr| connect(addr, None))
    }

    /// Connects to an address, with a time limit.
    ///
    /// # Errors
    ///
    /// As std's: `TimedOut` after the time limit, `InvalidInput` for a limit of zero; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            // std refuses it, and returns its own error.
            let refused = plainly(|| std::net::TcpStream::connect_timeout(addr, timeout));
            return refused.map(TcpStream::from);
        }
        connect(addr, Some(timeout))
    }

    std_calls! {
        /// Returns the address of the peer.
        fn peer_addr() -> SocketAddr;
        /// Returns the local address of the connection.
        fn local_addr() -> SocketAddr;
        /// Shuts down reading, writing or both. A fiber that waits in a read, also of a clone, is
        /// woken and reads 0 bytes.
        fn shutdown(how: Shutdown) -> ();
        /// Sets whether small writes are sent at once (`TCP_NODELAY`).
        fn set_nodelay(nodelay: bool) -> ();
        /// Returns whether small writes are sent at once (`TCP_NODELAY`).
        fn nodelay() -> bool;
        /// Sets the time to live of sent packets (`IP_TTL`).
        fn set_ttl(ttl: u32) -> ();
        /// Returns the time to live of sent packets (`IP_TTL`).
        fn ttl() -> u32;
    }

    /// Reads without removing the data from the queue, so that the next read returns it again.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buf, libc::MSG_PEEK, std::net::TcpStream::peek)
    }

    /// Sets how long closing the connection waits until the peer has acknowledged the data
    /// (`SO_LINGER`). Only the fiber that drops the last handle waits. With a duration of zero,
    /// closing resets the connection.
    ///
    /// ```
    /// # let listener = cringle::net::TcpListener::bind("127.0.0.1:0")?;
    /// let socket = cringle::net::TcpStream::connect(listener.local_addr()?)?;
    /// socket.set_linger(Some(std::time::Duration::from_secs(1)))?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.socket.set_linger(linger)
    }

    /// Returns how long closing the connection waits (`SO_LINGER`).
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self).linger()
    }
}

fn connect(addr: &SocketAddr, limit: Option<Duration>) -> io::Result<TcpStream> {
    let Some(current) = Current::get() else {
        return match limit {
            None => std::net::TcpStream::connect(addr),
            Some(limit) => std::net::TcpStream::connect_timeout(addr, limit),
        }
        .map(TcpStream::from);
    };
    let socket = socket2::Socket::new(Domain::for_address(*addr), Type::STREAM, None)?;
    let socket = Owned::new(socket);
    let addr = SockAddr::from(*addr);
    let op =
        Op::Connect { fd: socket.as_raw_fd(), addr: addr.as_ptr().cast(), addr_len: addr.len() };
    let connected = match limit {
        None => perform(current, op).map(Some),
        Some(limit) => perform_within(current, op, limit),
    };
    if connected?.is_none() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"));
    }
    Ok(TcpStream { socket: Socket::fresh(socket.into_std().into()) })
}
