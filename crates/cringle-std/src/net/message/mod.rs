//! `sendmsg` and `recvmsg`: several slices, addresses and ancillary data.
//!
//! An op refers to the caller's slices, and to buffers in the caller's frame or borrowed by it,
//! until the call returns (**I1**). Received ancillary data is parsed at once, so that each
//! received descriptor has an owner before any other code runs.

mod flags;
mod recv;
mod send;

use super::addr::AddrBuf;
use super::socket::{Direction, Socket};
use super::transfer::message_header;
use cringle_core::worker::fairness;
use cringle_driver::{Op, blocking};
use cringle_sys as sys;
use socket2::SockAddr;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};

pub use flags::MsgFlags;
pub use recv::{AncillaryMessage, RecvAncillary};
pub(super) use send::MAX_FDS;
pub use send::SendAncillary;

/// The result of a `recvmsg`.
///
/// ```
/// use cringle::net::{MsgFlags, RecvAncillary};
/// use cringle::os::unix::net::UnixStream;
/// use std::io::{IoSliceMut, Write};
///
/// let (mut ours, theirs) = UnixStream::pair()?;
/// ours.write_all(b"ahoy")?;
/// let mut text = [0; 16];
/// let slices = &mut [IoSliceMut::new(&mut text)];
/// let received = theirs.recvmsg(slices, &mut RecvAncillary::default(), MsgFlags::empty())?;
/// assert_eq!((received.len, received.truncated), (4, false));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The number of bytes in the slices; with [`MsgFlags::TRUNC`], the length of the whole
    /// message, which may be larger.
    pub len: usize,
    /// Whether the message was longer than the slices, so that the rest of it is lost.
    pub truncated: bool,
    /// Whether the kernel has discarded ancillary data (and closed its descriptors), because the
    /// [`RecvAncillary`] was too small or this process may not open more descriptors.
    pub ancillary_truncated: bool,
    /// The flags of the message, such as [`MsgFlags::ERRQUEUE`].
    pub flags: MsgFlags,
}

/// Sends a message to an address, or to the connected peer.
pub(super) fn send<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    slices: &[IoSlice<'_>],
    addr: Option<&SockAddr>,
    ancillary: &SendAncillary<'_>,
    flags: MsgFlags,
) -> io::Result<usize> {
    with_message(slices, addr, ancillary, |message| {
        let flags = flags.bits() | libc::MSG_NOSIGNAL;
        perform(socket, Direction::Send, Op::send_msg(socket.fd(), message, flags))
    })
}

/// Sends a message by the plain call, which fails with `WouldBlock` instead of waiting.
pub(super) fn send_nowait<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    slices: &[IoSlice<'_>],
    addr: &SockAddr,
    ancillary: &SendAncillary<'_>,
    flags: MsgFlags,
) -> io::Result<usize> {
    fairness::spend();
    with_message(slices, Some(addr), ancillary, |message| {
        let flags = flags.bits() | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let op = Op::send_msg(socket.fd(), message, flags);
        // SAFETY: I1. This frame borrows what the op points to, and the plain call is over when it
        // returns.
        sys::result_of(unsafe { blocking::perform(&op) })
    })
}

/// Builds the `msghdr` of an outgoing message and passes it to `perform`.
fn with_message<R>(
    slices: &[IoSlice<'_>],
    addr: Option<&SockAddr>,
    ancillary: &SendAncillary<'_>,
    perform: impl FnOnce(*const libc::msghdr) -> R,
) -> R {
    // `IoSlice` is guaranteed to have the layout of `iovec`.
    let mut message = message_header(slices.as_ptr().cast_mut().cast(), slices.len());
    if let Some(addr) = addr {
        message.msg_name = addr.as_ptr().cast_mut().cast();
        message.msg_namelen = addr.len();
    }
    let control = ancillary.bytes();
    if !control.is_empty() {
        message.msg_control = control.as_ptr().cast_mut().cast();
        message.msg_controllen = control.len() as _;
    }
    perform(&raw const message)
}

/// Receives a message.
pub(super) fn receive<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    slices: &mut [IoSliceMut<'_>],
    addr: Option<&mut AddrBuf>,
    ancillary: &mut RecvAncillary,
    flags: MsgFlags,
) -> io::Result<Received> {
    let mut message = message_header(slices.as_mut_ptr().cast(), slices.len());
    let name_len = addr.map(|addr| {
        let (name, name_len) = addr.parts();
        message.msg_name = name.cast();
        message.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
        name_len
    });
    let (control, control_len) = ancillary.lend();
    if control_len > 0 {
        message.msg_control = control.cast();
        message.msg_controllen = control_len as _;
    }
    let pointer = &raw mut message;
    let mut flags = flags.bits() | libc::MSG_CMSG_CLOEXEC;
    if flags & libc::MSG_PEEK != 0 {
        // A ring would peek at the same bytes again, until the slices are full of repetitions.
        flags &= !libc::MSG_WAITALL;
    }
    let len = perform(socket, Direction::Receive, Op::recv_msg(socket.fd(), pointer, flags))?;
    // SAFETY: the contract of `take`: the kernel has written this number of bytes of control
    // messages into the buffer.
    // Their descriptors are new, and nothing has read them before.
    unsafe { ancillary.take(message.msg_controllen as _) };
    if let Some(name_len) = name_len {
        // SAFETY: it points into the caller's `AddrBuf`, which is borrowed exclusively.
        unsafe { *name_len = message.msg_namelen };
    }
    let set = message.msg_flags;
    Ok(Received {
        len,
        truncated: set & libc::MSG_TRUNC != 0,
        ancillary_truncated: set & libc::MSG_CTRUNC != 0,
        flags: MsgFlags::from_kernel(set),
    })
}

fn perform<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    direction: Direction,
    op: Op,
) -> io::Result<usize> {
    match socket.ring(direction)? {
        Some(ring) => ring.perform(op),
        // SAFETY: I1. The caller's frame holds what the op points to, and the plain call is over
        // when it returns.
        None => sys::result_of(unsafe { blocking::perform(&op) }),
    }
}

/// Defines `sendmsg` and `recvmsg` for connected sockets.
macro_rules! messages_of_streams {
    ($ours:ident) => {
        impl $ours {
            /// Writes the slices, and ancillary data with the first byte (`sendmsg`), and returns
            /// the number of bytes. As `write`, it may write only a part, unless
            /// [`WAITALL`](crate::net::MsgFlags::WAITALL) is set.
            ///
            /// ```
            /// use cringle::net::{MsgFlags, SendAncillary};
            /// use std::io::IoSlice;
            ///
            #[doc = $crate::net::macros::example_socket!($ours)]
            /// let slices = [IoSlice::new(b"rope "), IoSlice::new(b"strands")];
            /// assert_eq!(socket.sendmsg(&slices, &SendAncillary::new(), MsgFlags::empty())?, 12);
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// As a write; the kernel's errors about the ancillary data; and
            /// [`Cancelled`](cringle_core::cancelled::Cancelled).
            pub fn sendmsg(
                &self,
                slices: &[std::io::IoSlice<'_>],
                ancillary: &$crate::net::SendAncillary<'_>,
                flags: $crate::net::MsgFlags,
            ) -> std::io::Result<usize> {
                $crate::net::message::send(&self.socket, slices, None, ancillary, flags)
            }

            /// Reads into the slices, in order, and receives the ancillary data of the bytes
            /// (`recvmsg`).
            ///
            /// ```
            /// use cringle::net::{MsgFlags, RecvAncillary};
            /// use std::io::{ErrorKind, IoSliceMut};
            ///
            #[doc = $crate::net::macros::example_socket!($ours)]
            /// let mut text = [0; 16]; let slices = &mut [IoSliceMut::new(&mut text)]; let result =
            /// socket.recvmsg(slices, &mut RecvAncillary::default(), MsgFlags::DONTWAIT);
            /// assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// As a read; and [`Cancelled`](cringle_core::cancelled::Cancelled).
            ///
            /// # Cancellation
            ///
            /// Data and descriptors that arrived before the cancel are returned: none are lost or
            /// leaked.
            pub fn recvmsg(
                &self,
                slices: &mut [std::io::IoSliceMut<'_>],
                ancillary: &mut $crate::net::RecvAncillary,
                flags: $crate::net::MsgFlags,
            ) -> std::io::Result<$crate::net::Received> {
                $crate::net::message::receive(&self.socket, slices, None, ancillary, flags)
            }
        }
    };
}
pub(super) use messages_of_streams;
