//! The signals that a thread which is a fiber blocks, in a program that is
//! [served](super::super::serve).
//!
//! The workers block all signals: those to the process go to `main` and to the other threads of the
//! system. So a fiber's own mask is a number until the fiber takes a thread of its own. It does so
//! if it unblocks a signal that it has inherited as blocked: then it wants to receive it.

use super::super::call::OnFiber;
use super::super::notes::Reason;
use super::super::{next, own_threads, serve};
use super::own;
use super::registry;
use cringle_core::interposition::is_on_own_thread;
use cringle_sys::syscall;
use libc::sigset_t;
use std::ffi::c_int;

/// The signals that libc has for itself, and never blocks.
const OF_LIBC: u64 = 0b11 << 31;

/// The signals that the calling thread or fiber blocks.
pub(super) fn mask() -> u64 {
    let is_number = serve::is_served() && !is_on_own_thread();
    mask_of_thread().filter(|_| is_number || own_threads::is_for_a_while()).unwrap_or_else(|| {
        let (mut mask, null) = (0u64, std::ptr::null::<u64>());
        // SAFETY: I14. The kernel writes the set, which is borrowed for the call.
        unsafe {
            syscall!(SYS_rt_sigprocmask, libc::SIG_BLOCK, null, &raw mut mask, size_of::<u64>())
        };
        mask
    })
}

/// The signals that the calling fiber blocks, if it is a thread of the program.
pub(crate) fn mask_of_thread() -> Option<u64> {
    registry::find(own()).map(|thread| thread.lock().mask)
}

/// Notes the thread on which the calling fiber runs.
pub(crate) fn note_worker() {
    if let Some(thread) = registry::find(own()) {
        thread.lock().worker = cringle_sys::thread_number();
    }
}

/// Changes the mask of the calling thread, by the number if it is a fiber on a worker.
///
/// # Safety
///
/// As libc's.
pub unsafe fn pthread_sigmask(
    on: Option<OnFiber>,
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    let is_number = (on.is_some() && serve::is_served()) || own_threads::is_for_a_while();
    let Some(thread) = registry::find(own()).filter(|_| is_number) else {
        // SAFETY: by the contract.
        return unsafe { next::pthread_sigmask(how, new, old) };
    };
    let before = thread.lock().mask;
    // SAFETY: by the contract. The kernel's set is the first word of libc's.
    let changed = unsafe { new.cast::<u64>().as_ref() }.copied();
    let after = match (how, changed) {
        (_, None) => before,
        (libc::SIG_BLOCK, Some(set)) => before | set,
        (libc::SIG_UNBLOCK, Some(set)) => before & !set,
        (libc::SIG_SETMASK, Some(set)) => set,
        _ => return libc::EINVAL,
    };
    let after = after & !OF_LIBC;
    thread.lock().mask = after;
    if before & !after != 0 {
        match on {
            Some(on) => _ = own_threads::take(on, Reason::SignalMask),
            None => {
                own_threads::keep(Reason::SignalMask);
                own_threads::set_mask(after);
            }
        }
    }
    // SAFETY: by the contract.
    if let Some(old) = unsafe { old.as_mut() } {
        // SAFETY: I14. All zeros are a set.
        *old = unsafe { std::mem::zeroed() };
        // SAFETY: by the contract.
        unsafe { (&raw mut *old).cast::<u64>().write(before) };
    }
    0
}

/// Lets a signal reach the calling thread that it sends to itself: the workers of a served program
/// block all.
pub(super) fn admit(on: Option<OnFiber>) {
    match on {
        Some(on) => _ = own_threads::take(on, Reason::Signal),
        None if own_threads::is_for_a_while() => {
            own_threads::keep(Reason::Signal);
            own_threads::set_mask(mask_of_thread().unwrap_or_default());
        }
        None => {}
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn sigprocmask(
    on: Option<OnFiber>,
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: by the contract.
    match unsafe { pthread_sigmask(on, how, new, old) } {
        0 => 0,
        code => {
            cringle_sys::set_errno(code);
            -1
        }
    }
}
