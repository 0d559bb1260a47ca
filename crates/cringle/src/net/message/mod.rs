//! `sendmsg` and `recvmsg`: several slices, addresses, and what goes beside the bytes.
//!
//! What an op is lent are the caller's slices, and buffers that lie in the caller's frame or are borrowed
//! by it, until the call is over (I1). What has come is read out of the kernel's buffer at once, so that a
//! descriptor in it has an owner before anybody could forget it.

mod flags;
mod recv;
mod send;

use super::addr::AddrBuf;
use super::socket::{Direction, Socket};
use super::transfer::message;
use crate::driver::{Op, blocking};
use crate::runtime::worker::fairness;
use crate::sys;
use socket2::SockAddr;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};

pub use flags::MsgFlags;
pub use recv::{AncillaryMessage, RecvAncillary};
pub(super) use send::MAX_FDS;
pub use send::SendAncillary;

/// What came by a `recvmsg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Bytes: those in the slices; with [`MsgFlags::TRUNC`] those of the whole message, which may be more.
    pub len: usize,
    /// The message was longer than the slices: the rest of it is lost.
    pub truncated: bool,
    /// There was more beside the bytes than the [`RecvAncillary`] has room for, or descriptors among it
    /// that this process may not have: the kernel has dropped (and closed) them.
    pub ancillary_truncated: bool,
    /// What the kernel says of the message, [`MsgFlags::ERRQUEUE`] for one.
    pub flags: MsgFlags,
}

/// What a `msghdr` is made of, besides the bytes: where from or to, and the control data.
pub(super) fn send<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    slices: &[IoSlice<'_>],
    addr: Option<&SockAddr>,
    ancillary: &SendAncillary<'_>,
    flags: MsgFlags,
) -> io::Result<usize> {
    with_outgoing(slices, addr, ancillary, |message| {
        let flags = flags.bits() | libc::MSG_NOSIGNAL;
        perform(socket, Direction::Send, Op::SendMsg { fd: socket.fd(), message, flags })
    })
}

/// The plain call, which says `WouldBlock` where it would wait.
pub(super) fn send_nowait<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    slices: &[IoSlice<'_>],
    addr: &SockAddr,
    ancillary: &SendAncillary<'_>,
    flags: MsgFlags,
) -> io::Result<usize> {
    fairness::spend();
    with_outgoing(slices, Some(addr), ancillary, |message| {
        let flags = flags.bits() | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let op = Op::SendMsg { fd: socket.fd(), message, flags };
        // SAFETY: what it points to is borrowed here.
        sys::result_of(unsafe { blocking::perform(&op) })
    })
}

fn with_outgoing<R>(
    slices: &[IoSlice<'_>],
    addr: Option<&SockAddr>,
    ancillary: &SendAncillary<'_>,
    perform: impl FnOnce(*const libc::msghdr) -> R,
) -> R {
    // `IoSlice` is guaranteed to have the layout of `iovec`.
    let mut message = message(slices.as_ptr().cast_mut().cast(), slices.len());
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

pub(super) fn receive<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    slices: &mut [IoSliceMut<'_>],
    addr: Option<&mut AddrBuf>,
    ancillary: &mut RecvAncillary,
    flags: MsgFlags,
) -> io::Result<Received> {
    let mut message = message(slices.as_mut_ptr().cast(), slices.len());
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
    let flags = flags.bits() | libc::MSG_CMSG_CLOEXEC;
    let len = perform(
        socket,
        Direction::Receive,
        Op::RecvMsg { fd: socket.fd(), message: pointer, flags },
    )?;
    // SAFETY: the kernel has filled in so many bytes of what it was lent; the descriptors among them are
    // new, and nobody has looked at them.
    unsafe { ancillary.take(message.msg_controllen as _) };
    if let Some(name_len) = name_len {
        // SAFETY: it points into the caller's `AddrBuf`, which nothing else uses here.
        unsafe { *name_len = message.msg_namelen };
    }
    let said = message.msg_flags;
    Ok(Received {
        len,
        truncated: said & libc::MSG_TRUNC != 0,
        ancillary_truncated: said & libc::MSG_CTRUNC != 0,
        flags: MsgFlags::said(said),
    })
}

fn perform<S: AsFd + AsRawFd + Send>(
    socket: &Socket<S>,
    direction: Direction,
    op: Op,
) -> io::Result<usize> {
    match socket.ring(direction)? {
        Some(ring) => ring.perform(op),
        // SAFETY: what it points to is in the caller's frame, which waits for it.
        None => sys::result_of(unsafe { blocking::perform(&op) }),
    }
}

/// For what is connected.
macro_rules! messages_of_streams {
    ($ours:ident) => {
        impl $ours {
            /// Writes the slices, and what goes beside them with the first byte (`sendmsg`). As `write`,
            /// it may take a part only, unless [`WAITALL`](crate::net::MsgFlags::WAITALL) is given.
            ///
            /// # Errors
            ///
            /// As a write; what the kernel says of the ancillary data; and
            /// [`Cancelled`](crate::Cancelled).
            pub fn sendmsg(
                &self,
                slices: &[std::io::IoSlice<'_>],
                ancillary: &$crate::net::SendAncillary<'_>,
                flags: $crate::net::MsgFlags,
            ) -> std::io::Result<usize> {
                $crate::net::message::send(&self.socket, slices, None, ancillary, flags)
            }

            /// Reads into the slices, one after the other, and takes what came beside the bytes
            /// (`recvmsg`).
            ///
            /// # Errors
            ///
            /// As a read; and [`Cancelled`](crate::Cancelled).
            ///
            /// # Cancellation
            ///
            /// What has come before the cancel is returned, descriptors included: none is lost or leaked.
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
