//! Calls on sockets.
//!
//! Each is attempted by the same call with `MSG_DONTWAIT`. Then the socket's modes decide, which a
//! driver does not know: `O_NONBLOCK`, and the timeouts `SO_RCVTIMEO` and `SO_SNDTIMEO`.

use super::call::{Call, OnFiber, Readiness};
use super::slices::Slices;
use crate::driver::{Op, nonblocking};
use crate::fiber::backoff::Backoff;
use crate::sys::{self, MAX_RW_BYTES, syscall};
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const WOULD_WAIT: isize = -(libc::EAGAIN as isize);
const BROKEN_PIPE: isize = -(libc::EPIPE as isize);
/// Shorter than any timeout of a socket: the kernel rounds them up to its ticks.
const SHORT: Duration = Duration::from_micros(500);
/// Calls that never wait.
pub(super) const AT_ONCE: c_int = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// Whether the program has made a descriptor non-blocking.
pub(super) fn is_nonblocking(fd: RawFd) -> bool {
    sys::status_flags(fd) & libc::O_NONBLOCK != 0 && nonblocking::is_set_by_program(fd)
}

/// The end of a wait that begins now, by the socket's timeout.
pub(super) fn deadline(call: Call, fd: RawFd, option: c_int) -> Option<Instant> {
    call.now().checked_add(timeout(fd, option)?)
}

/// Performs a receive. Its timeout is looked up only if nothing arrives within [`SHORT`]: the
/// lookup would cost a system call for each wait.
fn receive(call: Call, fd: RawFd, op: Op) -> Option<isize> {
    let begun = call.now();
    let deadline = || timeout(fd, libc::SO_RCVTIMEO).and_then(|limit| begun.checked_add(limit));
    call.perform_reviewed(op, begun + SHORT, &deadline)
}

/// Returns a socket's timeout.
fn timeout(fd: RawFd, option: c_int) -> Option<Duration> {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as socklen_t;
    let level = libc::SOL_SOCKET;
    // SAFETY: the variables are borrowed for the call.
    let result =
        unsafe { syscall!(SYS_getsockopt, fd, level, option, &raw mut limit, &raw mut len) };
    let limit = Duration::new(limit.tv_sec as u64, limit.tv_usec as u32 * 1000);
    (result == 0 && !limit.is_zero()).then_some(limit)
}

/// Descriptors on which the last attempt to receive had to wait, by their number. The next attempt
/// is left out then. A wrong answer costs a system call, and changes no result.
static EMPTY: [AtomicBool; 4096] = [const { AtomicBool::new(false) }; 4096];

fn is_probably_empty(fd: RawFd) -> bool {
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
        let attempt = || unsafe {
            syscall!(SYS_recvfrom, fd, buf, len, flags | libc::MSG_DONTWAIT, addr, addr_len)
        };
        if flags & AT_ONCE != 0 {
            return call.at_once(attempt());
        }
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        let waits_for_all = waits_for_all(fd, flags) && len > 0;
        if call.may_attempt() && !waits_for_all && !is_probably_empty(fd) {
            let result = attempt();
            if result != WOULD_WAIT {
                return result;
            }
            note_empty(fd, true);
        }
        if is_nonblocking(fd) {
            return attempt();
        }
        if waits_for_all && (!addr.is_null() || flags & UNLIKE_OPS != 0) {
            // SAFETY: by the contract, of any part of the buffer.
            let attempt = |done: usize| unsafe {
                let (rest, flags) = (buf.wrapping_byte_add(done), flags | libc::MSG_DONTWAIT);
                syscall!(SYS_recvfrom, fd, rest, len - done, flags, addr, addr_len)
            };
            return receive_all(call, fd, flags, len, attempt);
        }
        if !addr.is_null() || len == 0 {
            let deadline = deadline(call, fd, libc::SO_RCVTIMEO);
            return receive_when_ready(call, fd, deadline, attempt);
        }
        let len = len.min(MAX_RW_BYTES) as u32;
        let flags = if waits_for_all { flags } else { flags & !libc::MSG_WAITALL };
        let op = Op::Recv { fd, buf: buf.cast(), len, flags };
        let result = if waits_for_all {
            call.perform_until(op, deadline(call, fd, libc::SO_RCVTIMEO))
        } else {
            receive(call, fd, op)
        };
        // What fills its buffer is probably followed by more.
        note_empty(fd, result.is_none_or(|result| result < len as isize));
        result.unwrap_or_else(|| at_last(fd, attempt))
    })
}

/// Repeats the attempt whenever the socket is readable.
fn receive_when_ready(
    call: Call,
    fd: RawFd,
    deadline: Option<Instant>,
    attempt: impl Fn() -> isize,
) -> isize {
    let mut backoff = Backoff::default();
    loop {
        match call.ready(fd, libc::POLLIN, deadline) {
            Readiness::Failed(code) => return code,
            Readiness::TimedOut => return at_last(fd, attempt),
            Readiness::Ready => match at_last(fd, &attempt) {
                // Another caller was faster, or the event concerns the queue of errors.
                WOULD_WAIT => {
                    if let Err(code) = call.pause(&mut backoff) {
                        return code;
                    }
                }
                result => return result,
            },
        }
    }
}

/// What an op that waits for the whole buffer does otherwise than the plain call: it peeks at the
/// same bytes again, and takes the length of what it has left out for that of what it has stored.
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
    fd: RawFd,
    flags: c_int,
    len: usize,
    attempt: impl Fn(usize) -> isize,
) -> isize {
    let peeks = flags & libc::MSG_PEEK != 0;
    let deadline = deadline(call, fd, libc::SO_RCVTIMEO);
    let (mut done, mut backoff) = (0, Backoff::default());
    loop {
        let or_done = |code| if done > 0 { done as isize } else { code };
        let is_last = peeks && sys::is_shut_for_reading(fd);
        match attempt(if peeks { 0 } else { done }) {
            WOULD_WAIT if peeks && done > 0 => return done as isize,
            WOULD_WAIT => match call.ready(fd, libc::POLLIN, deadline) {
                Readiness::Failed(code) => return or_done(code),
                Readiness::TimedOut => return or_done(WOULD_WAIT),
                Readiness::Ready => {}
            },
            code @ ..=0 => return or_done(code),
            count => {
                done = if peeks { count as usize } else { done + count as usize };
                let is_late = || deadline.is_some_and(|at| at <= call.now());
                if done >= len || is_last || peeks && is_late() {
                    return done as isize;
                }
                if !peeks {
                    continue;
                }
            }
        }
        if let Err(code) = call.pause(&mut backoff) {
            return if done > 0 { done as isize } else { code };
        }
    }
}

/// Receives what has arrived. A datagram socket that is shut down reports its end to a call that
/// may wait.
fn at_last(fd: RawFd, attempt: impl Fn() -> isize) -> isize {
    match attempt() {
        WOULD_WAIT if sys::is_shut_for_reading(fd) => 0,
        result => result,
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn recvmsg(on: OnFiber, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    on.call(|call| {
        // SAFETY: by the contract.
        let attempt = || unsafe { syscall!(SYS_recvmsg, fd, message, flags | libc::MSG_DONTWAIT) };
        if flags & AT_ONCE != 0 {
            return call.at_once(attempt());
        }
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        let waits_for_all = waits_for_all(fd, flags);
        if call.may_attempt() && !waits_for_all {
            let result = attempt();
            if result != WOULD_WAIT {
                return result;
            }
        }
        if is_nonblocking(fd) {
            return attempt();
        }
        let deadline = deadline(call, fd, libc::SO_RCVTIMEO);
        if waits_for_all && flags & libc::MSG_PEEK != 0 {
            // SAFETY: by the contract.
            unsafe {
                // Each attempt would receive the same descriptors again.
                if !(*message).msg_control.is_null() {
                    return receive_when_ready(call, fd, deadline, attempt);
                }
                let len = Slices::many((*message).msg_iov, (*message).msg_iovlen as c_int).len();
                return receive_all(call, fd, flags, len, |_| attempt());
            }
        }
        if waits_for_all {
            let op = Op::RecvMsg { fd, message, flags };
            return call.perform_until(op, deadline).unwrap_or_else(|| at_last(fd, attempt));
        }
        receive_when_ready(call, fd, deadline, attempt)
    })
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
        let send = |done: usize| unsafe {
            let (rest, flags) = (buf.wrapping_byte_add(done), flags | libc::MSG_DONTWAIT);
            syscall!(SYS_sendto, fd, rest, len - done, flags, addr, addr_len)
        };
        let rest_op = |done: usize| {
            let (buf, len) = (buf.cast::<u8>().wrapping_add(done), len - done);
            let flags = flags | libc::MSG_WAITALL;
            Op::Send { fd, buf, len: len.min(MAX_RW_BYTES) as u32, flags }
        };
        let outgoing = Outgoing { call, fd, flags, len: || len, first: 0 };
        if addr.is_null() {
            return outgoing
                .send(send, |done, deadline| call.perform_until(rest_op(done), deadline));
        }
        outgoing.send(send, |done, deadline| {
            let base = buf.wrapping_byte_add(done).cast_mut();
            let mut slice = iovec { iov_base: base, iov_len: len - done };
            let mut message = header(&raw mut slice, 1);
            (message.msg_name, message.msg_namelen) = (addr.cast_mut().cast(), addr_len);
            let message = &raw const message;
            call.perform_until(Op::SendMsg { fd, message, flags }, deadline)
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
            _ => match unsafe { open_fast(call, fd, message, flags) } {
                Err(result) => return result,
                Ok(first) => (flags & !libc::MSG_FASTOPEN, first),
            },
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
        let attempt = |done| {
            let flags = flags | libc::MSG_DONTWAIT;
            // SAFETY: by the contract.
            let send = &mut |message| unsafe { Some(syscall!(SYS_sendmsg, fd, message, flags)) };
            rest_of(done, send).unwrap_or(WOULD_WAIT)
        };
        Outgoing { call, fd, flags, len, first }.send(attempt, |done, deadline| {
            let flags = flags | libc::MSG_WAITALL;
            let send =
                &mut |message| call.perform_until(Op::SendMsg { fd, message, flags }, deadline);
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
    if let Some(refusal) = call.refusal() {
        return Err(refusal);
    }
    // SAFETY: by the contract.
    let attempt = unsafe { syscall!(SYS_sendmsg, fd, message, flags | libc::MSG_DONTWAIT) };
    if flags & AT_ONCE != 0 || is_nonblocking(fd) || attempt < 0 && attempt != IN_PROGRESS {
        return Err(attempt);
    }
    match call.ready(fd, libc::POLLOUT, deadline(call, fd, libc::SO_SNDTIMEO)) {
        Readiness::Ready => {}
        _ if attempt > 0 => return Err(attempt),
        Readiness::TimedOut => return Err(IN_PROGRESS),
        Readiness::Failed(code) => return Err(code),
    }
    // SAFETY: by the contract; the kernel has read the address. The connection is made or has
    // failed, so the call does not wait.
    match unsafe { syscall!(SYS_connect, fd, (*message).msg_name, (*message).msg_namelen) } {
        0 | IS_CONNECTED => {}
        _ if attempt > 0 => return Err(attempt),
        code => return Err(code),
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
fn header(slices: *mut iovec, count: usize) -> msghdr {
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
        attempt: impl Fn(usize) -> isize,
        wait: impl Fn(usize, Option<Instant>) -> Option<isize>,
    ) -> isize {
        let Outgoing { call, fd, flags, .. } = *self;
        if flags & AT_ONCE != 0 {
            return call.at_once(attempt(0));
        }
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        let mut done = self.first;
        if done == 0 && call.may_attempt_write(fd) {
            let result = attempt(0);
            let is_all = result >= 0 && result as usize >= (self.len)();
            if is_all || result < 0 && result != WOULD_WAIT {
                return result;
            }
            done = result.max(0) as usize;
        }
        if is_nonblocking(fd) {
            return if done > 0 { done as isize } else { attempt(0) };
        }
        let deadline = deadline(call, fd, libc::SO_SNDTIMEO);
        loop {
            match wait(done, deadline) {
                // The bytes that were sent. The next call reports the error.
                None | Some(..=-1) if done > 0 => return done as isize,
                None => return WOULD_WAIT,
                // A driver raises no `SIGPIPE`; the plain call does.
                Some(BROKEN_PIPE) if flags & libc::MSG_NOSIGNAL == 0 => return attempt(0),
                Some(code @ ..=-1) => return code,
                Some(count) => done += count as usize,
            }
            if done >= (self.len)() || !sys::is_stream_socket(fd) {
                return done as isize;
            }
        }
    }
}

/// A `read` or a `write` of a socket, whose attempt would wait.
///
/// # Safety
///
/// The slices are those of the interposed call, and the kernel has accepted them.
pub(super) unsafe fn transfer(call: Call, fd: RawFd, slices: &Slices, write: bool) -> isize {
    if is_nonblocking(fd) {
        return WOULD_WAIT;
    }
    let (first, count) = slices.parts();
    let mut message = header(first.cast_mut(), count);
    let result = if write {
        let op = Op::SendMsg { fd, message: &raw const message, flags: libc::MSG_WAITALL };
        call.perform_until(op, deadline(call, fd, libc::SO_SNDTIMEO))
    } else {
        receive(call, fd, Op::RecvMsg { fd, message: &raw mut message, flags: 0 })
    };
    result.unwrap_or(WOULD_WAIT)
}
