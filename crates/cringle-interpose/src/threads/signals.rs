//! The signals that a thread which is a fiber blocks, in a program that is
//! [served](super::super::serve).
//!
//! The workers block all signals: those to the process go to `main` and to the other threads of the
//! system. So a fiber's own mask is a number until the fiber takes a thread of its own for good. It
//! does so when it is sent a signal, and if it unblocks one that it has inherited as blocked: then
//! it wants to receive it. Its children have its mask.

use super::super::call::OnFiber;
use super::super::notes::Reason;
use super::super::{monitor, next, own_threads, serve};
use super::cancel::{self, SIGNALLED};
use super::registry::{self, On, Thread};
use cringle_core::interposition::is_on_own_thread;
use cringle_sys::syscall;
use libc::{pid_t, pthread_t, sigset_t};
use std::ffi::c_int;
use std::sync::atomic::Ordering;

/// The signals that libc has for itself, and never blocks.
const OF_LIBC: u64 = 0b11 << 31;

const fn of(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The signals that the calling thread or fiber blocks.
pub(super) fn mask() -> u64 {
    mask_of_fiber().unwrap_or_else(|| change_mask(libc::SIG_BLOCK, 0))
}

/// The signals that the calling fiber blocks, if it is a thread of a served program, and the thread
/// of the system on which it is blocks all.
pub(crate) fn mask_of_fiber() -> Option<u64> {
    let is_number = serve::is_served() && (!is_on_own_thread() || own_threads::is_guest());
    registry::with_own(own_mask).filter(|_| is_number)
}

fn own_mask(thread: &Thread) -> u64 {
    thread.mask.load(Ordering::SeqCst)
}

/// Changes the kernel's mask of the calling thread. Returns the one before.
fn change_mask(how: c_int, set: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: I14. The sets are borrowed for the call.
    unsafe {
        let set = &raw const set;
        syscall!(SYS_rt_sigprocmask, how, set, &raw mut before, size_of::<u64>())
    };
    before
}

/// In a child of `fork`: its thread has the mask that the fiber had.
pub(crate) fn forget_worker() {
    if let Some(mask) = mask_of_fiber() {
        change_mask(libc::SIG_SETMASK, mask);
    }
    registry::set_own(None);
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
    let Some(before) = mask_of_fiber() else {
        // SAFETY: by the contract.
        let code = unsafe { next::pthread_sigmask(how, new, old) };
        admit_monitor();
        return code;
    };
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
    registry::with_own(|thread| thread.mask.store(after, Ordering::SeqCst));
    if before & !after != 0 {
        own_threads::take(on, Reason::SignalMask);
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
    if mask_of_fiber().is_some_and(|own| own & !mask == 0) {
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
    let state = thread.lock();
    if state.on == On::Own {
        // SAFETY: I14. The call has no pointers.
        unsafe { syscall!(SYS_tgkill, process, state.worker, signal) };
        return 0;
    }
    let is_blocked = own_mask(&thread) & of(signal) != 0;
    if !is_blocked && flags_of_handler(signal).is_none() {
        // SAFETY: the call has no contract.
        unsafe { libc::kill(process, signal) };
        return 0;
    }
    thread.pending.fetch_or(of(signal), Ordering::SeqCst);
    if is_blocked {
        // It receives the signal when it unblocks it, or waits for it.
        return 0;
    }
    thread.cancellation.fetch_or(SIGNALLED, Ordering::SeqCst);
    if state.on == On::Guest {
        cancel::want();
        return 0;
    }
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
    let (sent, null) = (of(libc::SIGPIPE) | of(libc::SIGXFSZ), std::ptr::null::<()>());
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: I14. The set and the time are borrowed for the call.
    let signal = unsafe {
        syscall!(SYS_rt_sigtimedwait, &raw const sent, null, &raw const now, size_of::<u64>())
    };
    if signal > 0 && action(signal as c_int).sa_sigaction != libc::SIG_IGN {
        registry::with_own(|thread| {
            thread.pending.fetch_or(of(signal as c_int), Ordering::SeqCst);
        });
        own_threads::take(Some(on), Reason::Signal);
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
    let begins_again = registry::with_own(|thread| {
        thread.cancellation.fetch_and(!SIGNALLED, Ordering::SeqCst);
        begins_again(thread)
    })?;
    own_threads::take(Some(on), Reason::Signal).then_some(begins_again)
}

fn begins_again(thread: &Thread) -> bool {
    let pending = thread.pending.load(Ordering::SeqCst) & !own_mask(thread);
    (1..=64)
        .filter(|&signal| pending & of(signal) != 0)
        .all(|signal| flags_of_handler(signal).is_none_or(|flags| flags & libc::SA_RESTART != 0))
}

/// Waits by `wait` for what is no cancellation point, such as a lock. If the fiber is sent a
/// signal, it waits by `plain`, as a thread of the system. `wait` learns whether a signal ends it.
pub(crate) fn interruptible(
    on: OnFiber,
    wait: impl Fn(bool) -> c_int,
    plain: impl FnOnce() -> c_int,
) -> c_int {
    if !serve::is_served() || on.current.fiber.thread_word().is_none() {
        return wait(false);
    }
    loop {
        if are_pending(on) && receive(on).is_some() {
            return plain();
        }
        let (code, was_ended) = on.current.in_point(|| wait(true));
        if !(was_ended && code == libc::ECANCELED) {
            return code;
        }
    }
}

/// In the handler of the monitor's signal, in a fiber that is a guest: if it was sent signals, it
/// is a thread of the system from now on. Returns the mask with which it receives them, and whether
/// a call that they interrupt begins again.
pub(crate) fn receive_interrupted() -> Option<(u64, bool)> {
    if !have_signals() {
        return None;
    }
    let begins_again = registry::with_own(begins_again)?;
    Some((begin_own(), begins_again))
}

/// Whether the calling fiber was sent signals that it has not received.
pub(crate) fn have_signals() -> bool {
    let word = |thread: &Thread| thread.cancellation.load(Ordering::SeqCst);
    registry::with_own(|thread| word(thread) & SIGNALLED != 0) == Some(true)
}

/// The calling fiber is on a thread of its own for a while.
pub(crate) fn begin_guest() {
    registry::with_own(|thread| {
        let mut state = thread.lock();
        state.on = On::Guest;
        state.worker = cringle_sys::thread_number();
        cancel::want();
    });
}

/// The calling fiber is a thread of the system from now on. Returns the mask that it should have,
/// with which it receives what it was sent.
pub(crate) fn begin_own() -> u64 {
    let begin = |thread: &Thread| {
        let (process, number) = (std::process::id(), cringle_sys::thread_number());
        let mut state = thread.lock();
        state.on = On::Own;
        state.worker = number;
        thread.cancellation.fetch_and(!SIGNALLED, Ordering::SeqCst);
        cancel::want();
        let pending = thread.pending.swap(0, Ordering::SeqCst);
        for signal in (1..=64).filter(|&signal| pending & of(signal) != 0) {
            // SAFETY: I14. The call has no pointers.
            unsafe { syscall!(SYS_tgkill, process, number, signal) };
        }
        own_mask(thread) & !monitor::signal_set()
    };
    registry::with_own(begin).unwrap_or_default()
}

/// Gives the calling thread the mask of [`begin_own`].
pub(crate) fn set_mask(mask: u64) {
    change_mask(libc::SIG_SETMASK, mask);
}

/// Lets the monitor's signal reach the calling fiber on a thread of its own, whatever it blocks.
fn admit_monitor() {
    if is_on_own_thread() {
        change_mask(libc::SIG_UNBLOCK, monitor::signal_set());
    }
}

/// The calling fiber goes back to its worker.
pub(crate) fn end_own() {
    registry::with_own(|thread| thread.lock().on = On::Worker);
}

/// The calling fiber is on a worker again.
pub(crate) fn note_worker() {
    registry::with_own(|thread| thread.lock().worker = cringle_sys::thread_number());
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
