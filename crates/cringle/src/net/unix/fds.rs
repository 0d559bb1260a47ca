//! Passing descriptors to another process (`SCM_RIGHTS`).

use super::{UnixDatagram, UnixStream};
use crate::driver::{Op, blocking};
use crate::net::socket::{Socket, Way};
use crate::net::transfer::{SEND_FLAGS, message};
use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The most that the kernel passes at once (`SCM_MAX_FD`).
const MAX_FDS: usize = 253;

/// Room for a message's descriptors, as the kernel aligns them.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

// SAFETY: it computes a size.
const CONTROL_BYTES: usize =
    unsafe { libc::CMSG_SPACE((MAX_FDS * size_of::<RawFd>()) as u32) } as usize;

/// A message that has come with descriptors: see [`UnixStream::recv_with_fds`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ReceivedFds {
    /// Bytes of the message; of a stream, 0 is its end.
    pub len: usize,
    /// Its descriptors, closed on `exec`.
    pub fds: Vec<OwnedFd>,
    /// Some of its descriptors were dropped by the kernel: this process may not have so many open.
    pub lost_some: bool,
}

macro_rules! passes_fds {
    ($ours:ident) => {
        impl $ours {
            /// Writes, and passes descriptors with the first byte: the other side has them too then.
            ///
            /// ```
            #[doc = concat!("use cringle::os::unix::net::", stringify!($ours), ";")]
            /// use std::{fs::File, io::Read, os::fd::AsFd};
            ///
            /// cringle::run(|| {
            #[doc = concat!("    let (ours, theirs) = ", stringify!($ours), "::pair()?;")]
            ///     let file = File::open("/proc/self/exe")?;
            ///     ours.send_with_fds(b"!", &[file.as_fd()])?;
            ///     let mut received = theirs.recv_with_fds(&mut [0; 8])?;
            ///     let mut magic = [0; 4];
            ///     File::from(received.fds.remove(0)).read_exact(&mut magic)?;
            ///     assert_eq!((received.len, &magic), (1, b"\x7fELF"));
            ///     Ok::<(), std::io::Error>(())
            /// })
            /// # ?; Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As a write; `InvalidInput` for more than 253 descriptors, or for no byte to pass them
            /// with; and [`Cancelled`](crate::Cancelled).
            pub fn send_with_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
                send_with_fds(&self.socket, buf, fds)
            }

            /// Reads, and takes the descriptors that came with what is read.
            ///
            /// # Errors
            ///
            /// As a read; and [`Cancelled`](crate::Cancelled).
            pub fn recv_with_fds(&self, buf: &mut [u8]) -> io::Result<ReceivedFds> {
                recv_with_fds(&self.socket, buf)
            }
        }
    };
}

passes_fds!(UnixStream);
passes_fds!(UnixDatagram);

fn send_with_fds<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    buf: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    if fds.len() > MAX_FDS {
        let text = format!("{} descriptors cannot be passed at once: at most {MAX_FDS}", fds.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if buf.is_empty() && !fds.is_empty() {
        let text = "descriptors are passed with a byte: there is none";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut control = Control([0; CONTROL_BYTES]);
    let mut slice = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    let mut message = message(&raw mut slice, 1);
    if !fds.is_empty() {
        let bytes = size_of_val(fds) as u32;
        message.msg_control = (&raw mut control.0).cast();
        // SAFETY: the buffer has room for a header and the most that can be passed, and is aligned for
        // the header; `BorrowedFd` has the layout of `RawFd`.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            data.copy_from_nonoverlapping(fds.as_ptr().cast(), fds.len());
        }
    }
    let message = &raw const message;
    perform(socket, Way::Out, Op::SendMsg { fd: socket.fd(), message, flags: SEND_FLAGS })
}

fn recv_with_fds<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    buf: &mut [u8],
) -> io::Result<ReceivedFds> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut slice = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut message = message(&raw mut slice, 1);
    message.msg_control = (&raw mut control.0).cast();
    message.msg_controllen = CONTROL_BYTES;
    let pointer = &raw mut message;
    let flags = libc::MSG_CMSG_CLOEXEC;
    let len = perform(socket, Way::In, Op::RecvMsg { fd: socket.fd(), message: pointer, flags })?;
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled in the control buffer, and says how far; the descriptors in it are
    // new and ours.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(pointer);
        while let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = found.cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for n in 0..bytes / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(n).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(pointer, header);
        }
    }
    let lost_some = message.msg_flags & libc::MSG_CTRUNC != 0;
    Ok(ReceivedFds { len, fds, lost_some })
}

fn perform<S: AsFd + AsRawFd + Send>(socket: &Socket<S>, way: Way, op: Op) -> io::Result<usize> {
    match socket.ring(way)? {
        Some(ring) => ring.perform(op),
        // SAFETY: what it points to is in the caller's frame, which waits for it.
        None => sys::result_of(unsafe { blocking::perform(&op) }),
    }
}
