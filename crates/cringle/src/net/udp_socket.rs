//! Datagrams.

use super::addr::{AddrBuf, first_of};
use super::macros::{all_sockets, descriptors, std_calls, timeouts};
use super::message;
use super::socket::{Direction, Socket};
use super::transfer::{receive, receive_from, send_message, send_to, send_zc};
use super::{MsgFlags, Received, RecvAncillary, SendAncillary, ToSocketAddrs};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// A UDP socket, as `std::net::UdpSocket`. Only the calling fiber waits.
///
/// ```
/// use cringle::net::UdpSocket;
///
/// cringle::run(|| {
///     let ours = UdpSocket::bind("127.0.0.1:0")?;
///     let theirs = UdpSocket::bind("127.0.0.1:0")?;
///     ours.send_to(b"ahoy", theirs.local_addr()?)?;
///     let mut text = [0; 16];
///     let (count, from) = theirs.recv_from(&mut text)?;
///     assert_eq!((&text[..count], from), (&b"ahoy"[..], ours.local_addr()?));
///     Ok::<(), std::io::Error>(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Cancellation
///
/// A call that waits is given up; no message is taken then.
pub struct UdpSocket {
    pub(super) socket: Socket<std::net::UdpSocket>,
}

descriptors!(UdpSocket, std::net::UdpSocket);
all_sockets!(UdpSocket);
timeouts!(UdpSocket);

impl UdpSocket {
    /// A socket at the first of the addresses that is free; port 0 has the kernel choose one.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled) where a name had to be resolved.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        let std = first_of(addr, |addr| std::net::UdpSocket::bind(addr))?;
        Ok(UdpSocket { socket: Socket::fresh(std) })
    }

    /// From now on it sends to this address, and receives from there alone.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled) where a name had to be resolved.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        first_of(addr, |addr| self.socket.std().connect(addr))
    }

    /// Receives a message: its length, and who it is from. What of it does not fit is lost.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let Some(ring) = self.socket.ring(Direction::Receive)? else {
            return self.socket.std().recv_from(buf);
        };
        let (count, addr) = receive_from(&self.socket, ring, buf, 0)?;
        Ok((count, addr.internet()?))
    }

    /// Receives a message, and leaves it to be received again.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let Some(ring) = self.socket.ring(Direction::Receive)? else {
            return self.socket.std().peek_from(buf);
        };
        let (count, addr) = receive_from(&self.socket, ring, buf, libc::MSG_PEEK)?;
        Ok((count, addr.internet()?))
    }

    /// Sends a message to the first of the addresses.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let Some(addr) = addr.to_socket_addrs()?.next() else {
            // std refuses it before it asks the kernel, and says it best.
            let none: [SocketAddr; 0] = [];
            return self.socket.std().send_to(buf, &none[..]);
        };
        match self.socket.ring(Direction::Send)? {
            Some(ring) => send_to(&self.socket, ring, buf, &addr.into()),
            None => self.socket.std().send_to(buf, addr),
        }
    }

    /// Receives a message from whom it is connected to.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self.socket.ring(Direction::Receive)? {
            Some(ring) => ring.perform(receive(&self.socket, buf, 0)),
            None => self.socket.std().recv(buf),
        }
    }

    /// Receives a message from whom it is connected to, and leaves it to be received again.
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

    /// Sends a message to whom it is connected to.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        match self.socket.ring(Direction::Send)? {
            Some(ring) => ring.perform(send_message(&self.socket, buf)),
            None => self.socket.std().send(buf),
        }
    }

    /// Sends a message without copying it to whom it is connected to (`IORING_OP_SEND_ZC`, Linux 6.0):
    /// returns when the network has let go of the buffer. When that pays, and what a cancel does, is told
    /// by [`TcpStream::send_zc`](crate::net::TcpStream::send_zc); here nobody acknowledges, so that the
    /// wait is for the card. Where the kernel cannot, it is a plain send.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn send_zc(&self, buf: &[u8]) -> io::Result<usize> {
        match self.socket.ring(Direction::Send)? {
            Some(ring) => send_zc(&self.socket, ring, buf, libc::MSG_NOSIGNAL),
            None => self.socket.std().send(buf),
        }
    }

    /// Sends the slices as one message, and what goes beside it (`sendmsg`): to an address, or to whom it
    /// is connected to.
    ///
    /// # Errors
    ///
    /// As [`send_to`](Self::send_to); and what the kernel says of the ancillary data.
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

    /// Receives a message into the slices, one after the other, and what came beside it (`recvmsg`); says
    /// who it is from, where it is from somebody.
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
        /// The address that it is connected to.
        fn peer_addr() -> SocketAddr;
        /// Its own address.
        fn local_addr() -> SocketAddr;
        /// Whether it may send to broadcast addresses.
        fn set_broadcast(broadcast: bool) -> ();
        /// Whether it may send to broadcast addresses.
        fn broadcast() -> bool;
        /// Whether it receives what it sends to a group itself.
        fn set_multicast_loop_v4(multicast_loop: bool) -> ();
        /// Whether it receives what it sends to a group itself.
        fn multicast_loop_v4() -> bool;
        /// How many networks away its messages to groups go.
        fn set_multicast_ttl_v4(ttl: u32) -> ();
        /// How many networks away its messages to groups go.
        fn multicast_ttl_v4() -> u32;
        /// Whether it receives what it sends to a group itself.
        fn set_multicast_loop_v6(multicast_loop: bool) -> ();
        /// Whether it receives what it sends to a group itself.
        fn multicast_loop_v6() -> bool;
        /// The `IP_TTL` of what is sent.
        fn set_ttl(ttl: u32) -> ();
        /// The `IP_TTL` of what is sent.
        fn ttl() -> u32;
        /// Joins a group, at the interface with this address.
        fn join_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
        /// Joins a group, at the interface of this index.
        fn join_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
        /// Leaves a group.
        fn leave_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
        /// Leaves a group.
        fn leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
    }
}
