//! Calls on sockets.
//!
//! Each is attempted by the same call with `MSG_DONTWAIT`. Then the socket's modes decide, which a
//! driver does not know: `O_NONBLOCK`, and the timeouts `SO_RCVTIMEO` and `SO_SNDTIMEO`.

use super::call::{Call, OnFiber, Readiness};
use super::ready::duration;
use super::slices::Slices;
use crate::driver::{Op, nonblocking};
use crate::fiber::backoff::Backoff;
use crate::sys::{self, MAX_RW_BYTES, syscall};
use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

const WOULD_WAIT: isize = -(libc::EAGAIN as isize);
const BROKEN_PIPE: isize = -(libc::EPIPE as isize);
/// Calls that never wait.
/// `recvmmsg` waits for the first message only.
const MSG_WAITFORONE: c_int = 0x10000;
const AT_ONCE: c_int = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE | libc::MSG_OOB;

/// Whether the program has made a descriptor non-blocking.
pub(super) fn is_nonblocking(fd: RawFd) -> bool {
    sys::status_flags(fd) & libc::O_NONBLOCK != 0 && nonblocking::is_set_by_program(fd)
}

/// The end of a wait that begins now, by the socket's timeout.
fn deadline(call: Call, fd: RawFd, option: c_int) -> Option<Instant> {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as socklen_t;
    let level = libc::SOL_SOCKET;
    // SAFETY: the variables are borrowed for the call.
    let result =
        unsafe { syscall!(SYS_getsockopt, fd, level, option, &raw mut limit, &raw mut len) };
    let limit = Duration::new(limit.tv_sec as u64, limit.tv_usec as u32 * 1000);
    if result != 0 || limit.is_zero() { None } else { call.now().checked_add(limit) }
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
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        // SAFETY: by the contract.
        let attempt = || unsafe {
            syscall!(SYS_recvfrom, fd, buf, len, flags | libc::MSG_DONTWAIT, addr, addr_len)
        };
        let waits_for_all = flags & libc::MSG_WAITALL != 0 && addr.is_null();
        if call.may_attempt() && !waits_for_all || flags & AT_ONCE != 0 {
            let result = attempt();
            if result != WOULD_WAIT || flags & AT_ONCE != 0 {
                return result;
            }
        }
        if is_nonblocking(fd) {
            return attempt();
        }
        let deadline = deadline(call, fd, libc::SO_RCVTIMEO);
        if !addr.is_null() || len == 0 {
            return receive_when_ready(call, fd, deadline, attempt);
        }
        let len = len.min(MAX_RW_BYTES) as u32;
        let op = Op::Recv { fd, buf: buf.cast(), len, flags };
        call.perform_until(op, deadline).unwrap_or_else(|| at_last(fd, attempt))
    })
}

/// Repeats the attempt whenever the socket is readable.
fn receive_when_ready(
    call: Call,
    fd: RawFd,
    deadline: Option<Instant>,
    attempt: impl Fn() -> isize,
) -> isize {
    loop {
        match call.ready(fd, libc::POLLIN, deadline) {
            Readiness::Failed(code) => return code,
            Readiness::TimedOut => return at_last(fd, attempt),
            Readiness::Ready => match at_last(fd, &attempt) {
                WOULD_WAIT => {}
                result => return result,
            },
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
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        // SAFETY: by the contract.
        let attempt = || unsafe { syscall!(SYS_recvmsg, fd, message, flags | libc::MSG_DONTWAIT) };
        let waits_for_all = flags & libc::MSG_WAITALL != 0;
        if call.may_attempt() && !waits_for_all || flags & AT_ONCE != 0 {
            let result = attempt();
            if result != WOULD_WAIT || flags & AT_ONCE != 0 {
                return result;
            }
        }
        if is_nonblocking(fd) {
            return attempt();
        }
        let deadline = deadline(call, fd, libc::SO_RCVTIMEO);
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
        let outgoing = Outgoing { call, fd, flags, len: || len };
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
        Outgoing { call, fd, flags, len }.send(attempt, |done, deadline| {
            let flags = flags | libc::MSG_WAITALL;
            let send =
                &mut |message| call.perform_until(Op::SendMsg { fd, message, flags }, deadline);
            rest_of(done, send)
        })
    })
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
}

impl<L: Fn() -> usize> Outgoing<L> {
    /// Sends. `attempt` sends without waiting what follows a number of bytes, and `wait` waits.
    fn send(
        &self,
        attempt: impl Fn(usize) -> isize,
        wait: impl Fn(usize, Option<Instant>) -> Option<isize>,
    ) -> isize {
        let Outgoing { call, fd, flags, .. } = *self;
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        let mut done = 0;
        if call.may_attempt() || flags & AT_ONCE != 0 {
            let result = attempt(0);
            let is_all = result >= 0 && result as usize >= (self.len)();
            if is_all || flags & AT_ONCE != 0 || result < 0 && result != WOULD_WAIT {
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
    let option = if write { libc::SO_SNDTIMEO } else { libc::SO_RCVTIMEO };
    let deadline = deadline(call, fd, option);
    let (first, count) = slices.parts();
    let mut message = header(first.cast_mut(), count);
    let flags = if write { libc::MSG_WAITALL } else { 0 };
    let op = match write {
        true => Op::SendMsg { fd, message: &raw const message, flags },
        false => Op::RecvMsg { fd, message: &raw mut message, flags },
    };
    call.perform_until(op, deadline).unwrap_or(WOULD_WAIT)
}

/// # Safety
///
/// As libc's.
pub unsafe fn accept4(
    on: OnFiber,
    fd: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let result = on.call(|call| {
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        let is_odd = flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0;
        if is_odd || is_nonblocking(fd) {
            // The flags are refused, or the call does not wait.
            if !call.worker().is_simulated() {
                call.worker().spend(call.fiber());
            }
            // SAFETY: by the contract.
            return unsafe { syscall!(SYS_accept4, fd, addr, addr_len, flags) };
        }
        let deadline = deadline(call, fd, libc::SO_RCVTIMEO);
        let op = Op::Accept { fd, addr: addr.cast(), addr_len };
        let result = call.perform_until(op, deadline).unwrap_or(WOULD_WAIT);
        if result >= 0 {
            set_flags(result as RawFd, flags);
        }
        result
    });
    result as c_int
}

/// Gives a new descriptor, which closes on `exec` and blocks, the flags of `accept4`.
fn set_flags(fd: RawFd, flags: c_int) {
    if flags & libc::SOCK_CLOEXEC == 0 {
        // SAFETY: no pointers.
        unsafe { syscall!(SYS_fcntl, fd, libc::F_SETFD, 0) };
    }
    if flags & libc::SOCK_NONBLOCK != 0 {
        sys::make_nonblocking(fd, true);
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn connect(on: OnFiber, fd: c_int, addr: *const sockaddr, addr_len: socklen_t) -> c_int {
    let result = on.call(|call| {
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
        let is_odd = addr.is_null() || addr_len as usize > size_of_val(&storage);
        if is_odd || is_nonblocking(fd) {
            // The address is refused, or the call does not wait.
            // SAFETY: by the contract.
            return unsafe { syscall!(SYS_connect, fd, addr, addr_len) };
        }
        // An op refers to a whole structure, of which the caller's may be a part.
        // SAFETY: by the contract, the caller's address has this length.
        unsafe {
            let bytes = addr_len as usize;
            addr.cast::<u8>().copy_to_nonoverlapping(storage.as_mut_ptr().cast(), bytes);
        }
        connect_blocking(call, fd, &storage, addr_len)
    });
    result as c_int
}

fn connect_blocking(
    call: Call,
    fd: RawFd,
    storage: &MaybeUninit<libc::sockaddr_storage>,
    addr_len: socklen_t,
) -> isize {
    let deadline = deadline(call, fd, libc::SO_SNDTIMEO);
    let op = Op::Connect { fd, addr: storage.as_ptr(), addr_len };
    let mut backoff = Backoff::default();
    loop {
        match call.perform_until(op, deadline) {
            None => return -(libc::EINPROGRESS as isize),
            // The queue of a Unix listener is full; no event reports room.
            Some(WOULD_WAIT) if deadline.is_none_or(|at| call.now() < at) => {
                if let Err(e) = backoff.pause(call.worker(), call.fiber()) {
                    return call.code(&e);
                }
            }
            Some(result) => return result,
        }
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn recvmmsg(
    on: OnFiber,
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let result = on.call(|call| {
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        // SAFETY: by the contract.
        let limit = match unsafe { duration(timeout) } {
            Ok(limit) => limit,
            Err(code) => return code,
        };
        let timed = limit.and_then(|limit| call.now().checked_add(limit));
        let is_one_enough = flags & MSG_WAITFORONE != 0;
        let flags = flags & !MSG_WAITFORONE;
        // SAFETY: by the contract, of any part of the array.
        let attempt = |done: usize| unsafe {
            let (rest, flags) = (messages.wrapping_add(done), flags | libc::MSG_DONTWAIT);
            let null = std::ptr::null_mut::<timespec>();
            syscall!(SYS_recvmmsg, fd, rest, count as usize - done, flags, null)
        };
        let waits = flags & AT_ONCE == 0 && !is_nonblocking(fd);
        let each = || [deadline(call, fd, libc::SO_RCVTIMEO), timed].into_iter().flatten().min();
        many(call, fd, libc::POLLIN, count as usize, waits, each, |done| match attempt(done) {
            WOULD_WAIT
                if done > 0 && (is_one_enough || timed.is_some_and(|at| at <= call.now())) =>
            {
                Attempted::Enough
            }
            result => Attempted::Result(result),
        })
    });
    result as c_int
}

/// # Safety
///
/// As libc's.
pub unsafe fn sendmmsg(
    on: OnFiber,
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let result = on.call(|call| {
        if let Some(refusal) = call.refusal() {
            return refusal;
        }
        // SAFETY: by the contract, of any part of the array.
        let attempt = |done: usize| unsafe {
            let (rest, flags) = (messages.wrapping_add(done), flags | libc::MSG_DONTWAIT);
            syscall!(SYS_sendmmsg, fd, rest, count as usize - done, flags)
        };
        let waits = flags & AT_ONCE == 0 && !is_nonblocking(fd);
        let each = || deadline(call, fd, libc::SO_SNDTIMEO);
        let attempt = |done| Attempted::Result(attempt(done));
        many(call, fd, libc::POLLOUT, count as usize, waits, each, attempt)
    });
    result as c_int
}

/// What an attempt at several messages has done.
enum Attempted {
    /// A number of messages, or an error.
    Result(isize),
    Enough,
}

/// Transfers several messages, and waits before each that would.
fn many(
    call: Call,
    fd: RawFd,
    events: i16,
    count: usize,
    waits: bool,
    deadline: impl Fn() -> Option<Instant>,
    attempt: impl Fn(usize) -> Attempted,
) -> isize {
    call.may_attempt();
    let mut done = 0;
    loop {
        let or_done = |code| if done > 0 { done as isize } else { code };
        match attempt(done) {
            Attempted::Enough => return done as isize,
            Attempted::Result(WOULD_WAIT) if waits => match call.ready(fd, events, deadline()) {
                Readiness::Ready => {}
                Readiness::TimedOut => return or_done(WOULD_WAIT),
                Readiness::Failed(code) => return or_done(code),
            },
            Attempted::Result(code @ ..=0) => return or_done(code),
            Attempted::Result(number) => {
                done += number as usize;
                if done >= count || !waits {
                    return done as isize;
                }
            }
        }
    }
}
