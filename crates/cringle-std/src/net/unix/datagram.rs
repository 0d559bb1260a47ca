//! Unix datagram sockets.

use super::{SocketAddr, addr};
use crate::fiber::backoff::Backoff;
use crate::net::addr::AddrBuf;
use crate::net::macros::{all_sockets, descriptors, std_calls, timeouts};
use crate::net::socket::{Direction, Ring, Socket};
use crate::net::transfer::{peek_from_plain, peek_plain};
use crate::net::{MsgFlags, Received, RecvAncillary, SendAncillary, message};
use cringle_sys::plainly;
use socket2::{SockAddr, SockRef};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::unix::net;
use std::path::Path;

/// A Unix datagram socket, as `std::os::unix::net::UnixDatagram`. Only the calling fiber waits.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use cringle::os::unix::net::UnixDatagram;
///
/// cringle::run(|| {
///     let (ours, theirs) = UnixDatagram::pair()?;
///     ours.send(b"ahoy")?;
///     let mut text = [0; 16];
///     assert_eq!(theirs.recv(&mut text)?, 4);
///     Ok(())
/// })
/// # }
/// ```
///
/// # Cancellation
///
/// A cancel ends a call that waits. No message is lost.
pub struct UnixDatagram {
    pub(super) socket: Socket<net::UnixDatagram>,
}

descriptors!(UnixDatagram, net::UnixDatagram);
all_sockets!(UnixDatagram);
timeouts!(UnixDatagram);

impl UnixDatagram {
    fn fresh(std: net::UnixDatagram) -> UnixDatagram {
        UnixDatagram { socket: Socket::fresh(std) }
    }

    /// Binds a socket to a path, which must not exist.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        let path = path.as_ref();
        plainly(|| net::UnixDatagram::bind(path)).map(UnixDatagram::fresh)
    }

    /// Binds a socket to an address, which may be abstract.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        plainly(|| net::UnixDatagram::bind_addr(addr)).map(UnixDatagram::fresh)
    }

    /// Creates a socket without an address.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn unbound() -> io::Result<UnixDatagram> {
        plainly(net::UnixDatagram::unbound).map(UnixDatagram::fresh)
    }

    /// Creates two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = plainly(net::UnixDatagram::pair)?;
        Ok((UnixDatagram::fresh(a), UnixDatagram::fresh(b)))
    }

    /// Connects the socket to the socket at a path: [`send`](Self::send) sends to it, and only
    /// messages from it are received.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        plainly(|| self.socket.std().connect(path))
    }

    /// Receives a message, and returns its length and the sender's address. Bytes that do not fit
    /// into `buf` are lost.
    ///
    /// A program not written with std may bind a socket to a path of all 108 bytes without a NUL.
    /// On a fiber such an address is looked up by connecting to it; if the socket is gone or
    /// connected to another peer, the message is returned with an unnamed address.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.recv_from(buf, 0, addr::from_buf, net::UnixDatagram::recv_from)
    }

    /// Receives a message, and returns its length. Bytes that do not fit into `buf` are lost.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buf, 0, net::UnixDatagram::recv)
    }

    /// Receives a message without removing it from the queue, and returns its length.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buf, libc::MSG_PEEK, peek_plain)
    }

    /// Receives a message without removing it from the queue, and returns its length and the
    /// sender's address.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.recv_from(buf, libc::MSG_PEEK, addr::from_buf, |std, buf| {
            let (count, from) = peek_from_plain(std, buf)?;
            Ok((count, addr::from_buf(from)?))
        })
    }

    /// Sends a message to the socket at a path, and returns its length.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        let path = path.as_ref();
        match self.socket.ring(Direction::Send)? {
            Some(ring) => self.send_to_queue(ring, buf, &addr::of_path(path)?),
            None => plainly(|| self.socket.std().send_to(buf, path)),
        }
    }

    /// Sends a message to the socket at an address, which may be abstract, and returns its length.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        if let Some(ring) = self.socket.ring(Direction::Send)?
            && let Some(addr) = addr::to_raw(addr)?
        {
            return self.send_to_queue(ring, buf, &addr);
        }
        // An unnamed address, too, for which std returns an error.
        plainly(|| self.socket.std().send_to_addr(buf, addr))
    }

    /// Sends a message to the connected peer, and returns its length.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.socket.send(buf, net::UnixDatagram::send)
    }

    /// Sends the slices as one message with ancillary data (`sendmsg`) to an address, or to the
    /// connected peer, and returns its length.
    ///
    /// ```
    /// use cringle::net::{MsgFlags, SendAncillary};
    /// use cringle::os::unix::net::UnixDatagram;
    /// use std::io::IoSlice;
    ///
    /// let (ours, theirs) = UnixDatagram::pair()?;
    /// let slices = [IoSlice::new(b"rope "), IoSlice::new(b"strands")];
    /// assert_eq!(ours.sendmsg(&slices, None, &SendAncillary::new(), MsgFlags::empty())?, 12);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`send_to_addr`](Self::send_to_addr); and the kernel's errors about the ancillary data.
    pub fn sendmsg(
        &self,
        slices: &[IoSlice<'_>],
        addr: Option<&SocketAddr>,
        ancillary: &SendAncillary<'_>,
        flags: MsgFlags,
    ) -> io::Result<usize> {
        let Some(to) = addr else {
            return message::send(&self.socket, slices, None, ancillary, flags);
        };
        let Some(to) = addr::to_raw(to)? else {
            let text =
                "the address is unnamed: messages can be sent only to a path or an abstract name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        match self.socket.ring(Direction::Send)?.filter(|_| !flags.contains(MsgFlags::DONTWAIT)) {
            Some(ring) => retry_when_full(ring, || {
                message::send_nowait(&self.socket, slices, &to, ancillary, flags)
            }),
            None => message::send(&self.socket, slices, Some(&to), ancillary, flags),
        }
    }

    /// Receives a message into the slices, in order, with its ancillary data (`recvmsg`), and
    /// returns the sender's address.
    ///
    /// ```
    /// use cringle::net::{MsgFlags, RecvAncillary};
    /// use cringle::os::unix::net::UnixDatagram;
    /// use std::io::IoSliceMut;
    ///
    /// let (ours, theirs) = UnixDatagram::pair()?;
    /// ours.send(b"ahoy")?;
    /// let mut text = [0; 16];
    /// let slices = &mut [IoSliceMut::new(&mut text)];
    /// let mut ancillary = RecvAncillary::default();
    /// let (received, from) = theirs.recvmsg(slices, &mut ancillary, MsgFlags::empty())?;
    /// assert!(received.len == 4 && from.is_unnamed());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    ///
    /// # Cancellation
    ///
    /// A message that arrived before the cancel is returned with its descriptors: none is lost or
    /// leaked.
    pub fn recvmsg(
        &self,
        slices: &mut [IoSliceMut<'_>],
        ancillary: &mut RecvAncillary,
        flags: MsgFlags,
    ) -> io::Result<(Received, SocketAddr)> {
        let mut from = AddrBuf::new();
        let received = message::receive(&self.socket, slices, Some(&mut from), ancillary, flags)?;
        Ok((received, addr::from_buf(from)?))
    }

    fn send_to_queue(&self, ring: Ring, buf: &[u8], addr: &SockAddr) -> io::Result<usize> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        retry_when_full(ring, || {
            plainly(|| SockRef::from(&self.socket.std()).send_to_with_flags(buf, addr, flags))
        })
    }

    std_calls! {
        /// Connects the socket to the socket at an address, which may be abstract.
        fn connect_addr(addr: &SocketAddr) -> ();
        /// Returns the socket's own address.
        fn local_addr() -> SocketAddr;
        /// Returns the address of the connected peer.
        fn peer_addr() -> SocketAddr;
        /// Shuts down reading, writing or both.
        fn shutdown(how: Shutdown) -> ();
    }
}

/// Sends with a backoff: the queue of another socket may be full, and the kernel does not report
/// when it has room.
fn retry_when_full(ring: Ring, mut send: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let Ring { current, limit } = ring;
    current.admit()?;
    current.spend();
    let deadline = limit.and_then(|limit| current.worker.now().checked_add(limit));
    let mut backoff = Backoff::default();
    loop {
        match send() {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                if deadline.is_some_and(|deadline| deadline <= current.worker.now()) {
                    return Err(e);
                }
                backoff.pause(current)?;
            }
            result => return result,
        }
    }
}
