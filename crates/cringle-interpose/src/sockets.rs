//! Calls on sockets, but for the calls that [receive](super::receives).
//!
//! Each is attempted by the same call with `MSG_DONTWAIT`. Then the socket's modes decide, which a
//! driver does not know: `O_NONBLOCK`, and the timeouts `SO_RCVTIMEO` and `SO_SNDTIMEO`.

use super::call::{BROKEN_PIPE, Call, OnFiber, WOULD_WAIT};
use super::held::Held;
use super::receives::receive;
use super::slices::Slices;
use cringle_driver::{Op, nonblocking};
use cringle_sys::{self as sys, MAX_RW_BYTES, syscall};
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Calls that never wait.
pub(super) const AT_ONCE: c_int = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// Whether the program has made a descriptor non-blocking.
pub(super) fn is_nonblocking(fd: RawFd) -> bool {
    sys::status_flags(fd) & libc::O_NONBLOCK != 0 && nonblocking::is_set_by_program(fd)
}

/// The end of a wait that begins now, by the socket's timeout.
pub(super) fn deadline(call: Call, held: &Held, option: c_int) -> Option<Instant> {
    call.now().checked_add(held.with(|fd| timeout(fd, option))?)
}

/// Returns a socket's timeout.
pub(super) fn timeout(fd: RawFd, option: c_int) -> Option<Duration> {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as socklen_t;
    let level = libc::SOL_SOCKET;
    // SAFETY: the variables are borrowed for the call.
    let result =
        unsafe { syscall!(SYS_getsockopt, fd, level, option, &raw mut limit, &raw mut len) };
    let limit = Duration::new(limit.tv_sec as u64, limit.tv_usec as u32 * 1000);
    (result == 0 && !limit.is_zero()).then_some(limit)
}

/// # Safety
///
/// As libc's.
pub unsafe fn sendto(
    on: OnFiber,
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    if flags & libc::MSG_FASTOPEN != 0 && flags & AT_ONCE == 0 && !addr.is_null() {
        let mut slice = iovec { iov_base: buf.cast_mut(), iov_len: len };
        let mut message = header(&raw mut slice, 1);
        (message.msg_name, message.msg_namelen) = (addr.cast_mut().cast(), addr_len);
        // SAFETY: by the contract.
        return unsafe { sendmsg(on, fd, &raw const message, flags) };
    }
    on.call(|call| {
        // SAFETY: by the contract, of any part of the buffer.
        let send = |fd, done: usize| unsafe {
            let (rest, flags) = (buf.wrapping_byte_add(done), flags | libc::MSG_DONTWAIT);
            syscall!(SYS_sendto, fd, rest, len - done, flags, addr, addr_len)
        };
        let rest_op = |fd, done: usize| {
            let (buf, len) = (buf.cast::<u8>().wrapping_add(done), len - done);
            let flags = flags | libc::MSG_WAITALL;
            Op::send(fd, buf, len.min(MAX_RW_BYTES) as u32, flags)
        };
        let outgoing = Outgoing { call, fd, flags, len: || len, first: 0 };
        if addr.is_null() {
            return outgoing
                .send(send, |fd, done, deadline| call.perform_until(rest_op(fd, done), deadline));
        }
        outgoing.send(send, |fd, done, deadline| {
            let base = buf.wrapping_byte_add(done).cast_mut();
            let mut slice = iovec { iov_base: base, iov_len: len - done };
            let mut message = header(&raw mut slice, 1);
            (message.msg_name, message.msg_namelen) = (addr.cast_mut().cast(), addr_len);
            let message = &raw const message;
            call.perform_until(Op::send_msg(fd, message, flags), deadline)
        })
    })
}

/// # Safety
///
/// As libc's.
pub unsafe fn sendmsg(on: OnFiber, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: by the contract. It is called once the kernel has accepted the header.
    let slices = || unsafe { Slices::many((*message).msg_iov, (*message).msg_iovlen as c_int) };
    // SAFETY: as above.
    let len = || unsafe { slices().len() };
    on.call(|call| {
        let (flags, first) = match flags & libc::MSG_FASTOPEN {
            0 => (flags, 0),
            // Other sockets ignore the flag.
            _ if !sys::is_stream_socket(fd) => (flags, 0),
            // SAFETY: by the contract.
            _ => (flags & !libc::MSG_FASTOPEN, unsafe { open_fast(call, fd, message, flags)? }),
        };
        // The control messages go with the first bytes.
        let rest_of = |done: usize, send: &mut dyn FnMut(*const msghdr) -> Option<isize>| {
            if done == 0 {
                return send(message);
            }
            let mut rest = slices();
            // SAFETY: the contract of `advance`: the kernel has sent these bytes.
            unsafe { rest.advance(done) };
            let (first, count) = rest.parts();
            let message = header(first.cast_mut(), count);
            send(&raw const message)
        };
        let attempt = |fd, done| {
            let flags = flags | libc::MSG_DONTWAIT;
            // SAFETY: by the contract.
            let send = &mut |message| unsafe { Some(syscall!(SYS_sendmsg, fd, message, flags)) };
            rest_of(done, send).unwrap_or(WOULD_WAIT)
        };
        Outgoing { call, fd, flags, len, first }.send(attempt, |fd, done, deadline| {
            let flags = flags | libc::MSG_WAITALL;
            let send =
                &mut |message| call.perform_until(Op::send_msg(fd, message, flags), deadline);
            rest_of(done, send)
        })
    })
}

/// Begins a connection by its first bytes, and waits until it is made. Returns the bytes that were
/// sent with its first packet; the rest is sent without the flag. The error is the call's result.
///
/// # Safety
///
/// As `sendmsg`'s.
unsafe fn open_fast(
    call: Call,
    fd: RawFd,
    message: *const msghdr,
    flags: c_int,
) -> Result<usize, isize> {
    const IN_PROGRESS: isize = -(libc::EINPROGRESS as isize);
    const IS_CONNECTED: isize = -(libc::EISCONN as isize);
    call.admit()?;
    // SAFETY: by the contract.
    let attempt = unsafe { syscall!(SYS_sendmsg, fd, message, flags | libc::MSG_DONTWAIT) };
    if flags & AT_ONCE != 0 || is_nonblocking(fd) || attempt < 0 && attempt != IN_PROGRESS {
        return Err(attempt);
    }
    let held = Held::new(fd);
    let opened = |code| if attempt > 0 { attempt } else { code };
    let deadline = deadline(call, &held, libc::SO_SNDTIMEO);
    if !held.ready(call, libc::POLLOUT, deadline).map_err(opened)? {
        return Err(opened(IN_PROGRESS));
    }
    // SAFETY: by the contract; the kernel has read the address. The connection is made or has
    // failed, so the call does not wait.
    match held.with(|fd| unsafe {
        syscall!(SYS_connect, fd, (*message).msg_name, (*message).msg_namelen)
    }) {
        0 | IS_CONNECTED => {}
        code => return Err(opened(code)),
    }
    // SAFETY: by the contract; the kernel has accepted the buffers.
    let len = unsafe { Slices::many((*message).msg_iov, (*message).msg_iovlen as c_int).len() };
    match attempt {
        // An empty message connects.
        _ if len == 0 || attempt >= len as isize => Err(attempt.max(0)),
        _ => Ok(attempt.max(0) as usize),
    }
}

/// Returns a message header with these slices and nothing else.
pub(super) fn header(slices: *mut iovec, count: usize) -> msghdr {
    // SAFETY: the contract of `assume_init`: all-zero integers and pointers are valid.
    let mut message: msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = slices;
    // The field's type differs between C libraries.
    message.msg_iovlen = count as _;
    message
}

/// A message, or a part of a stream, on its way out.
struct Outgoing<L> {
    call: Call,
    fd: RawFd,
    flags: c_int,
    /// The number of bytes, once the kernel has accepted the buffers.
    len: L,
    /// The bytes that are sent already.
    first: usize,
}

impl<L: Fn() -> usize> Outgoing<L> {
    /// Sends. `attempt` sends without waiting what follows a number of bytes, and `wait` waits.
    fn send(
        &self,
        attempt: impl Fn(RawFd, usize) -> isize,
        wait: impl Fn(RawFd, usize, Option<Instant>) -> Option<isize>,
    ) -> Result<isize, isize> {
        let Outgoing { call, fd, flags, .. } = *self;
        if flags & AT_ONCE != 0 {
            return Ok(call.at_once(attempt(fd, 0)));
        }
        call.admit()?;
        let mut done = self.first;
        if done == 0 && call.may_attempt_send(fd) {
            let result = attempt(fd, 0);
            let is_all = result >= 0 && result as usize >= (self.len)();
            if is_all || result < 0 && result != WOULD_WAIT {
                return Ok(result);
            }
            done = result.max(0) as usize;
        }
        if is_nonblocking(fd) {
            return Ok(if done > 0 { done as isize } else { attempt(fd, 0) });
        }
        let held = Held::new(fd);
        let deadline = deadline(call, &held, libc::SO_SNDTIMEO);
        loop {
            match wait(held.number(), done, deadline) {
                // The bytes that were sent. The next call reports the error.
                None | Some(..=-1) if done > 0 => return Ok(done as isize),
                None => return Err(WOULD_WAIT),
                // A driver raises no `SIGPIPE`; the plain call does.
                Some(BROKEN_PIPE) if flags & libc::MSG_NOSIGNAL == 0 => {
                    return Ok(held.with(|fd| attempt(fd, 0)));
                }
                Some(code @ ..=-1) => return Err(code),
                Some(count) => done += count as usize,
            }
            if done >= (self.len)() || !held.with(sys::is_stream_socket) {
                return Ok(done as isize);
            }
        }
    }
}

/// A `read` or a `write` of a socket, whose attempt would wait.
///
/// # Safety
///
/// The slices come from the interposed call, and the kernel has accepted them.
pub(super) unsafe fn transfer(call: Call, fd: RawFd, slices: &Slices, write: bool) -> isize {
    if is_nonblocking(fd) {
        return WOULD_WAIT;
    }
    let (first, count) = slices.parts();
    let mut message = header(first.cast_mut(), count);
    let held = Held::new(fd);
    let result = if write {
        let op = Op::send_msg(fd, &raw const message, libc::MSG_WAITALL);
        call.perform_until(op, deadline(call, &held, libc::SO_SNDTIMEO))
    } else {
        receive(call, &held, Op::recv_msg(fd, &raw mut message, 0))
    };
    result.unwrap_or(WOULD_WAIT)
}
