//! A connection.

use super::ToSocketAddrs;
use super::addr::first_of;
use super::socket::{Socket, Way, descriptors};
use crate::driver::Op;
use crate::fiber::op::{perform, perform_within};
use crate::runtime::worker::Worker;
use crate::sys::{MAX_RW_BYTES, MAX_SLICES};
use socket2::{Domain, SockAddr, SockRef, Type};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
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

    /// The address of the other side.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.std().peer_addr()
    }

    /// The address of this side.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.std().local_addr()
    }

    /// Ends reading, writing or both. Who waits in a read, of a clone too, is woken and finds the end.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.std().shutdown(how)
    }

    /// Another handle to the same connection, with the same timeouts.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        let std = self.socket.std().try_clone()?;
        Ok(TcpStream { socket: self.socket.clone_with(std) })
    }

    /// How long a read may wait: it fails with `WouldBlock` then, as std's on Linux. For more than one
    /// call there is [`time::timeout`](crate::time::timeout).
    ///
    /// # Errors
    ///
    /// As std's: `InvalidInput` for no time at all.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.std().set_read_timeout(limit)?;
        self.socket.note_timeout(Way::In, limit);
        Ok(())
    }

    /// How long a write may wait.
    ///
    /// # Errors
    ///
    /// As std's: `InvalidInput` for no time at all.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.std().set_write_timeout(limit)?;
        self.socket.note_timeout(Way::Out, limit);
        Ok(())
    }

    /// How long a read may wait.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        self.socket.std().read_timeout()
    }

    /// How long a write may wait.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        self.socket.std().write_timeout()
    }

    /// Reads, and leaves what was read to be read again.
    ///
    /// # Errors
    ///
    /// As std's; and [`Cancelled`](crate::Cancelled).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self.socket.ring(Way::In)? {
            Some(ring) => ring.perform(receive(&self.socket, buf, libc::MSG_PEEK)),
            None => self.socket.std().peek(buf),
        }
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.std().set_nodelay(nodelay)
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket.std().nodelay()
    }

    /// How long closing the connection waits for the peer to take what was written. Only the fiber
    /// waits that drops the last handle. With no time at all the connection is reset instead.
    ///
    /// # Errors
    ///
    /// What `setsockopt` says.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        SockRef::from(self).set_linger(linger)?;
        self.socket.note_linger(linger);
        Ok(())
    }

    /// How long closing the connection waits.
    ///
    /// # Errors
    ///
    /// What `getsockopt` says.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self).linger()
    }

    /// The `IP_TTL` of what is sent.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.socket.std().set_ttl(ttl)
    }

    /// The `IP_TTL` of what is sent.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket.std().ttl()
    }

    /// The error that waits on the socket, which is cleared (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.std().take_error()
    }

    /// Whether calls that would wait fail with `WouldBlock` instead.
    ///
    /// # Errors
    ///
    /// As std's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.std().set_nonblocking(nonblocking)?;
        self.socket.note_nonblocking(nonblocking);
        Ok(())
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

// ----- reading and writing, which Unix streams do too -----

/// What is lent: the caller's buffer, until the call is over (I1).
#[inline(always)]
pub(super) fn receive<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    buf: &mut [u8],
    flags: libc::c_int,
) -> Op {
    let len = buf.len().min(MAX_RW_BYTES) as u32;
    Op::Recv { fd: socket.fd(), buf: buf.as_mut_ptr(), len, flags }
}

/// All of it, as a socket that blocks takes it; a broken connection is an error and no signal.
const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

#[inline(always)]
pub(super) fn send<S: AsFd + AsRawFd + Send>(socket: &Socket<S>, buf: &[u8]) -> Op {
    let len = buf.len().min(MAX_RW_BYTES) as u32;
    Op::Send { fd: socket.fd(), buf: buf.as_ptr(), len, flags: SEND_FLAGS }
}

pub(super) fn read_vectored<S>(socket: &Socket<S>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>
where
    S: AsFd + AsRawFd + Send,
    for<'a> &'a S: Read,
{
    let Some(ring) = socket.ring(Way::In)? else { return (&mut socket.std()).read_vectored(bufs) };
    // `IoSliceMut` is guaranteed to have the layout of `iovec`.
    let mut message = message(bufs.as_mut_ptr().cast(), bufs.len());
    ring.perform(Op::RecvMsg { fd: socket.fd(), message: &raw mut message, flags: 0 })
}

pub(super) fn write_vectored<S>(socket: &Socket<S>, bufs: &[IoSlice<'_>]) -> io::Result<usize>
where
    S: AsFd + AsRawFd + Send,
    for<'a> &'a S: Write,
{
    let Some(ring) = socket.ring(Way::Out)? else {
        return (&mut socket.std()).write_vectored(bufs);
    };
    let message = message(bufs.as_ptr().cast_mut().cast(), bufs.len());
    ring.perform(Op::SendMsg { fd: socket.fd(), message: &raw const message, flags: SEND_FLAGS })
}

fn message(slices: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all of it may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices;
    message.msg_iovlen = count.min(MAX_SLICES);
    message
}

/// `Read` and `Write` for a stream and for references to it.
macro_rules! reads_and_writes {
    ($ours:ident) => {
        impl std::io::Read for &$ours {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                match self.socket.ring($crate::net::socket::Way::In)? {
                    Some(ring) => {
                        ring.perform($crate::net::tcp_stream::receive(&self.socket, buf, 0))
                    }
                    None => std::io::Read::read(&mut self.socket.std(), buf),
                }
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                $crate::net::tcp_stream::read_vectored(&self.socket, bufs)
            }
        }

        impl std::io::Write for &$ours {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                match self.socket.ring($crate::net::socket::Way::Out)? {
                    Some(ring) => ring.perform($crate::net::tcp_stream::send(&self.socket, buf)),
                    None => std::io::Write::write(&mut self.socket.std(), buf),
                }
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                $crate::net::tcp_stream::write_vectored(&self.socket, bufs)
            }

            /// Nothing is buffered: does nothing.
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::io::Read for $ours {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buf)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                (&*self).read_vectored(bufs)
            }
        }

        impl std::io::Write for $ours {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}

reads_and_writes!(TcpStream);
