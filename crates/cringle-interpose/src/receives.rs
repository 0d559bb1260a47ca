//! Calls that receive from a socket.
//!
//! A call holds its [file](Held) from its first wait: what it does with the number afterwards
//! concerns the file, also if the program has closed the number meanwhile.

use super::call::{Call, OnFiber, WOULD_WAIT, or_done};
use super::held::Held;
use super::slices::Slices;
use super::sockets::{AT_ONCE, deadline, header, is_nonblocking, timeout};
use cringle_driver::Op;
use cringle_std::internal::Backoff;
use cringle_sys::{self as sys, MAX_RW_BYTES, syscall};
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shorter than any timeout of a socket: the kernel rounds them up to its ticks.
const SHORT: Duration = Duration::from_micros(500);

/// Performs a receive. Its timeout is looked up only if nothing arrives within [`SHORT`]: the
/// lookup would cost a system call for each wait.
pub(super) fn receive(call: Call, held: &Held, op: Op) -> Option<isize> {
    let begun = call.now();
    let limit = || held.with(|fd| timeout(fd, libc::SO_RCVTIMEO));
    let deadline = || limit().and_then(|limit| begun.checked_add(limit));
    call.perform_reviewed(op, begun + SHORT, &deadline)
}

/// Descriptors on which the last attempt to receive had to wait, by their number. The next attempt
/// is left out then. A wrong answer costs a system call, and changes no result.
static EMPTY: [AtomicBool; 4096] = [const { AtomicBool::new(false) }; 4096];

pub(super) fn is_probably_empty(fd: RawFd) -> bool {
    let empty = usize::try_from(fd).ok().and_then(|fd| EMPTY.get(fd));
    empty.is_some_and(|empty| empty.load(Ordering::Relaxed))
}

fn note_empty(fd: RawFd, is_empty: bool) {
    if let Some(empty) = usize::try_from(fd).ok().and_then(|fd| EMPTY.get(fd)) {
        empty.store(is_empty, Ordering::Relaxed);
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn recvfrom(
    on: OnFiber,
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    on.call(|call| {
        // SAFETY: by the contract.
        let attempt = |fd| unsafe {
            syscall!(SYS_recvfrom, fd, buf, len, flags | libc::MSG_DONTWAIT, addr, addr_len)
        };
        if flags & AT_ONCE != 0 {
            let result = attempt(fd);
            note_empty(fd, result == WOULD_WAIT);
            return Ok(call.at_once(result));
        }
        call.admit()?;
        let waits_for_all = waits_for_all(fd, flags) && len > 0;
        if call.may_attempt() && !waits_for_all && !is_probably_empty(fd) {
            let result = attempt(fd);
            if result != WOULD_WAIT {
                return Ok(result);
            }
            note_empty(fd, true);
        }
        if is_nonblocking(fd) {
            return Ok(attempt(fd));
        }
        let held = Held::new(fd);
        if waits_for_all && (!addr.is_null() || flags & UNLIKE_OPS != 0) {
            // SAFETY: by the contract, of any part of the buffer.
            let attempt = |fd, done: usize| unsafe {
                let (rest, flags) = (buf.wrapping_byte_add(done), flags | libc::MSG_DONTWAIT);
                syscall!(SYS_recvfrom, fd, rest, len - done, flags, addr, addr_len)
            };
            return Ok(receive_all(call, &held, flags, len, attempt));
        }
        if len == 0 || !addr.is_null() && addr_len.is_null() {
            let deadline = deadline(call, &held, libc::SO_RCVTIMEO);
            return receive_when_ready(call, &held, deadline, attempt);
        }
        let (slice, flags) = (iovec { iov_base: buf, iov_len: len }, flags & !libc::MSG_WAITALL);
        let result = if waits_for_all {
            let op = recv_op(fd, &slice, flags | libc::MSG_WAITALL);
            call.perform_until(op, deadline(call, &held, libc::SO_RCVTIMEO))
        } else if addr.is_null() {
            receive(call, &held, recv_op(fd, &slice, flags))
        } else {
            // SAFETY: by the contract.
            unsafe { receive_from(call, &held, slice, flags, addr, addr_len) }
        };
        // What fills its buffer is probably followed by more.
        note_empty(fd, result.is_none_or(|result| result < len as isize));
        Ok(result.unwrap_or_else(|| at_last(&held, attempt)))
    })
}

fn recv_op(fd: RawFd, slice: &iovec, flags: c_int) -> Op {
    let len = slice.iov_len.min(MAX_RW_BYTES) as u32;
    Op::recv(fd, slice.iov_base.cast(), len, flags)
}

/// Receives with the sender's address. `None` if the socket's timeout has passed.
///
/// # Safety
///
/// As for [`recvfrom`].
unsafe fn receive_from(
    call: Call,
    held: &Held,
    mut slice: iovec,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> Option<isize> {
    let mut message = header(&raw mut slice, 1);
    message.msg_name = addr.cast();
    // SAFETY: by the contract.
    message.msg_namelen = unsafe { *addr_len };
    let op = Op::recv_msg(held.number(), &raw mut message, flags);
    let result = receive(call, held, op);
    if result.is_some_and(|result| result >= 0) {
        // SAFETY: by the contract.
        unsafe { *addr_len = message.msg_namelen };
    }
    result
}

/// Repeats the attempt whenever the socket is readable.
fn receive_when_ready(
    call: Call,
    held: &Held,
    deadline: Option<Instant>,
    attempt: impl Fn(RawFd) -> isize,
) -> Result<isize, isize> {
    let mut backoff = Backoff::default();
    loop {
        let is_ready = held.ready(call, libc::POLLIN, deadline)?;
        match at_last(held, &attempt) {
            // Another caller was faster, or the event concerns the queue of errors.
            WOULD_WAIT if is_ready => call.pause(&mut backoff)?,
            result => return Ok(result),
        }
    }
}

/// The flags with which an op that waits for the whole buffer differs from the plain call: it peeks
/// at the same bytes again, and counts the bytes that it has left out as bytes that it has stored.
const UNLIKE_OPS: c_int = libc::MSG_PEEK | libc::MSG_TRUNC;

/// Whether a receive waits until the buffer is full. Sockets other than streams ignore the flag.
fn waits_for_all(fd: RawFd, flags: c_int) -> bool {
    flags & libc::MSG_WAITALL != 0 && sys::is_stream_socket(fd)
}

/// Receives from a stream until the buffer is full. `attempt` receives what has arrived after a
/// number of bytes. Peeked bytes stay, so no event reports more of them: the attempt is repeated
/// from time to time.
fn receive_all(
    call: Call,
    held: &Held,
    flags: c_int,
    len: usize,
    attempt: impl Fn(RawFd, usize) -> isize,
) -> isize {
    let peeks = flags & libc::MSG_PEEK != 0;
    let deadline = deadline(call, held, libc::SO_RCVTIMEO);
    let (mut done, mut backoff) = (0, Backoff::default());
    loop {
        let is_last = peeks && held.with(sys::is_shut_for_reading);
        let paused = match held.with(|fd| attempt(fd, if peeks { 0 } else { done })) {
            WOULD_WAIT if peeks && done > 0 => return done as isize,
            WOULD_WAIT => held.wait(call, libc::POLLIN, deadline, &mut backoff),
            code @ ..=0 => return or_done(done, code),
            count => {
                done = if peeks { count as usize } else { done + count as usize };
                let is_late = || deadline.is_some_and(|at| at <= call.now());
                if done >= len || is_last || peeks && is_late() {
                    return done as isize;
                }
                if peeks { call.pause(&mut backoff) } else { Ok(()) }
            }
        };
        if let Err(code) = paused {
            return or_done(done, code);
        }
    }
}

/// Receives what has arrived. A datagram socket that is shut down reports its end to a call that
/// may wait.
fn at_last(held: &Held, attempt: impl Fn(RawFd) -> isize) -> isize {
    held.with(|fd| match attempt(fd) {
        // The last bytes may have arrived since the attempt.
        WOULD_WAIT if sys::is_shut_for_reading(fd) => match attempt(fd) {
            WOULD_WAIT => 0,
            result => result,
        },
        result => result,
    })
}

/// # Safety
///
/// As libc's.
pub unsafe fn recvmsg(on: OnFiber, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    on.call(|call| {
        // SAFETY: by the contract.
        let attempt =
            |fd| unsafe { syscall!(SYS_recvmsg, fd, message, flags | libc::MSG_DONTWAIT) };
        if flags & AT_ONCE != 0 {
            return Ok(call.at_once(attempt(fd)));
        }
        call.admit()?;
        let waits_for_all = waits_for_all(fd, flags);
        if call.may_attempt() && !waits_for_all {
            let result = attempt(fd);
            if result != WOULD_WAIT {
                return Ok(result);
            }
        }
        if is_nonblocking(fd) {
            return Ok(attempt(fd));
        }
        let held = Held::new(fd);
        if waits_for_all && flags & libc::MSG_PEEK != 0 {
            // SAFETY: by the contract.
            unsafe {
                // Each attempt would receive the same descriptors again.
                if !(*message).msg_control.is_null() {
                    let deadline = deadline(call, &held, libc::SO_RCVTIMEO);
                    return receive_when_ready(call, &held, deadline, attempt);
                }
                let len = Slices::many((*message).msg_iov, (*message).msg_iovlen as c_int).len();
                return Ok(receive_all(call, &held, flags, len, |fd, _| attempt(fd)));
            }
        }
        let result = if waits_for_all {
            let op = Op::recv_msg(fd, message, flags);
            call.perform_until(op, deadline(call, &held, libc::SO_RCVTIMEO))
        } else {
            receive(call, &held, Op::recv_msg(fd, message, flags & !libc::MSG_WAITALL))
        };
        Ok(result.unwrap_or_else(|| at_last(&held, attempt)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn last_bytes_before_the_end_are_received() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let is_first = Cell::new(true);
        let attempt = |fd| {
            let mut buf = [0u8; 8];
            let flags = libc::MSG_DONTWAIT;
            // SAFETY: the buffer is borrowed for the call.
            let result = unsafe { syscall!(SYS_recvfrom, fd, buf.as_mut_ptr(), 8, flags, 0, 0) };
            if is_first.replace(false) {
                (&theirs).write_all(b"!").unwrap();
                theirs.shutdown(Shutdown::Write).unwrap();
            }
            result
        };
        assert_eq!(at_last(&Held::new(ours.as_raw_fd()), attempt), 1);
    }
}
