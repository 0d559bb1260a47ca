//! Attempts at ops on sockets, without waiting.
//!
//! Sends and receives have `MSG_DONTWAIT`. `accept` and `connect` have no such flag: the socket has
//! `O_NONBLOCK` while a fiber waits in them (see [`nonblocking`](crate::nonblocking)).

use super::flight::Flight;
use super::nowait::{Outcome, WOULD_WAIT, is_ready, retry};
use super::wait_queues::Direction;
use crate::nonblocking::Hold;
use crate::{Op, SocketMemory, SocketTransfer, Way, blocking};
use cringle_sys::{self as sys, syscall};
use std::os::fd::RawFd;

const IN_PROGRESS: i32 = -libc::EINPROGRESS;
const ALREADY: i32 = -libc::EALREADY;
const IS_CONNECTED: i32 = -libc::EISCONN;

impl Flight {
    /// Sends or receives; on a stream with `MSG_WAITALL`, until everything is moved. As on a ring,
    /// a receive with room for control data ends after the first part, so that control data of a
    /// later part is not mixed with it.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    pub(super) unsafe fn transfer(&mut self, transfer: SocketTransfer, is_event: bool) -> Outcome {
        let SocketTransfer { way, fd, flags, .. } = transfer;
        let moves_all = flags & (libc::MSG_WAITALL | libc::MSG_PEEK) == libc::MSG_WAITALL
            && !self.has_control_room();
        loop {
            // SAFETY: by the contract.
            let mut result = unsafe { self.call_socket() };
            if result == WOULD_WAIT && flags & libc::MSG_DONTWAIT == 0 {
                let has_ended = is_event && way == Way::Read && sys::is_shut_for_reading(fd);
                if !has_ended {
                    return Outcome::Wait(fd, Direction::of(way));
                }
                // It is ready because no more data can arrive. The last may have, since the call.
                // SAFETY: by the contract.
                result = unsafe { self.call_socket() };
                if result == WOULD_WAIT {
                    return Outcome::Done(self.total(0));
                }
            }
            let continues = moves_all && result > 0;
            // SAFETY: by the contract; the call has moved `result` bytes.
            if !continues || !unsafe { self.advance(result as u32) } {
                let more = if continues { 0 } else { result };
                return Outcome::Done(self.total(more));
            }
            if !sys::is_stream_socket(fd) {
                return Outcome::Done(self.total(0));
            }
        }
    }

    /// Whether a receive has room for control data.
    fn has_control_room(&self) -> bool {
        let Op::Socket(transfer) = self.op else { return false };
        match (transfer.way, transfer.memory()) {
            // SAFETY: I1. The message is lent for the op, or is the remainder's own.
            (Way::Read, SocketMemory::Message(message)) => unsafe { (*message).msg_controllen > 0 },
            _ => false,
        }
    }

    /// Calls `recv`, `send`, `recvmsg` or `sendmsg` with `MSG_DONTWAIT`. As on a ring, a send
    /// raises no `SIGPIPE`.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    unsafe fn call_socket(&mut self) -> i32 {
        let Op::Socket(transfer) = self.op else { unreachable!("a receive or a send") };
        let flags = match transfer.way {
            Way::Read => libc::MSG_DONTWAIT,
            Way::Write => libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        };
        // SAFETY: by the contract.
        let result = retry(|| unsafe { blocking::call_socket(&transfer, flags) });
        if let (0.., Some(rest)) = (result, &self.rest) {
            // SAFETY: by the contract.
            unsafe { rest.report_flags() };
        }
        result
    }

    /// Calls `accept4` while the socket is held non-blocking.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    pub(super) unsafe fn accept(&mut self, fd: RawFd) -> Outcome {
        self.hold(fd);
        let Op::Accept { addr, addr_len, .. } = self.op else { unreachable!("an accept") };
        // SAFETY: by the contract.
        match retry(|| unsafe { syscall!(SYS_accept4, fd, addr, addr_len, libc::SOCK_CLOEXEC) }) {
            WOULD_WAIT if self.hold.is_some() => Outcome::Wait(fd, Direction::In),
            // Without a hold, the program has made the socket non-blocking, or it is no socket.
            result => Outcome::Done(result),
        }
    }

    /// Calls `connect` while the socket is held non-blocking, or checks one in progress.
    ///
    /// # Safety
    ///
    /// As for [`attempt`](Self::attempt).
    pub(super) unsafe fn connect(&mut self, fd: RawFd) -> Outcome {
        let Op::Connect { addr, addr_len, .. } = self.op else { unreachable!("a connect") };
        // SAFETY: by the contract.
        if self.connecting && !unsafe { is_of_internet(fd, addr) } {
            return connect_result(fd).map_or(Outcome::Wait(fd, Direction::Out), Outcome::Done);
        }
        self.hold(fd);
        // SAFETY: by the contract.
        match retry(|| unsafe { syscall!(SYS_connect, fd, addr, addr_len) }) {
            IN_PROGRESS => {
                self.connecting = true;
                Outcome::Wait(fd, Direction::Out)
            }
            // The call that finds the result ends the state in which the socket connects. Otherwise
            // the program's next `connect` would.
            ALREADY if self.connecting => Outcome::Wait(fd, Direction::Out),
            IS_CONNECTED if self.connecting => Outcome::Done(0),
            result => Outcome::Done(result),
        }
    }

    fn hold(&mut self, fd: RawFd) {
        if self.hold.is_none() {
            self.hold = Hold::take(fd);
        }
    }
}

/// Whether a stream socket is connected to an address of the Internet.
///
/// # Safety
///
/// The address is null or valid.
unsafe fn is_of_internet(fd: RawFd, addr: *const libc::sockaddr_storage) -> bool {
    // SAFETY: by the contract.
    let family = unsafe { addr.as_ref() }.map(|addr| i32::from(addr.ss_family));
    matches!(family, Some(libc::AF_INET | libc::AF_INET6)) && sys::is_stream_socket(fd)
}

/// The result of a `connect` in progress, of a socket that is not of the Internet; `None` if it has
/// not ended.
fn connect_result(fd: RawFd) -> Option<i32> {
    if !is_ready(fd, Direction::Out) {
        return None;
    }
    let (mut error, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes to the integer, which is borrowed for the call.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &mut len)
    };
    Some(if result < 0 { -sys::errno() } else { -error })
}
