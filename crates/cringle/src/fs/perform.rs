//! Where an op on the file system is performed: one place decides for all calls of this folder.
//!
//! | who asks | is served by |
//! |---|---|
//! | a fiber of a simulation | the simulation |
//! | no fiber, or one that unwinds (**I8**) | the plain call |
//! | a fiber that nothing else could run beside | the plain call, within its budget |
//! | any other fiber, and the ring has an op for it | the ring, though it punts the op to a thread |
//! | … and it has none | the small pool |
//!
//! A trip through the ring costs some 3 µs more than the plain call, one through the pool 8 to 10
//! (measured: see docs/rationale.md). No call here waits for another process or fiber, so none can hold
//! a thread of the pool for long; what may wait (locks, FIFOs) asks again after a pause.

use crate::driver::{Op, blocking};
use crate::fiber::op::{self, perform_aside};
use crate::runtime::fiber::FiberRef;
use crate::runtime::worker::{Here, Worker};
use crate::sys;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Performs the op; only the calling fiber waits. What was done wins over a cancel that came late.
/// A signal does not end it.
///
/// # Safety
///
/// The op's pointers are valid until this returns.
pub(super) unsafe fn perform(op: Op) -> io::Result<usize> {
    // SAFETY: by the contract.
    unsafe { perform_with(op, true) }
}

/// The same for an op on two paths. The ring takes both into the kernel before it looks at the first:
/// where the second is empty or longer than any path, and the first is wrong too, the plain call's answer is
/// the first one's, and so is this.
///
/// # Safety
///
/// As [`ask`].
pub(super) unsafe fn perform_two_paths(op: Op, second: &CStr) -> io::Result<usize> {
    // SAFETY: by the contract.
    unsafe { perform_with(op, (1..libc::PATH_MAX as usize).contains(&second.count_bytes())) }
}

unsafe fn perform_with(op: Op, on_ring: bool) -> io::Result<usize> {
    let Some((worker, fiber)) = Worker::current() else {
        // SAFETY: by the contract.
        return sys::result_of(unsafe { blocking::perform(&op) });
    };
    if worker.is_simulated() {
        return perform_to_its_end(worker, fiber, op);
    }
    if worker.is_unwinding(fiber) || is_solitary(worker, fiber) {
        // SAFETY: by the contract.
        return sys::result_of(unsafe { blocking::perform(&op) });
    }
    if !on_ring || !op.fits_ring(worker.driver().borrow().features()) {
        if worker.refuses(fiber) {
            return Err(fiber.cancel_error());
        }
        // SAFETY: by the contract.
        return sys::result_of(unsafe { perform_aside(op) });
    }
    perform_to_its_end(worker, fiber, op)
}

/// Through the driver; again after a signal.
fn perform_to_its_end(worker: Here, fiber: FiberRef, op: Op) -> io::Result<usize> {
    loop {
        match op::perform(worker, fiber, op) {
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
            result => return result,
        }
    }
}

/// Whether nothing else could run meanwhile. (Not where the fiber is cancelled.)
fn is_solitary(worker: Here, fiber: FiberRef) -> bool {
    if !worker.is_solitary(fiber) {
        return false;
    }
    if !fiber.spend_inline() {
        worker.refresh_budget(fiber);
        if !worker.is_solitary(fiber) {
            return false;
        }
    }
    worker.events().tried_inline(true);
    true
}

/// The path for the kernel. One with a NUL is refused in std's words.
pub(super) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        // It asks nobody: no path of the kernel has a NUL.
        let refused = std::fs::symlink_metadata(path).err();
        refused.unwrap_or_else(|| io::ErrorKind::InvalidInput.into())
    })
}
