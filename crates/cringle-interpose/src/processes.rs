//! Starting children, and waiting for children, for signals and for threads.

use super::call::{Call, OnFiber, WOULD_WAIT};
use super::notes::Reason;
use super::ready::duration;
use super::{next, own_threads};
use cringle_std::internal::{repeat_while_busy, wait_for_end};
use cringle_sys::syscall;
use libc::{
    id_t, idtype_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, rusage, siginfo_t,
    sigset_t, timespec,
};
use std::ffi::{c_char, c_int};

macro_rules! spawns {
    ($($name:ident),*) => {$(
        /// Starts a child as the next definition does, again while its program is open for
        /// writing.
        ///
        /// # Safety
        ///
        /// As libc's.
        pub unsafe fn $name(
            on: OnFiber,
            pid: *mut pid_t,
            program: *const c_char,
            actions: *const posix_spawn_file_actions_t,
            attributes: *const posix_spawnattr_t,
            arguments: *const *mut c_char,
            environment: *const *mut c_char,
        ) -> c_int {
            spawn(on, || {
                // SAFETY: by the contract.
                unsafe { next::$name(pid, program, actions, attributes, arguments, environment) }
            })
        }
    )*};
}

spawns!(posix_spawn, posix_spawnp);

fn spawn(on: OnFiber, start: impl Fn() -> c_int) -> c_int {
    let is_busy = |&code: &c_int| code == libc::ETXTBSY;
    let start = || match start() {
        0 => Ok(()),
        code => Err(code),
    };
    on.call_for_code(|call| {
        repeat_while_busy(call.current, is_busy, start).map_err(|code| -code as isize)?;
        Ok(0)
    })
}

/// # Safety
///
/// As libc's.
pub unsafe fn wait4(
    on: OnFiber,
    pid: pid_t,
    status: *mut c_int,
    options: c_int,
    usage: *mut rusage,
) -> pid_t {
    on.call_int(|call| {
        // SAFETY: by the contract.
        let attempt = || unsafe {
            match syscall!(SYS_wait4, pid, status, options | libc::WNOHANG, usage) {
                0 if options & libc::WNOHANG == 0 => None,
                result => Some(result),
            }
        };
        if let Some(result) = attempt() {
            return Ok(result);
        }
        call.admit()?;
        if options & (libc::WUNTRACED | libc::WCONTINUED) == 0 {
            wait_for_child(call, pid)?;
        }
        call.poll(attempt)
    })
}

/// Waits for the end of one child, except if only polling can find out.
fn wait_for_child(call: Call, pid: pid_t) -> Result<(), isize> {
    match u32::try_from(pid) {
        Ok(id @ 1..) => wait_for_end(call.current, id).map_err(|e| call.code(&e)),
        _ => Ok(()),
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn waitid(
    on: OnFiber,
    kind: idtype_t,
    id: id_t,
    info: *mut siginfo_t,
    options: c_int,
) -> c_int {
    on.call_int(|call| {
        // SAFETY: an all-zero structure of integers is valid.
        let mut own: siginfo_t = unsafe { std::mem::zeroed() };
        let out = if info.is_null() { &raw mut own } else { info };
        let null = std::ptr::null_mut::<rusage>();
        // SAFETY: by the contract, the structure is valid; the kernel fills it where a child has
        // changed.
        let attempt = || unsafe {
            (&raw mut (*out).si_signo).write(0);
            match syscall!(SYS_waitid, kind, id, out, options | libc::WNOHANG, null) {
                0 if options & libc::WNOHANG == 0 && (*out).si_signo == 0 => None,
                result => Some(result),
            }
        };
        if let Some(result) = attempt() {
            return Ok(result);
        }
        call.admit()?;
        if options & (libc::WSTOPPED | libc::WCONTINUED) == 0 {
            match kind {
                libc::P_PID => wait_for_child(call, id as pid_t)?,
                libc::P_PIDFD => _ = call.ready(id as c_int, libc::POLLIN, None)?,
                _ => {}
            }
        }
        call.poll(attempt)
    })
}

/// `sigtimedwait`, and `sigwaitinfo` without a time. The signals are the ones that the worker's
/// thread blocks, as for any thread.
///
/// # Safety
///
/// As libc's.
pub unsafe fn sigtimedwait(
    on: OnFiber,
    set: *const sigset_t,
    info: *mut siginfo_t,
    time: *const timespec,
) -> c_int {
    if own_threads::take(on, Reason::SignalWait) {
        // SAFETY: by the contract.
        return unsafe { next::sigtimedwait(set, info, time) };
    }
    // SAFETY: by the contract.
    on.call_int(|call| unsafe { wait_for_signal(call, set, info, time) })
}

/// # Safety
///
/// As libc's.
pub unsafe fn sigwait(on: OnFiber, set: *const sigset_t, signal: *mut c_int) -> c_int {
    if own_threads::take(on, Reason::SignalWait) {
        // SAFETY: by the contract.
        return unsafe { next::sigwait(set, signal) };
    }
    on.call_for_code(|call| {
        let null = std::ptr::null_mut();
        // SAFETY: by the contract.
        unsafe {
            let result = wait_for_signal(call, set, null, null.cast())?;
            if result > 0 {
                *signal = result as c_int;
            }
            Ok(result)
        }
    })
}

/// # Safety
///
/// As `sigtimedwait`'s.
unsafe fn wait_for_signal(
    call: Call,
    set: *const sigset_t,
    info: *mut siginfo_t,
    time: *const timespec,
) -> Result<isize, isize> {
    // SAFETY: by the contract.
    let limit = unsafe { duration(time)? };
    let deadline = limit.and_then(|limit| call.now().checked_add(limit));
    let kernel_set_bytes = 8;
    let attempt = || {
        let zero = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: by the contract.
        let result =
            unsafe { syscall!(SYS_rt_sigtimedwait, set, info, &raw const zero, kernel_set_bytes) };
        (result != WOULD_WAIT || call.is_over(deadline)).then_some(result)
    };
    if deadline.is_none() {
        call.admit()?;
        return call.poll(attempt);
    }
    let result = call.poll_to_the_end(attempt);
    if result == WOULD_WAIT {
        call.timed_out(deadline);
    }
    Ok(result)
}
