//! The signals that a thread which is a fiber blocks, in a program that is
//! [served](super::super::serve).
//!
//! The workers block all signals: those to the process go to `main` and to the other threads of the
//! system. So a fiber's own mask is a number until the fiber takes a thread of its own. It does so
//! if it unblocks a signal that it has inherited as blocked: then it wants to receive it.

use super::super::call::OnFiber;
use super::super::notes::Reason;
use super::super::{next, own_threads, serve};
use super::cancel::SIGNALLED;
use super::own;
use super::registry;
use cringle_core::interposition::is_on_own_thread;
use cringle_sys::syscall;
use libc::{pid_t, pthread_t, sigset_t};
use std::ffi::c_int;
use std::sync::atomic::Ordering;

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
        own_threads::take_or_keep(on, Reason::SignalMask);
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

/// Waits with a mask of signals: `on_fiber` without it, if it unblocks no signal that the thread
/// blocks. Otherwise the fiber is to become a thread of the system for the wait; in a program that
/// is not served, `plain` blocks its worker.
///
/// # Safety
///
/// The mask is null or a set.
pub(crate) unsafe fn with_mask(
    mask: *const sigset_t,
    on_fiber: impl FnOnce() -> c_int,
    plain: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the contract. The kernel's set is the first word of libc's.
    let Some(&mask) = (unsafe { mask.cast::<u64>().as_ref() }) else { return on_fiber() };
    if !serve::is_served() {
        return plain();
    }
    if mask_of_thread().is_some_and(|own| own & !mask == 0) {
        return on_fiber();
    }
    own_threads::wish(Reason::SignalMask);
    cringle_sys::set_errno(libc::ENOMEM);
    -1
}

/// Sends a signal to another fiber. A signal without a handler concerns the process.
pub(super) fn send(handle: pthread_t, signal: c_int) -> c_int {
    let found = registry::find(handle).filter(|_| serve::is_served());
    let Some(thread) = found else { return libc::ENOTSUP };
    let process = std::process::id() as pid_t;
    if flags_of_handler(signal).is_none() {
        // SAFETY: the call has no contract.
        unsafe { libc::kill(process, signal) };
        return 0;
    }
    let state = thread.lock();
    if state.is_own {
        // SAFETY: I14. The call has no pointers.
        unsafe { syscall!(SYS_tgkill, process, state.worker, signal) };
        return 0;
    }
    thread.pending.fetch_or(1 << (signal - 1), Ordering::SeqCst);
    thread.cancellation.fetch_or(SIGNALLED, Ordering::SeqCst);
    let address = state.address.clone();
    drop(state);
    if let Some(address) = address {
        address.cancel_point();
    }
    0
}

fn action(signal: c_int) -> libc::sigaction {
    // SAFETY: I14. All zeros are a value of the structure, which is borrowed for the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action);
        action
    }
}

/// The flags of a signal's handler, if the program has one.
fn flags_of_handler(signal: c_int) -> Option<c_int> {
    let action = action(signal);
    let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    has_handler.then_some(action.sa_flags)
}

/// Raises the signal that a failed call has sent to the worker, which blocks it. The error stays.
#[cold]
#[inline(never)]
pub(super) fn raise_sent(on: OnFiber) {
    if !serve::is_served() || is_on_own_thread() {
        return;
    }
    let errno = cringle_sys::errno();
    let bit = |signal: c_int| 1u64 << (signal - 1);
    let (sent, null) = (bit(libc::SIGPIPE) | bit(libc::SIGXFSZ), std::ptr::null::<()>());
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: I14. The set and the time are borrowed for the call.
    let signal = unsafe {
        syscall!(SYS_rt_sigtimedwait, &raw const sent, null, &raw const now, size_of::<u64>())
    };
    if signal > 0 && action(signal as c_int).sa_sigaction != libc::SIG_IGN {
        if let Some(thread) = registry::find(own()) {
            thread.pending.fetch_or(bit(signal as c_int), Ordering::SeqCst);
        }
        own_threads::take(on, Reason::Signal);
    }
    cringle_sys::set_errno(errno);
}

/// Whether another thread has sent the calling fiber a signal that it has not received.
pub(super) fn are_pending(on: OnFiber) -> bool {
    let word = on.current.fiber.thread_word();
    word.is_some_and(|word| word.load(Ordering::SeqCst) & SIGNALLED != 0)
}

/// Makes the calling fiber a thread of the system, whose handlers run for the signals that it was
/// sent. Returns whether a call that they interrupt begins again; `None` if it stays a fiber.
pub(super) fn receive(on: OnFiber) -> Option<bool> {
    let thread = registry::find(own())?;
    thread.cancellation.fetch_and(!SIGNALLED, Ordering::SeqCst);
    let pending = thread.pending.load(Ordering::SeqCst);
    let begins_again = |signal: c_int| {
        pending & (1 << (signal - 1)) == 0
            || flags_of_handler(signal).is_none_or(|flags| flags & libc::SA_RESTART != 0)
    };
    let begins_again = (1..=64).all(begins_again);
    own_threads::take(on, Reason::Signal).then_some(begins_again)
}

/// Whether the calling thread has got signals while it was a fiber.
pub(crate) fn have_pending() -> bool {
    registry::find(own()).is_some_and(|thread| thread.pending.load(Ordering::SeqCst) != 0)
}

/// The calling fiber is on its worker again.
pub(crate) fn end_own() {
    if let Some(thread) = registry::find(own()) {
        let mut state = thread.lock();
        state.is_own = false;
        state.worker = cringle_sys::thread_number();
    }
}

/// The calling fiber is a thread of the system from now on: it receives what it was sent.
pub(crate) fn begin_own() {
    let Some(thread) = registry::find(own()) else { return };
    thread.lock().is_own = true;
    let pending = thread.pending.swap(0, Ordering::SeqCst);
    for signal in (1..=64).filter(|signal| pending & (1 << (signal - 1)) != 0) {
        let (process, number) = (std::process::id(), cringle_sys::thread_number());
        // SAFETY: I14. The call has no pointers.
        unsafe { syscall!(SYS_tgkill, process, number, signal) };
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
