//! Passing descriptors to another process (`SCM_RIGHTS`).

use super::{UnixDatagram, UnixStream};
use crate::net::message::{self, MAX_FDS};
use crate::net::socket::Socket;
use crate::net::{AncillaryMessage, MsgFlags, RecvAncillary, SendAncillary};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A message received with descriptors: see [`UnixStream::recv_with_fds`].
///
/// ```
/// use cringle::os::unix::net::UnixStream;
/// use std::io::Write;
///
/// let (mut ours, theirs) = UnixStream::pair()?;
/// ours.write_all(b"ahoy")?;
/// let received = theirs.recv_with_fds(&mut [0; 8])?;
/// assert!(received.len == 4 && received.fds.is_empty() && !received.lost_some);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct ReceivedFds {
    /// The number of bytes received. On a stream, 0 means its end.
    pub len: usize,
    /// The descriptors, which close on `exec`.
    pub fds: Vec<OwnedFd>,
    /// Whether the kernel has closed some of the descriptors, because this process may not open
    /// more.
    pub lost_some: bool,
}

macro_rules! passes_fds {
    ($ours:ident) => {
        impl $ours {
            /// Writes bytes, and passes duplicates of descriptors with the first one.
            ///
            /// ```
            /// # fn main() -> std::io::Result<()> {
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
            ///     Ok(())
            /// })
            /// # }
            /// ```
            ///
            /// # Errors
            ///
            /// As a write; `InvalidInput` for more than 253 descriptors, or for descriptors with an
            /// empty `buf`; and [`Cancelled`](cringle_core::cancelled::Cancelled).
            pub fn send_with_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
                send_with_fds(&self.socket, buf, fds)
            }

            /// Reads bytes, and receives the descriptors that were passed with them.
            ///
            /// ```
            #[doc = concat!("use cringle::os::unix::net::", stringify!($ours), ";")]
            /// use std::{fs::File, os::fd::AsFd};
            ///
            #[doc = concat!("let (ours, theirs) = ", stringify!($ours), "::pair()?;")]
            /// ours.send_with_fds(b"!", &[File::open("/proc/self/exe")?.as_fd()])?;
            /// assert_eq!(theirs.recv_with_fds(&mut [0; 8])?.fds.len(), 1);
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// As a read; and [`Cancelled`](cringle_core::cancelled::Cancelled).
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
        let text = "descriptors cannot be passed without data: send at least one byte";
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
