//! Several messages by one call.

use super::call::{Call, OnFiber, WOULD_WAIT, or_done};
use super::held::Held;
use super::ready::duration;
use super::sockets::{AT_ONCE, deadline, is_nonblocking};
use cringle_std::internal::Backoff;
use cringle_sys::syscall;
use libc::{mmsghdr, timespec};
use std::ffi::{c_int, c_uint};
use std::os::fd::RawFd;
use std::time::Instant;

/// `recvmmsg` waits for the first message only.
const MSG_WAITFORONE: c_int = 0x10000;

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
    on.call_int(|call| {
        call.admit()?;
        // SAFETY: by the contract.
        let limit = unsafe { duration(timeout)? };
        let timed = limit.and_then(|limit| call.now().checked_add(limit));
        let is_one_enough = flags & MSG_WAITFORONE != 0;
        let flags = flags & !MSG_WAITFORONE;
        // SAFETY: by the contract, of any part of the array.
        let attempt = |fd, done: usize| unsafe {
            let (rest, flags) = (messages.wrapping_add(done), flags | libc::MSG_DONTWAIT);
            let null = std::ptr::null_mut::<timespec>();
            syscall!(SYS_recvmmsg, fd, rest, count as usize - done, flags, null)
        };
        let waits = flags & AT_ONCE == 0 && !is_nonblocking(fd);
        let each = |held: &Held| {
            [deadline(call, held, libc::SO_RCVTIMEO), timed].into_iter().flatten().min()
        };
        let attempt = |fd, done| match attempt(fd, done) {
            WOULD_WAIT
                if done > 0 && (is_one_enough || timed.is_some_and(|at| at <= call.now())) =>
            {
                Attempted::Enough
            }
            result => Attempted::Result(result),
        };
        Ok(many(call, fd, libc::POLLIN, count as usize, waits, each, attempt))
    })
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
    on.call_int(|call| {
        call.admit()?;
        // SAFETY: by the contract, of any part of the array.
        let attempt = |fd, done: usize| unsafe {
            let (rest, flags) = (messages.wrapping_add(done), flags | libc::MSG_DONTWAIT);
            syscall!(SYS_sendmmsg, fd, rest, count as usize - done, flags)
        };
        let waits = flags & AT_ONCE == 0 && !is_nonblocking(fd);
        let each = |held: &Held| deadline(call, held, libc::SO_SNDTIMEO);
        let attempt = |fd, done| Attempted::Result(attempt(fd, done));
        Ok(many(call, fd, libc::POLLOUT, count as usize, waits, each, attempt))
    })
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
    deadline: impl Fn(&Held) -> Option<Instant>,
    attempt: impl Fn(RawFd, usize) -> Attempted,
) -> isize {
    call.may_attempt();
    // Each message has the socket's whole timeout.
    let (mut done, mut until, mut backoff) = (0, None, Backoff::default());
    // A call that does not wait may be a signal handler's, which takes no lock.
    let held = waits.then(|| Held::new(fd));
    loop {
        let result = match &held {
            Some(held) => held.with(|fd| attempt(fd, done)),
            None => attempt(fd, done),
        };
        match (result, &held) {
            (Attempted::Enough, _) => return done as isize,
            (Attempted::Result(WOULD_WAIT), Some(held)) => {
                let until = *until.get_or_insert_with(|| deadline(held));
                if let Err(code) = held.wait(call, events, until, &mut backoff) {
                    return or_done(done, code);
                }
            }
            (Attempted::Result(code @ ..=0), _) => return or_done(done, code),
            (Attempted::Result(number), _) => {
                done += number as usize;
                (until, backoff) = (None, Backoff::default());
                if done >= count || !waits {
                    return done as isize;
                }
            }
        }
    }
}
