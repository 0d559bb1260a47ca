//! Accepting and making connections.

use super::call::{Call, OnFiber, WOULD_WAIT};
use super::held::Held;
use super::sockets::{deadline, is_nonblocking};
use cringle_driver::Op;
use cringle_std::internal::Backoff;
use cringle_sys::{self as sys, syscall};
use libc::{sockaddr, socklen_t};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

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
    on.call_int(|call| {
        call.admit()?;
        let is_odd = flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0;
        if is_odd || is_nonblocking(fd) {
            // The flags are refused, or the call does not wait.
            call.current.spend();
            // SAFETY: by the contract.
            return Ok(unsafe { syscall!(SYS_accept4, fd, addr, addr_len, flags) });
        }
        let deadline = deadline(call, &Held::new(fd), libc::SO_RCVTIMEO);
        let op = Op::Accept { fd, addr: addr.cast(), addr_len };
        let result = call.perform_until(op, deadline).unwrap_or(WOULD_WAIT);
        if result >= 0 {
            set_flags(result as RawFd, flags);
        }
        Ok(result)
    })
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
    on.call_int(|call| {
        call.admit()?;
        let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
        let is_odd = addr.is_null() || addr_len as usize > size_of_val(&storage);
        if is_odd || is_nonblocking(fd) {
            // The address is refused, or the call does not wait.
            // SAFETY: by the contract.
            return Ok(unsafe { syscall!(SYS_connect, fd, addr, addr_len) });
        }
        // An op refers to a whole structure, of which the caller's may be a part.
        // SAFETY: by the contract, the caller's address has this length.
        unsafe {
            let bytes = addr_len as usize;
            addr.cast::<u8>().copy_to_nonoverlapping(storage.as_mut_ptr().cast(), bytes);
        }
        connect_blocking(call, fd, &storage, addr_len)
    })
}

fn connect_blocking(
    call: Call,
    fd: RawFd,
    storage: &MaybeUninit<libc::sockaddr_storage>,
    addr_len: socklen_t,
) -> Result<isize, isize> {
    let deadline = deadline(call, &Held::new(fd), libc::SO_SNDTIMEO);
    let op = Op::Connect { fd, addr: storage.as_ptr(), addr_len };
    let mut backoff = Backoff::default();
    loop {
        match call.perform_until(op, deadline) {
            None => return Err(-(libc::EINPROGRESS as isize)),
            // The queue of a Unix listener is full; no event reports room.
            Some(WOULD_WAIT) if deadline.is_none_or(|at| call.now() < at) => {
                call.pause(&mut backoff)?;
            }
            Some(result) => return Ok(result),
        }
    }
}
