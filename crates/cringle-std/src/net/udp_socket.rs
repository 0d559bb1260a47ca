//! UDP sockets.

use super::addr::{AddrBuf, first_of};
use super::macros::{all_sockets, descriptors, std_calls, timeouts};
use super::message;
use super::socket::{Direction, Socket};
use super::{MsgFlags, Received, RecvAncillary, SendAncillary, ToSocketAddrs};
use cringle_sys::plainly;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// A UDP socket, as `std::net::UdpSocket`. Only the calling fiber waits.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::net::UdpSocket;
///
/// cringle::run(|| {
///     let ours = UdpSocket::bind("127.0.0.1:0")?;
///     let theirs = UdpSocket::bind("127.0.0.1:0")?;
///     ours.send_to(b"ahoy", theirs.local_addr()?)?;
///     let mut text = [0; 16];
///     let (count, from) = theirs.recv_from(&mut text)?;
///     assert_eq!((&text[..count], from), (&b"ahoy"[..], ours.local_addr()?));
///     Ok(())
/// })
/// # }
/// ```
///
/// # Cancellation
///
/// A cancel ends a call that waits. No message is lost.
pub struct UdpSocket {
    pub(super) socket: Socket<std::net::UdpSocket>,
}

descriptors!(UdpSocket, std::net::UdpSocket);
all_sockets!(UdpSocket);
timeouts!(UdpSocket);

impl UdpSocket {
    /// Binds a socket to the first of the addresses that is free. For port 0 the kernel chooses a
    /// port.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled) if a name had to be
    /// resolved.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        let std = first_of(addr, |addr| plainly(|| std::net::UdpSocket::bind(addr)))?;
        Ok(UdpSocket { socket: Socket::fresh(std) })
    }

    /// Connects the socket to an address: [`send`](Self::send) sends to it, and only messages from
    /// it are received.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled) if a name had to be
    /// resolved.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        first_of(addr, |addr| plainly(|| self.socket.std().connect(addr)))
    }

    /// Receives a message, and returns its length and the sender's address. Bytes that do not fit
    /// into `buf` are lost.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.recv_from(buf, 0, AddrBuf::internet, std::net::UdpSocket::recv_from)
    }

    /// Receives a message without removing it from the queue, and returns its length and the
    /// sender's address.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let plain = std::net::UdpSocket::peek_from;
        self.socket.recv_from(buf, libc::MSG_PEEK, AddrBuf::internet, plain)
    }

    /// Sends a message to the first of the addresses, and returns its length.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let Some(addr) = addr.to_socket_addrs()?.next() else {
            // Returns std's error, which std makes without a system call.
            let none: [SocketAddr; 0] = [];
            return plainly(|| self.socket.std().send_to(buf, &none[..]));
        };
        match self.socket.ring(Direction::Send)? {
            Some(ring) => self.socket.send_to(ring, buf, &addr.into()),
            None => plainly(|| self.socket.std().send_to(buf, addr)),
        }
    }

    /// Receives a message from the connected peer, and returns its length.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buf, 0, std::net::UdpSocket::recv)
    }

    /// Receives a message from the connected peer without removing it from the queue, and returns
    /// its length.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buf, libc::MSG_PEEK, std::net::UdpSocket::peek)
    }

    /// Sends a message to the connected peer, and returns its length.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.socket.send(buf, std::net::UdpSocket::send)
    }

    /// Sends a message to the connected peer without copying it (`IORING_OP_SEND_ZC`, Linux 6.0),
    /// and returns when the kernel has released the buffer.
    ///
    /// [`TcpStream::send_zc`](crate::net::TcpStream::send_zc) describes when it pays and what a
    /// cancel does. UDP has no acknowledgements, so the call waits only for the network card. If
    /// the kernel does not support it, it is a plain send.
    ///
    /// ```
    /// # use cringle::net::UdpSocket;
    /// # let (ours, theirs) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// ours.connect(theirs.local_addr()?)?;
    /// assert_eq!(cringle::run(|| ours.send_zc(&[7; 1024]))?, 1024);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn send_zc(&self, buf: &[u8]) -> io::Result<usize> {
        self.socket.send_zc(buf, std::net::UdpSocket::send)
    }

    /// Sends the slices as one message with ancillary data (`sendmsg`) to an address, or to the
    /// connected peer, and returns its length.
    ///
    /// ```
    /// use cringle::net::{MsgFlags, SendAncillary, UdpSocket};
    /// use std::io::IoSlice;
    ///
    /// # let (ours, theirs) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// let slices = [IoSlice::new(b"rope "), IoSlice::new(b"strands")];
    /// let to = Some(theirs.local_addr()?);
    /// assert_eq!(ours.sendmsg(&slices, to, &SendAncillary::new(), MsgFlags::empty())?, 12);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`send_to`](Self::send_to); and the kernel's errors about the ancillary data.
    pub fn sendmsg(
        &self,
        slices: &[IoSlice<'_>],
        addr: Option<SocketAddr>,
        ancillary: &SendAncillary<'_>,
        flags: MsgFlags,
    ) -> io::Result<usize> {
        let addr = addr.map(socket2::SockAddr::from);
        message::send(&self.socket, slices, addr.as_ref(), ancillary, flags)
    }

    /// Receives a message into the slices, in order, with its ancillary data (`recvmsg`), and
    /// returns the sender's address, if the message has one.
    ///
    /// ```
    /// use cringle::net::{MsgFlags, RecvAncillary, UdpSocket};
    /// use std::io::IoSliceMut;
    ///
    /// # let (ours, theirs) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// ours.send_to(b"ahoy", theirs.local_addr()?)?;
    /// let mut text = [0; 16];
    /// let (received, from) = theirs.recvmsg(
    ///     &mut [IoSliceMut::new(&mut text)],
    ///     &mut RecvAncillary::default(),
    ///     MsgFlags::empty(),
    /// )?;
    /// assert_eq!((received.len, from), (4, Some(ours.local_addr()?)));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    pub fn recvmsg(
        &self,
        slices: &mut [IoSliceMut<'_>],
        ancillary: &mut RecvAncillary,
        flags: MsgFlags,
    ) -> io::Result<(Received, Option<SocketAddr>)> {
        let mut from = AddrBuf::new();
        let received = message::receive(&self.socket, slices, Some(&mut from), ancillary, flags)?;
        Ok((received, from.get().as_socket()))
    }

    std_calls! {
        /// Returns the address of the connected peer.
        fn peer_addr() -> SocketAddr;
        /// Returns the socket's own address.
        fn local_addr() -> SocketAddr;
        /// Sets whether the socket may send to broadcast addresses (`SO_BROADCAST`).
        fn set_broadcast(broadcast: bool) -> ();
        /// Returns whether the socket may send to broadcast addresses (`SO_BROADCAST`).
        fn broadcast() -> bool;
        /// Sets whether this host receives the socket's own IPv4 multicast messages
        /// (`IP_MULTICAST_LOOP`).
        fn set_multicast_loop_v4(multicast_loop: bool) -> ();
        /// Returns whether this host receives the socket's own IPv4 multicast messages
        /// (`IP_MULTICAST_LOOP`).
        fn multicast_loop_v4() -> bool;
        /// Sets the time to live of IPv4 multicast messages (`IP_MULTICAST_TTL`).
        fn set_multicast_ttl_v4(ttl: u32) -> ();
        /// Returns the time to live of IPv4 multicast messages (`IP_MULTICAST_TTL`).
        fn multicast_ttl_v4() -> u32;
        /// Sets whether this host receives the socket's own IPv6 multicast messages
        /// (`IPV6_MULTICAST_LOOP`).
        fn set_multicast_loop_v6(multicast_loop: bool) -> ();
        /// Returns whether this host receives the socket's own IPv6 multicast messages
        /// (`IPV6_MULTICAST_LOOP`).
        fn multicast_loop_v6() -> bool;
        /// Sets the time to live of sent packets (`IP_TTL`).
        fn set_ttl(ttl: u32) -> ();
        /// Returns the time to live of sent packets (`IP_TTL`).
        fn ttl() -> u32;
        /// Joins an IPv4 multicast group on the interface with this address; `0.0.0.0` lets the
        /// kernel choose one.
        fn join_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
        /// Joins an IPv6 multicast group on the interface with this index; 0 lets the kernel choose
        /// one.
        fn join_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
        /// Leaves an IPv4 multicast group.
        fn leave_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
        /// Leaves an IPv6 multicast group.
        fn leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
    }
}
