//! Messages within this machine.

use super::{SocketAddr, addr};
use crate::fiber::backoff::Backoff;
use crate::net::addr::AddrBuf;
use crate::net::macros::{all_sockets, descriptors, std_calls, timeouts};
use crate::net::socket::{Direction, Ring, Socket};
use crate::net::transfer::{peek_from_plainly, peek_plainly, receive, receive_from, send_message};
use crate::net::{MsgFlags, Received, RecvAncillary, SendAncillary, message};
use socket2::{SockAddr, SockRef};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::unix::net;
use std::path::Path;

/// A Unix datagram socket, as `std::os::unix::net::UnixDatagram`. Only the calling fiber waits.
///
/// ```
/// use cringle::os::unix::net::UnixDatagram;
///
/// cringle::run(|| {
///     let (ours, theirs) = UnixDatagram::pair()?;
///     ours.send(b"ahoy")?;
///     let mut text = [0; 16];
///     assert_eq!(theirs.recv(&mut text)?, 4);
///     Ok::<(), std::io::Error>(())
/// })
/// # ?; Ok::<(), std::io::Error>(())
/// ```
///
/// # Cancellation
///
/// A call that waits is given up; no message is taken then.
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

    /// A socket at a path, where there must be nothing.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        net::UnixDatagram::bind(path).map(UnixDatagram::fresh)
    }

    /// A socket at an address, which may be an abstract one.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        net::UnixDatagram::bind_addr(addr).map(UnixDatagram::fresh)
    }

    /// A socket without a name.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn unbound() -> io::Result<UnixDatagram> {
        net::UnixDatagram::unbound().map(UnixDatagram::fresh)
    }

    /// Two that are connected to each other.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = net::UnixDatagram::pair()?;
        Ok((UnixDatagram::fresh(a), UnixDatagram::fresh(b)))
    }

    /// From now on it sends to this path, and receives from there alone.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.socket.std().connect(path)
    }

    /// Receives a message: its length, and who it is from. What of it does not fit is lost.
    ///
    /// A socket may be bound, by a program not written with std, to a path of all 108 bytes with no NUL after
    /// it. On a fiber such an address is asked of the socket itself; if that socket is gone or connected to
    /// another one, the message is returned with an unnamed address.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let Some(ring) = self.socket.ring(Direction::Receive)? else {
            return self.socket.std().recv_from(buf);
        };
        let (count, from) = receive_from(&self.socket, ring, buf, 0)?;
        Ok((count, addr::of_raw(&from.get())?))
    }

    /// Receives a message.
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

    /// Receives a message, and leaves it to be received again.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self.socket.ring(Direction::Receive)? {
            Some(ring) => ring.perform(receive(&self.socket, buf, libc::MSG_PEEK)),
            None => peek_plainly(&self.socket, buf),
        }
    }

    /// Receives a message, and leaves it to be received again: its length, and who it is from.
    ///
    /// ```
    /// # use cringle::os::unix::net::UnixDatagram;
    /// let (ours, theirs) = UnixDatagram::pair()?;
    /// ours.send(b"ahoy")?;
    /// let mut text = [0; 16];
    /// assert_eq!(theirs.peek_from(&mut text)?.0, 4);
    /// assert_eq!(theirs.recv_from(&mut text)?.0, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (count, from) = match self.socket.ring(Direction::Receive)? {
            Some(ring) => receive_from(&self.socket, ring, buf, libc::MSG_PEEK)?,
            None => peek_from_plainly(&self.socket, buf)?,
        };
        Ok((count, addr::of_raw(&from.get())?))
    }

    /// Sends a message to a socket at a path.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        let path = path.as_ref();
        match self.socket.ring(Direction::Send)? {
            Some(ring) => self.send_patiently(ring, buf, &addr::of_path(path)?),
            None => self.socket.std().send_to(buf, path),
        }
    }

    /// Sends a message to a socket at an address, which may be an abstract one.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        if let Some(ring) = self.socket.ring(Direction::Send)?
            && let Some(addr) = addr::to_raw(addr)?
        {
            return self.send_patiently(ring, buf, &addr);
        }
        // Also to what has no name, which is an error.
        self.socket.std().send_to_addr(buf, addr)
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

    /// Sends the slices as one message, and what goes beside it (`sendmsg`): to an address, or to whom it
    /// is connected to.
    ///
    /// # Errors
    ///
    /// As [`send_to_addr`](Self::send_to_addr); and what the kernel says of the ancillary data.
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
            let text = "a socket without a name cannot be sent to";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        match self.socket.ring(Direction::Send)?.filter(|_| !flags.contains(MsgFlags::DONTWAIT)) {
            Some(ring) => patiently(ring, || {
                message::send_nowait(&self.socket, slices, &to, ancillary, flags)
            }),
            None => message::send(&self.socket, slices, Some(&to), ancillary, flags),
        }
    }

    /// Receives a message into the slices, one after the other, and what came beside it (`recvmsg`); says
    /// who it is from.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    ///
    /// # Cancellation
    ///
    /// What has come before the cancel is returned, descriptors included: none is lost or leaked.
    pub fn recvmsg(
        &self,
        slices: &mut [IoSliceMut<'_>],
        ancillary: &mut RecvAncillary,
        flags: MsgFlags,
    ) -> io::Result<(Received, SocketAddr)> {
        let mut from = AddrBuf::new();
        let received = message::receive(&self.socket, slices, Some(&mut from), ancillary, flags)?;
        Ok((received, addr::of_raw(&from.get())?))
    }

    fn send_patiently(&self, ring: Ring, buf: &[u8], addr: &SockAddr) -> io::Result<usize> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        patiently(ring, || SockRef::from(&self.socket.std()).send_to_with_flags(buf, addr, flags))
    }

    std_calls! {
        /// From now on it sends to this address, and receives from there alone.
        fn connect_addr(addr: &SocketAddr) -> ();
        /// Its own address.
        fn local_addr() -> SocketAddr;
        /// The address that it is connected to.
        fn peer_addr() -> SocketAddr;
        /// Ends reading, writing or both.
        fn shutdown(how: Shutdown) -> ();
    }
}

/// The queue that a message goes to may be full, and its owner's: nothing tells when there is room.
fn patiently(ring: Ring, mut send: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let Ring { worker, fiber, limit } = ring;
    if worker.refuses(fiber) {
        return Err(fiber.cancel_error());
    }
    let deadline = limit.and_then(|limit| worker.now().checked_add(limit));
    let mut backoff = Backoff::default();
    loop {
        match send() {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                if deadline.is_some_and(|deadline| deadline <= worker.now()) {
                    return Err(e);
                }
                backoff.pause(worker, fiber)?;
            }
            result => return result,
        }
    }
}
