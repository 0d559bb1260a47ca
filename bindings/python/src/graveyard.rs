//! Memory whose last user was a worker, until a thread of Python releases it (**P2**).
//!
//! A lock-free stack: a worker pushes, and a thread that is attached to the interpreter takes all.
//! It has no lock that a `fork` could leave held.

use crate::memory::Owner;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

struct Grave {
    owner: Owner,
    next: *mut Grave,
}

static TOP: AtomicPtr<Grave> = AtomicPtr::new(ptr::null_mut());

/// Keeps an export until the main thread of Python, or the next call of this package, releases it.
#[cold]
pub(crate) fn bury(owner: Owner) {
    let grave = Box::into_raw(Box::new(Grave { owner, next: TOP.load(Ordering::Relaxed) }));
    loop {
        // SAFETY: P2. The grave is not published yet.
        let next = unsafe { (*grave).next };
        match TOP.compare_exchange_weak(next, grave, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            // SAFETY: as above.
            Err(top) => unsafe { (*grave).next = top },
        }
    }
    // If the interpreter's queue is full, one of its entries calls this, or the next call does.
    // SAFETY: the contract of `Py_AddPendingCall`: any thread may call it, attached or not, until
    // the interpreter ends; workers end before that (`engine::shutdown`).
    unsafe { ffi::Py_AddPendingCall(Some(on_main_thread), ptr::null_mut()) };
}

extern "C" fn on_main_thread(_: *mut c_void) -> c_int {
    Python::attach(release);
    0
}

/// Releases what is left.
#[inline]
pub(crate) fn release(py: Python<'_>) {
    if !TOP.load(Ordering::Relaxed).is_null() {
        release_all(py);
    }
}

#[cold]
fn release_all(py: Python<'_>) {
    let mut grave = TOP.swap(ptr::null_mut(), Ordering::Acquire);
    while !grave.is_null() {
        // SAFETY: P2. The swap made this thread the only owner of the stack.
        let Grave { owner, next } = *unsafe { Box::from_raw(grave) };
        owner.release(py);
        grave = next;
    }
}
