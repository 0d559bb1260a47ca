//! A thread of the program is not cancelled (`pthread_cancel`) in a function of the library.
//!
//! glibc cancels a thread by unwinding its stack from a system call that waits. That would end in
//! the middle of a call, whose memory the kernel may still use; and the process ends when such an
//! unwinding reaches a frame that catches panics. So a cancel waits until the function has
//! returned.

use std::ffi::c_int;
use std::ptr;

/// The value of both glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    /// `pthread_setcancelstate(3)`.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Restores the calling thread's state when it is dropped.
pub(crate) struct Disabled {
    before: c_int,
}

/// Disables cancellation of the calling thread.
pub(crate) fn disable() -> Disabled {
    let mut before = PTHREAD_CANCEL_DISABLE;
    // SAFETY: the contract of `pthread_setcancelstate`: the state is one of the two, and `before`
    // is valid for a write.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    Disabled { before }
}

impl Drop for Disabled {
    fn drop(&mut self) {
        // SAFETY: the contract of `pthread_setcancelstate`: a state that it has stored. It is no
        // cancellation point: a thread that may be cancelled at any instruction must not call the
        // library.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}
