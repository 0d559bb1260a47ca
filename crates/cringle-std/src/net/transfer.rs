//! Reads, writes and messages of a socket, through the driver or as std's call.
//!
//! An op refers to the caller's buffers and to structures in this module's frames. Both stay valid
//! until the call returns, because the fiber is resumed only after the op's completion (**I1**).

use super::addr::AddrBuf;
use super::socket::{Direction, Ring, Socket};
use cringle_driver::{Op, blocking};
use cringle_sys::{self as sys, MAX_RW_BYTES, MAX_SLICES, plainly};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// A stream sends all bytes, as a blocking socket does, and a broken connection is an error instead
/// of a signal.
const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

#[inline(always)]
fn recv_op(fd: RawFd, buf: &mut [u8], flags: libc::c_int) -> Op {
    let len = buf.len().min(MAX_RW_BYTES) as u32;
    Op::recv(fd, buf.as_mut_ptr(), len, flags)
}

#[inline(always)]
fn send_op(fd: RawFd, buf: &[u8], flags: libc::c_int) -> Op {
    let len = buf.len().min(MAX_RW_BYTES) as u32;
    Op::send(fd, buf.as_ptr(), len, flags)
}

/// Returns a `msghdr` with these slices and nothing else.
pub(super) fn message_header(slices: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: an all-zero structure of integers and pointers is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices;
    // The field's type differs between glibc and musl.
    message.msg_iovlen = count.min(MAX_SLICES) as _;
    message
}

/// Stream sockets.
impl<S> Socket<S>
where
    S: AsFd + AsRawFd + Send,
    for<'a> &'a S: Read + Write,
{
    /// Reads. If the last read filled its buffer, more data is probably available, and the plain
    /// call is tried first because it costs less than a trip through the ring.
    #[inline]
    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(ring) = self.ring(Direction::Receive)? else {
            return plainly(|| self.std().read(buf));
        };
        if self.has_more()
            && let Some(result) = self.read_now(ring, buf)
        {
            return result;
        }
        let count = ring.perform(recv_op(self.fd(), buf, 0))?;
        self.note_read(count == buf.len());
        Ok(count)
    }

    /// Reads what has arrived. `None` if nothing has, or if the fiber's budget of inline calls is
    /// spent.
    fn read_now(&self, ring: Ring, buf: &mut [u8]) -> Option<io::Result<usize>> {
        if ring.current.refuses() {
            return Some(Err(ring.current.fiber.cancel_error()));
        }
        if !ring.current.worker.may_bypass() || !ring.current.fiber.spend_inline() {
            return None;
        }
        let count = sys::recv_nowait(self.fd(), buf);
        self.note_read(count == buf.len() as i32);
        ring.current.worker.events().tried_inline(count != -libc::EAGAIN);
        (count != -libc::EAGAIN).then(|| sys::result_of(count))
    }

    pub(super) fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let is_empty = bufs.iter().all(|buf| buf.is_empty());
        let Some(ring) = self.ring(Direction::Receive)?.filter(|_| !is_empty) else {
            // An empty `readv` does not wait, where an empty `recvmsg` does.
            return plainly(|| self.std().read_vectored(bufs));
        };
        // `IoSliceMut` is guaranteed to have the layout of `iovec`.
        let mut message = message_header(bufs.as_mut_ptr().cast(), bufs.len());
        ring.perform(Op::recv_msg(self.fd(), &raw mut message, 0))
    }

    /// Writes. A socket usually has room, so a fiber with no other runnable fiber tries the plain
    /// call first, which costs less than a trip through the ring. Among others, the ring submits
    /// all writes of a turn at once.
    #[inline]
    pub(super) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        let Some(ring) = self.ring(Direction::Send)? else {
            return plainly(|| self.std().write(buf));
        };
        ring.current.admit()?;
        let mut done = 0;
        if ring.current.worker.is_alone() && ring.current.fiber.spend_inline() {
            let sent = sys::send_nowait(self.fd(), buf);
            ring.current.worker.events().tried_inline(usize::try_from(sent) == Ok(buf.len()));
            match sent {
                count if count as usize == buf.len() => return Ok(buf.len()),
                count if count >= 0 => done = count as usize,
                error if error == -libc::EAGAIN => {}
                error => return sys::result_of(error),
            }
        }
        match ring.perform(send_op(self.fd(), &buf[done..], SEND_FLAGS)) {
            Ok(count) => Ok(done + count),
            // Returns the bytes that were sent; the next write returns the error.
            Err(_) if done > 0 => Ok(done),
            Err(e) => Err(e),
        }
    }

    pub(super) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let is_empty = bufs.iter().all(|buf| buf.is_empty());
        let Some(ring) = self.ring(Direction::Send)?.filter(|_| !is_empty) else {
            // An empty `writev` does not reach the socket, where an empty `sendmsg` does.
            return plainly(|| self.std().write_vectored(bufs));
        };
        let message = message_header(bufs.as_ptr().cast_mut().cast(), bufs.len());
        ring.perform(Op::send_msg(self.fd(), &raw const message, SEND_FLAGS))
    }

    /// Does nothing: a socket has no buffer in this process.
    pub(super) fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Writes without copying, where the kernel can.
    pub(super) fn write_zc(&self, buf: &[u8]) -> io::Result<usize> {
        match self.ring(Direction::Send)? {
            Some(ring) => self.send_zc_on(ring, buf, SEND_FLAGS),
            None => plainly(|| self.std().write(buf)),
        }
    }
}

/// Any socket. `plain` is std's call, for callers that do not use the driver.
impl<S: AsFd + AsRawFd + Send> Socket<S> {
    #[inline]
    pub(super) fn recv(
        &self,
        buf: &mut [u8],
        flags: libc::c_int,
        plain: impl FnOnce(&S, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self.ring(Direction::Receive)? {
            Some(ring) => ring.perform(recv_op(self.fd(), buf, flags)),
            None => plainly(|| plain(self.std(), buf)),
        }
    }

    /// Receives a message, and converts the sender's address.
    pub(super) fn recv_from<A>(
        &self,
        buf: &mut [u8],
        flags: libc::c_int,
        convert: impl FnOnce(AddrBuf) -> io::Result<A>,
        plain: impl FnOnce(&S, &mut [u8]) -> io::Result<(usize, A)>,
    ) -> io::Result<(usize, A)> {
        let Some(ring) = self.ring(Direction::Receive)? else {
            return plainly(|| plain(self.std(), buf));
        };
        let (count, addr) = recv_from_by(self.fd(), buf, flags, |op| ring.perform(op))?;
        Ok((count, convert(addr)?))
    }

    /// Sends a message to the connected peer.
    #[inline]
    pub(super) fn send(
        &self,
        buf: &[u8],
        plain: impl FnOnce(&S, &[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self.ring(Direction::Send)? {
            Some(ring) => ring.perform(send_op(self.fd(), buf, libc::MSG_NOSIGNAL)),
            None => plainly(|| plain(self.std(), buf)),
        }
    }

    /// Sends a message to the connected peer without copying, where the kernel can.
    pub(super) fn send_zc(
        &self,
        buf: &[u8],
        plain: impl FnOnce(&S, &[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self.ring(Direction::Send)? {
            Some(ring) => self.send_zc_on(ring, buf, libc::MSG_NOSIGNAL),
            None => plainly(|| plain(self.std(), buf)),
        }
    }

    /// Sends without copying, and falls back to a copying send.
    fn send_zc_on(&self, ring: Ring, buf: &[u8], flags: libc::c_int) -> io::Result<usize> {
        /// The errors by which the kernel refuses to send without a copy: this kind of socket does
        /// not support it, or the limit on locked memory is reached.
        const REFUSALS: [i32; 3] = [libc::EOPNOTSUPP, libc::ENOMEM, libc::ENOBUFS];
        let len = buf.len().min(MAX_RW_BYTES) as u32;
        let (fd, buf) = (self.fd(), buf.as_ptr());
        let op = Op::send_zc(fd, buf, len, flags);
        if len > 0 && ring.current.worker.driver().borrow().performs(&op) {
            match ring.perform(op) {
                Err(e) if e.raw_os_error().is_some_and(|errno| REFUSALS.contains(&errno)) => {}
                result => return result,
            }
        }
        ring.perform(Op::send(fd, buf, len, flags))
    }

    /// Sends a message to an address.
    pub(super) fn send_to(
        &self,
        ring: Ring,
        buf: &[u8],
        addr: &socket2::SockAddr,
    ) -> io::Result<usize> {
        let mut slice =
            libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
        let mut message = message_header(&raw mut slice, 1);
        message.msg_name = addr.as_ptr().cast_mut().cast();
        message.msg_namelen = addr.len();
        let message = &raw const message;
        ring.perform(Op::send_msg(self.fd(), message, libc::MSG_NOSIGNAL))
    }
}

/// The plain `recv(MSG_PEEK)`, for sockets for which std has none.
pub(super) fn peek_plain(socket: &impl AsRawFd, buf: &mut [u8]) -> io::Result<usize> {
    let op = recv_op(socket.as_raw_fd(), buf, libc::MSG_PEEK);
    // SAFETY: I1. The buffer is borrowed until the call returns.
    sys::result_of(unsafe { blocking::perform(&op) })
}

/// The plain `recvmsg(MSG_PEEK)`, for sockets for which std has none.
pub(super) fn peek_from_plain(
    socket: &impl AsRawFd,
    buf: &mut [u8],
) -> io::Result<(usize, AddrBuf)> {
    recv_from_by(socket.as_raw_fd(), buf, libc::MSG_PEEK, |op| {
        // SAFETY: I1. The op points to the caller's buffer and to `recv_from_by`'s frame, and the
        // plain call is over when it returns.
        sys::result_of(unsafe { blocking::perform(&op) })
    })
}

fn recv_from_by(
    fd: RawFd,
    buf: &mut [u8],
    flags: libc::c_int,
    perform: impl FnOnce(Op) -> io::Result<usize>,
) -> io::Result<(usize, AddrBuf)> {
    let mut addr = AddrBuf::new();
    let mut slice = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut message = message_header(&raw mut slice, 1);
    let (name, name_len) = addr.parts();
    message.msg_name = name.cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
    let count = perform(Op::recv_msg(fd, &raw mut message, flags))?;
    // SAFETY: the pointer is to a field of `addr`, which is not borrowed otherwise.
    unsafe { *name_len = message.msg_namelen };
    Ok((count, addr))
}

/// Implements `Read` and `Write` for a stream and for references to it, and `send_zc`.
macro_rules! reads_and_writes {
    ($ours:ident) => {
        reads_by!(&$ours, |it| it.socket);
        reads_by!($ours, |it| it.socket);
        writes_by!(&$ours, |it| it.socket);
        writes_by!($ours, |it| it.socket);

        impl $ours {
            /// Writes without copying the bytes (`IORING_OP_SEND_ZC`, Linux 6.0), and returns the
            /// number of bytes when the peer has acknowledged them and the kernel has released the
            /// buffer.
            ///
            /// ```
            #[doc = $crate::net::transfer::send_zc_example!($ours)]
            /// ```
            ///
            /// # When it pays
            ///
            /// Each call waits for the peer's acknowledgement, which takes a round trip over the
            /// network. So it pays for buffers of several hundred KiB, over a network card that
            /// supports scatter-gather, and if other fibers can run meanwhile. Over the loopback
            /// interface and for Unix sockets the kernel copies nevertheless. If the kernel does
            /// not support it, or the limit on locked memory is reached (`RLIMIT_MEMLOCK`), it is a
            /// plain send. Outside of a fiber it is a `write`.
            ///
            /// # Errors
            ///
            /// As a write; and [`Cancelled`](cringle_core::cancelled::Cancelled).
            ///
            /// # Cancellation
            ///
            /// A cancel ends the sending, and the result is the number of bytes that were sent. The
            /// network uses the buffer until the peer has acknowledged these bytes or the
            /// connection ends. The call waits for that even if the fiber is cancelled or the
            /// socket's timeout has elapsed. A peer that does not answer delays it for as long as
            /// the connection lasts; [`shutdown`](Self::shutdown) does not end that, but TCP's
            /// `TCP_USER_TIMEOUT` does.
            pub fn send_zc(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.socket.write_zc(buf)
            }
        }
    };
}
pub(super) use reads_and_writes;

macro_rules! send_zc_example {
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
    io::Result::Ok(())
})
# ?; std::io::Result::Ok(())"
    };
    (UnixStream) => {
        "use cringle::os::unix::net::UnixStream;

cringle::run(|| {
    let (ours, _theirs) = UnixStream::pair()?;
    assert_eq!(ours.send_zc(b\"copied\")?, 6);
    std::io::Result::Ok(())
})
# ?; std::io::Result::Ok(())"
    };
}
pub(super) use send_zc_example;
