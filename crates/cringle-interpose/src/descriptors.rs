//! Calls that close a descriptor, or put another file in its place: of every caller, because fibers
//! may wait for the file. The library's own descriptors are none of the program's: it cannot close
//! them.

use super::call::OnFiber;
use super::{modes, next};
use cringle_driver::kept::{closing, closing_range, is_own};
use cringle_sys::{self as sys, syscall};
use libc::c_uint;
use std::ffi::c_int;
use std::os::fd::RawFd;

/// # Safety
///
/// As libc's.
pub unsafe fn close(on: Option<OnFiber>, fd: c_int) -> c_int {
    if is_own(fd) {
        sys::set_errno(libc::EBADF);
        return -1;
    }
    modes::forget(fd);
    // SAFETY: by the contract.
    closing(fd, || unsafe {
        match on {
            Some(on) => close_on_fiber(on, fd),
            None => next::close(fd),
        }
    })
}

calls! {
    Option<OnFiber>:
    fn dup2(from: c_int, to: c_int) -> c_int;
    |_| replacing(from, to, || next::dup2(from, to));

    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    |_| replacing(from, to, || next::dup3(from, to, flags));
}

fn replacing(from: RawFd, to: RawFd, replace: impl FnOnce() -> c_int) -> c_int {
    if from == to {
        return replace();
    }
    if is_own(to) {
        sys::set_errno(libc::EBUSY);
        return -1;
    }
    modes::forget(to);
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
    let close = |first, last| unsafe { next::close_range(first, last, flags) };
    // With other flags, nothing is closed, or in a table of the calling thread's own.
    if flags != 0 {
        return close(first, last);
    }
    closing_range(first..=last, close)
}

/// # Safety
///
/// As libc's.
pub unsafe fn closefrom(_on: Option<OnFiber>, first: c_int) {
    closing_range(first.max(0) as c_uint..=c_uint::MAX, |first, last| {
        if last == c_uint::MAX {
            // SAFETY: by the contract.
            unsafe { next::closefrom(first as c_int) };
        } else {
            // Not `close_range`, which `closefrom` does not need.
            for fd in first..=last {
                // SAFETY: by the contract: the program gives these numbers up.
                unsafe { syscall!(SYS_close, fd) };
            }
        }
        0
    });
}

/// Closes on this thread, as a destructor of the library does, unless that may wait. (A signal
/// handler that has interrupted the library finds its driver in use, and must not suspend.)
///
/// # Safety
///
/// As libc's.
unsafe fn close_on_fiber(on: OnFiber, fd: c_int) -> c_int {
    on.call_int(|call| {
        let may_suspend = || call.current.worker.driver().try_borrow_mut().is_ok();
        if sys::close_waits(fd) && may_suspend() {
            let closed = call.on_thread(|| sys::close_slowly(fd));
            return closed.map_or_else(|e| Err(call.code(&e)), |()| Ok(0));
        }
        // SAFETY: by the contract.
        Ok(unsafe { syscall!(SYS_close, fd) })
    })
}
