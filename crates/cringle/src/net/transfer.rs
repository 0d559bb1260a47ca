//! Bytes and messages, in and out.
//!
//! What an op is lent are the caller's buffers and what lies in its frame, until the call is over (I1).

use super::addr::AddrBuf;
use super::socket::{Direction, Ring, Socket};
use crate::driver::Op;
use crate::sys::{MAX_RW_BYTES, MAX_SLICES};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd};

#[inline(always)]
pub(super) fn receive<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    buf: &mut [u8],
    flags: libc::c_int,
) -> Op {
    let len = buf.len().min(MAX_RW_BYTES) as u32;
    Op::Recv { fd: socket.fd(), buf: buf.as_mut_ptr(), len, flags }
}

/// Where the last read filled its buffer there is mostly more to read: the plain call tells, and costs less
/// than a trip through the ring. After a read that did not, the ring waits.
#[inline(always)]
pub(super) fn read<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    ring: Ring,
    buf: &mut [u8],
) -> io::Result<usize> {
    if socket.has_more()
        && let Some(result) = read_at_once(socket, ring, buf)
    {
        return result;
    }
    let count = ring.perform(receive(socket, buf, 0))?;
    socket.note_read(count == buf.len());
    Ok(count)
}

/// What is there; `None` where nothing is, or where it is somebody else's turn.
fn read_at_once<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    ring: Ring,
    buf: &mut [u8],
) -> Option<io::Result<usize>> {
    if ring.worker.refuses(ring.fiber) {
        return Some(Err(ring.fiber.cancel_error()));
    }
    if ring.worker.is_simulated() || !ring.fiber.spend_inline() {
        return None;
    }
    let count = crate::sys::recv_nowait(socket.fd(), buf);
    socket.note_read(count == buf.len() as i32);
    ring.worker.events().tried_inline(count != -libc::EAGAIN);
    (count != -libc::EAGAIN).then(|| crate::sys::result_of(count))
}

/// All of it, as a socket that blocks takes it; a broken connection is an error and no signal.
pub(super) const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

#[inline(always)]
pub(super) fn send<S: AsFd + AsRawFd + Send>(socket: &Socket<S>, buf: &[u8]) -> Op {
    let len = buf.len().min(MAX_RW_BYTES) as u32;
    Op::Send { fd: socket.fd(), buf: buf.as_ptr(), len, flags: SEND_FLAGS }
}

/// A socket mostly has room: where nothing else is to be done, the plain call tells, and costs less than a
/// trip through the ring. Among others the ring takes all writes of a turn at once. (What either costs is
/// in docs/rationale.md.)
#[inline(always)]
pub(super) fn write<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    ring: Ring,
    buf: &[u8],
) -> io::Result<usize> {
    if ring.worker.refuses(ring.fiber) {
        return Err(ring.fiber.cancel_error());
    }
    let mut done = 0;
    let at_once = ring.worker.is_alone() && !ring.worker.is_simulated();
    if at_once && ring.fiber.spend_inline() {
        let sent = crate::sys::send_nowait(socket.fd(), buf);
        ring.worker.events().tried_inline(usize::try_from(sent) == Ok(buf.len()));
        match sent {
            count if count as usize == buf.len() => return Ok(buf.len()),
            count if count >= 0 => done = count as usize,
            error if error == -libc::EAGAIN => {}
            error => return crate::sys::result_of(error),
        }
    }
    match ring.perform(send(socket, &buf[done..])) {
        Ok(count) => Ok(done + count),
        // What was sent counts; the error comes again with the next write.
        Err(_) if done > 0 => Ok(done),
        Err(e) => Err(e),
    }
}

/// Errors by which the kernel says that it cannot spare the copy: not on this kind of socket, or not with
/// the memory that may be locked.
const NOT_WITHOUT_COPY: [i32; 3] = [libc::EOPNOTSUPP, libc::ENOMEM, libc::ENOBUFS];

/// Sends without a copy where that can be, else with one.
pub(super) fn send_zc<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    ring: Ring,
    buf: &[u8],
    flags: libc::c_int,
) -> io::Result<usize> {
    let len = buf.len().min(MAX_RW_BYTES) as u32;
    let (fd, buf) = (socket.fd(), buf.as_ptr());
    let op = Op::SendZc { fd, buf, len, flags };
    let fits = len > 0 && op.fits_ring(ring.worker.driver().borrow().features());
    if fits {
        match ring.perform(op) {
            Err(e) if e.raw_os_error().is_some_and(|errno| NOT_WITHOUT_COPY.contains(&errno)) => {}
            result => return result,
        }
    }
    ring.perform(Op::Send { fd, buf, len, flags })
}

/// For a stream.
macro_rules! sends_without_copy {
    ($ours:ident) => {
        impl $ours {
            /// Writes without copying the bytes (`IORING_OP_SEND_ZC`, Linux 6.0): returns when the peer has
            /// them and the kernel has let go of the buffer. For large ones over a real network: see below.
            ///
            /// ```
            #[doc = $crate::net::transfer::example!($ours)]
            /// ```
            ///
            /// Over the loopback, and to Unix sockets, the kernel copies all the same; and each call waits
            /// for the peer to acknowledge, which costs a trip over the network. So it pays for buffers of
            /// some hundred KiB and more, over a network card that can send from anywhere, and with other
            /// fibers that have something to do meanwhile. Where the kernel cannot, or may lock no more
            /// memory (`RLIMIT_MEMLOCK`), it is a plain send. Outside of a fiber it is a `write`.
            ///
            /// # Errors
            ///
            /// As a write; and [`Cancelled`](crate::Cancelled).
            ///
            /// # Cancellation
            ///
            /// What was not sent yet is given up, and the count says what was. What was sent is lent to the
            /// network until the peer has it, or the connection ends: the call waits for that, cancelled or
            /// not, and so it does after a timeout of the socket. A peer that answers nothing holds it for
            /// as long as the connection lasts ([`shutdown`](Self::shutdown) does not end that, TCP's
            /// `TCP_USER_TIMEOUT` does).
            pub fn send_zc(&self, buf: &[u8]) -> std::io::Result<usize> {
                use $crate::net::transfer::{SEND_FLAGS, send_zc};
                match self.socket.ring($crate::net::socket::Direction::Send)? {
                    Some(ring) => send_zc(&self.socket, ring, buf, SEND_FLAGS),
                    None => std::io::Write::write(&mut self.socket.std(), buf),
                }
            }
        }
    };
}
pub(super) use sends_without_copy;

macro_rules! example {
    (TcpStream) => {
        "use cringle::net::{TcpListener, TcpStream};
use std::io::{self, Read};

cringle::run(|| {
    let listener = TcpListener::bind(\"127.0.0.1:0\")?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    let (mut theirs, _) = listener.accept()?;
    let page = vec![7; 64 << 10];
    let count = ours.send_zc(&page)?;
    theirs.read_exact(&mut vec![0; count])?;
    Ok::<(), io::Error>(())
})
# ?; Ok::<(), std::io::Error>(())"
    };
    (UnixStream) => {
        "use cringle::os::unix::net::UnixStream;

cringle::run(|| {
    let (ours, _theirs) = UnixStream::pair()?;
    assert_eq!(ours.send_zc(b\"copied\")?, 6);
    Ok::<(), std::io::Error>(())
})
# ?; Ok::<(), std::io::Error>(())"
    };
}
pub(super) use example;

pub(super) fn read_vectored<S>(socket: &Socket<S>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>
where
    S: AsFd + AsRawFd + Send,
    for<'a> &'a S: Read,
{
    let wants_none = bufs.iter().all(|buf| buf.is_empty());
    let Some(ring) = socket.ring(Direction::Receive)?.filter(|_| !wants_none) else {
        // `readv` of no room does not wait, where `recvmsg` does.
        return (&mut socket.std()).read_vectored(bufs);
    };
    // `IoSliceMut` is guaranteed to have the layout of `iovec`.
    let mut message = message(bufs.as_mut_ptr().cast(), bufs.len());
    ring.perform(Op::RecvMsg { fd: socket.fd(), message: &raw mut message, flags: 0 })
}

pub(super) fn write_vectored<S>(socket: &Socket<S>, bufs: &[IoSlice<'_>]) -> io::Result<usize>
where
    S: AsFd + AsRawFd + Send,
    for<'a> &'a S: Write,
{
    let has_nothing = bufs.iter().all(|buf| buf.is_empty());
    let Some(ring) = socket.ring(Direction::Send)?.filter(|_| !has_nothing) else {
        // `writev` of no bytes does not ask the socket, where `sendmsg` does.
        return (&mut socket.std()).write_vectored(bufs);
    };
    let message = message(bufs.as_ptr().cast_mut().cast(), bufs.len());
    ring.perform(Op::SendMsg { fd: socket.fd(), message: &raw const message, flags: SEND_FLAGS })
}

pub(super) fn message(slices: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all of it may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices;
    // musl's counts are narrower than glibc's; the rest of their words is zero.
    message.msg_iovlen = count.min(MAX_SLICES) as _;
    message
}

/// `Read` and `Write` for a stream and for references to it.
macro_rules! reads_and_writes {
    ($ours:ident) => {
        impl std::io::Read for &$ours {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                match self.socket.ring($crate::net::socket::Direction::Receive)? {
                    Some(ring) => $crate::net::transfer::read(&self.socket, ring, buf),
                    None => std::io::Read::read(&mut self.socket.std(), buf),
                }
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                $crate::net::transfer::read_vectored(&self.socket, bufs)
            }
        }

        impl std::io::Write for &$ours {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                match self.socket.ring($crate::net::socket::Direction::Send)? {
                    Some(ring) => $crate::net::transfer::write(&self.socket, ring, buf),
                    None => std::io::Write::write(&mut self.socket.std(), buf),
                }
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                $crate::net::transfer::write_vectored(&self.socket, bufs)
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
pub(super) use reads_and_writes;

/// Receives a message, and says how long it is and who it is from.
pub(super) fn receive_from<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    ring: Ring,
    buf: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, AddrBuf)> {
    receive_from_by(socket, buf, flags, |op| ring.perform(op))
}

/// The same with `MSG_PEEK` as the plain call, where std has none.
pub(super) fn peek_from_plainly<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    buf: &mut [u8],
) -> io::Result<(usize, AddrBuf)> {
    receive_from_by(socket, buf, libc::MSG_PEEK, |op| {
        // SAFETY: what the op points to is in the caller's frame.
        crate::sys::result_of(unsafe { crate::driver::blocking::perform(&op) })
    })
}

fn receive_from_by<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    buf: &mut [u8],
    flags: libc::c_int,
    perform: impl FnOnce(Op) -> io::Result<usize>,
) -> io::Result<(usize, AddrBuf)> {
    let mut addr = AddrBuf::new();
    let mut slice = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut message = message(&raw mut slice, 1);
    let (name, name_len) = addr.parts();
    message.msg_name = name.cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
    let count = perform(Op::RecvMsg { fd: socket.fd(), message: &raw mut message, flags })?;
    // SAFETY: it points into `addr`, which nothing else uses here.
    unsafe { *name_len = message.msg_namelen };
    Ok((count, addr))
}

/// Sends a message to an address.
pub(super) fn send_to<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    ring: Ring,
    buf: &[u8],
    addr: &socket2::SockAddr,
) -> io::Result<usize> {
    let mut slice = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    let mut message = message(&raw mut slice, 1);
    message.msg_name = addr.as_ptr().cast_mut().cast();
    message.msg_namelen = addr.len();
    let message = &raw const message;
    ring.perform(Op::SendMsg { fd: socket.fd(), message, flags: libc::MSG_NOSIGNAL })
}

/// Sends a message to whom the socket is connected.
pub(super) fn send_message<S: AsFd + AsRawFd + Send>(socket: &Socket<S>, buf: &[u8]) -> Op {
    let len = buf.len().min(MAX_RW_BYTES) as u32;
    Op::Send { fd: socket.fd(), buf: buf.as_ptr(), len, flags: libc::MSG_NOSIGNAL }
}

/// `recv(MSG_PEEK)` as the plain call, where std has none.
pub(super) fn peek_plainly<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    buf: &mut [u8],
) -> io::Result<usize> {
    let op = receive(socket, buf, libc::MSG_PEEK);
    // SAFETY: the buffer is borrowed for the call.
    crate::sys::result_of(unsafe { crate::driver::blocking::perform(&op) })
}
