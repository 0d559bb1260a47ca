//! Performs an op on the file system: the one place that decides how.
//!
//! | the caller is | the op is performed by |
//! |---|---|
//! | a fiber of a simulation | the simulation |
//! | no fiber, or a fiber that unwinds (**I8**) | the plain call |
//! | a fiber that nothing else could run beside | the plain call, within its budget |
//! | another fiber, and the ring supports the op | the ring, even if a kernel thread performs it |
//! | another fiber, and the ring does not | a thread of the small pool |
//!
//! A trip through the ring costs less than one through the pool (`benches/RESULTS.md`). No op here
//! waits for another process or fiber, so none holds a thread of the pool for long. Calls that may
//! wait (locks, FIFOs) poll with a backoff instead.

use crate::fiber::op::{self, perform_on_pool};
use cringle_core::worker::Current;
use cringle_driver::{Op, blocking};
use cringle_sys::{self as sys, plainly};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Performs the op, and retries it if a signal interrupts it. Only the calling fiber waits. An op
/// that has completed returns its result even if a cancel arrived meanwhile.
///
/// # Safety
///
/// The op's pointers are valid until this returns.
pub(super) unsafe fn perform(op: Op) -> io::Result<usize> {
    // SAFETY: by the contract.
    unsafe { perform_with(op, true) }
}

/// Performs an op on two paths.
///
/// A ring copies both paths into the kernel before it resolves the first, so it reports an empty or
/// overlong second path even if the first is wrong too. The plain call reports the first path's
/// error; so such an op is kept off the ring.
///
/// # Safety
///
/// As [`perform`].
pub(super) unsafe fn perform_two_paths(op: Op, second: &CStr) -> io::Result<usize> {
    // SAFETY: by the contract.
    unsafe { perform_with(op, (1..libc::PATH_MAX as usize).contains(&second.count_bytes())) }
}

unsafe fn perform_with(op: Op, on_ring: bool) -> io::Result<usize> {
    let Some(current) = Current::get() else {
        // SAFETY: by the contract.
        return sys::result_of(unsafe { blocking::perform(&op) });
    };
    if !current.worker.may_bypass() {
        return retry(current, op);
    }
    if current.is_unwinding() || current.is_solitary() && current.spends_solitary() {
        // SAFETY: by the contract.
        return sys::result_of(unsafe { blocking::perform(&op) });
    }
    if !on_ring || !current.worker.driver().borrow().performs(&op) {
        current.admit()?;
        // SAFETY: by the contract.
        return sys::result_of(unsafe { perform_on_pool(op) });
    }
    retry(current, op)
}

/// Performs the op through the driver, and retries it after a signal.
pub(super) fn retry(current: Current, op: Op) -> io::Result<usize> {
    loop {
        match op::perform(current, op) {
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
            result => return result,
        }
    }
}

/// Whether the fiber may make a plain call that does not wait, before it performs an op. Spends one
/// of the fiber's inline calls, and yields if none is left.
pub(super) fn may_try_inline(current: Current) -> bool {
    if !current.worker.may_bypass() {
        return false;
    }
    if !current.fiber.spend_inline() {
        current.refresh_budget();
    }
    !current.is_interrupted()
}

/// Converts a path to a C string. The error for a path with a NUL byte is std's.
pub(super) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        // std refuses the path before it makes a system call.
        let refused = plainly(|| std::fs::symlink_metadata(path)).err();
        refused.unwrap_or_else(|| io::ErrorKind::InvalidInput.into())
    })
}
