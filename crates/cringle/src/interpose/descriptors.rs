//! Calls that close a descriptor, or put another file in its place: of every caller, because fibers
//! may wait for the file.

use super::call::OnFiber;
use super::{held, modes, next};
use crate::driver::closing::{closing, closing_range};
use crate::sys::{self, syscall};
use libc::c_uint;
use std::ffi::c_int;
use std::os::fd::RawFd;

/// # Safety
///
/// As libc's.
pub unsafe fn close(on: Option<OnFiber>, fd: c_int) -> c_int {
    modes::forget(fd);
    held::closing(fd);
    // SAFETY: by the contract.
    closing(fd, || unsafe {
        match on {
            Some(on) => close_on_fiber(on, fd),
            None => next::close(fd),
        }
    })
}

/// # Safety
///
/// As libc's.
pub unsafe fn dup2(_on: Option<OnFiber>, from: c_int, to: c_int) -> c_int {
    // SAFETY: by the contract.
    replacing(from, to, || unsafe { next::dup2(from, to) })
}

/// # Safety
///
/// As libc's.
pub unsafe fn dup3(_on: Option<OnFiber>, from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: by the contract.
    replacing(from, to, || unsafe { next::dup3(from, to, flags) })
}

fn replacing(from: RawFd, to: RawFd, replace: impl FnOnce() -> c_int) -> c_int {
    if from == to {
        return replace();
    }
    modes::forget(to);
    held::closing(to);
    closing(to, replace)
}

/// # Safety
///
/// As libc's.
pub unsafe fn close_range(
    _on: Option<OnFiber>,
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: by the contract.
    let close = || unsafe { next::close_range(first, last, flags) };
    // With other flags, nothing is closed, or in a table of the calling thread's own.
    if flags != 0 {
        return close();
    }
    held::closing_range(first, last);
    closing_range(first, last, close)
}

/// # Safety
///
/// As libc's.
pub unsafe fn closefrom(_on: Option<OnFiber>, first: c_int) {
    held::closing_range(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: by the contract.
    closing_range(first.max(0) as c_uint, c_uint::MAX, || unsafe { next::closefrom(first) });
}

/// Closes on this thread, as a destructor of the library does, unless that may wait: for a socket
/// that lingers, for a server, for a device.
///
/// # Safety
///
/// As libc's.
unsafe fn close_on_fiber(on: OnFiber, fd: c_int) -> c_int {
    let result = on.call(|call| {
        if close_waits(fd) && !call.worker().is_simulated() {
            // SAFETY: by the contract.
            return unsafe { call.system_call_on_thread(libc::SYS_close, [fd as usize]) };
        }
        // SAFETY: by the contract.
        unsafe { syscall!(SYS_close, fd) }
    });
    result as c_int
}

fn close_waits(fd: RawFd) -> bool {
    match sys::mode(fd) & libc::S_IFMT {
        libc::S_IFSOCK => lingers(fd),
        libc::S_IFREG => modes::is_remote(fd),
        libc::S_IFCHR => sys::is_terminal(fd),
        libc::S_IFBLK => true,
        _ => false,
    }
}

fn lingers(fd: RawFd) -> bool {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut len = size_of::<libc::linger>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_LINGER);
    // SAFETY: the variables are borrowed for the call.
    unsafe { syscall!(SYS_getsockopt, fd, level, option, &raw mut linger, &raw mut len) };
    linger.l_onoff != 0 && linger.l_linger > 0
}
