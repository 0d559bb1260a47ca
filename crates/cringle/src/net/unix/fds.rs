//! Passing descriptors to another process (`SCM_RIGHTS`).

use super::{UnixDatagram, UnixStream};
use crate::net::message::{self, MAX_FDS};
use crate::net::socket::Socket;
use crate::net::{AncillaryMessage, MsgFlags, RecvAncillary, SendAncillary};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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
    let mut ancillary = SendAncillary::new();
    if !fds.is_empty() {
        ancillary.fds(fds)?;
    }
    if buf.is_empty() && !fds.is_empty() {
        let text = "descriptors are passed with a byte: there is none";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    message::send(socket, &[IoSlice::new(buf)], None, &ancillary, MsgFlags::WAITALL)
}

fn recv_with_fds<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    buf: &mut [u8],
) -> io::Result<ReceivedFds> {
    let mut ancillary = RecvAncillary::for_fds(MAX_FDS);
    let slices = &mut [IoSliceMut::new(buf)];
    let received = message::receive(socket, slices, None, &mut ancillary, MsgFlags::empty())?;
    let fds = ancillary.drain().filter_map(|message| match message {
        AncillaryMessage::Fds(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    Ok(ReceivedFds { len: received.len, fds, lost_some: received.ancillary_truncated })
}
