//! The state that the kernel keeps of a thread, for a thread that it does not know: the name, the
//! stack's bounds, the alternate signal stack, signals. What it schedules is in `scheduling`.
//!
//! On a fiber libc would use the worker's state, which other fibers use, too. `run`'s closure has
//! the handle of the thread that called `run`, and uses that thread's state; but its stack is a
//! fiber's.

use super::super::call::OnFiber;
use super::super::notes::Reason;
use super::super::{next, own_threads};
use super::registry::{self, Progress};
use super::{is_fibers, own, scheduling, signals, state};
use cringle_core::interposition::GUARD_BYTES;
use cringle_sys::{self as sys, syscall};
use libc::{c_ulong, pthread_attr_t, pthread_t, sigval, stack_t};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

/// The bytes of a name, with the zero byte at its end.
const NAME_BYTES: usize = 16;
type Name = [u8; NAME_BYTES];

unsafe extern "C" {
    fn pthread_attr_setstack(
        attributes: *mut pthread_attr_t,
        address: *mut std::ffi::c_void,
        bytes: usize,
    ) -> c_int;
}

thread_local! {
    /// The name of the fiber, in its own block. `None`: the process's.
    static NAME: Cell<Option<Name>> = const { Cell::new(None) };
}

calls! {
    Option<OnFiber>:
    fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int,
        next if !is_fibers(thread);
    |on| match CStr::from_ptr(name).to_bytes() {
        text if text.len() < NAME_BYTES => set_name(on, thread, text),
        _ => libc::ERANGE,
    };

    // A signal to the calling fiber itself reaches the thread on which it runs. Others cannot be
    // signalled.
    fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int, next if !is_fibers(thread);
    |on| if thread == own() {
        own_threads::take(on, Reason::Signal);
        next::pthread_kill(thread, signal)
    } else {
        signal_to_other(thread, signal)
    };

    fn raise(signal: c_int) -> c_int;
    |on| {
        own_threads::take(on, Reason::Signal);
        next::raise(signal)
    };

    fn pthread_getname_np(thread: pthread_t, name: *mut c_char, bytes: usize) -> c_int,
        next if !is_fibers(thread);
    |_| write_name(thread, name, bytes);

    fn pthread_sigqueue(thread: pthread_t, signal: c_int, value: sigval) -> c_int,
        next if !is_fibers(thread);
    |on| queue_signal(on, thread, signal, value);
}

/// Names a fiber. `text` is short enough.
fn set_name(on: Option<OnFiber>, thread: pthread_t, text: &[u8]) -> c_int {
    let mut name = [0; NAME_BYTES];
    name[..text.len()].copy_from_slice(text);
    let found = registry::find(thread);
    if let Some(found) = &found {
        found.lock().name = Some(name);
    }
    if thread == own() {
        NAME.set(Some(name));
        if let (Some(on), true) = (on, found.is_some()) {
            // For dumps and traces.
            on.call_for_code(|call| {
                call.current.rename(String::from_utf8_lossy(text).into());
                Ok(0)
            });
        }
        return 0;
    }
    if found.is_some() { 0 } else { libc::ESRCH }
}

/// # Safety
///
/// There is room for this number of bytes.
unsafe fn write_name(thread: pthread_t, name: *mut c_char, bytes: usize) -> c_int {
    if bytes < NAME_BYTES {
        return libc::ERANGE;
    }
    let known = match registry::find(thread) {
        Some(found) => found.lock().name,
        None if thread == own() => NAME.get(),
        None => return libc::ESRCH,
    };
    let text = known.unwrap_or_else(workers_name);
    // SAFETY: by the contract.
    unsafe { name.cast::<Name>().write(text) };
    0
}

fn workers_name() -> Name {
    let mut name = [0; NAME_BYTES];
    // SAFETY: by the contract of the call, the kernel writes 16 bytes.
    unsafe { syscall!(SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// # Safety
///
/// As libc's.
pub unsafe fn prctl(
    on: Option<OnFiber>,
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        match option {
            libc::PR_SET_NAME if on.is_some() && is_fibers(own()) => {
                let name = CStr::from_ptr(a as *const c_char).to_bytes();
                set_name(on, own(), &name[..name.len().min(NAME_BYTES - 1)])
            }
            libc::PR_GET_NAME if on.is_some() && is_fibers(own()) => {
                (a as *mut Name).write(NAME.get().unwrap_or_else(workers_name));
                0
            }
            _ => {
                state::admit_option(on, option);
                next::prctl(option, a, b, c, d)
            }
        }
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn pthread_getattr_np(
    on: Option<OnFiber>,
    thread: pthread_t,
    attributes: *mut pthread_attr_t,
) -> c_int {
    let found = registry::find(thread);
    let is_detached = found.as_ref().is_some_and(|found| found.lock().is_detached);
    let (address, bytes) = match (on, found) {
        (Some(on), _) if thread == own() => on.current.fiber.stack_area(),
        (_, Some(found)) => found.lock().stack,
        // SAFETY: by the contract.
        _ => return unsafe { next::pthread_getattr_np(thread, attributes) },
    };
    let address = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: by the contract: the attributes can be written.
    unsafe {
        match libc::pthread_attr_init(attributes) {
            0 => {}
            code => return code,
        }
        libc::pthread_attr_setguardsize(attributes, GUARD_BYTES);
        libc::pthread_attr_setdetachstate(attributes, c_int::from(is_detached));
        match pthread_attr_setstack(attributes, address, bytes) {
            0 => scheduling::add_cores(thread, attributes),
            code => code,
        }
    }
}

/// A fiber has no alternate stack of its own: it reads its worker's, which lives as long as the
/// worker, and can only set what it has read. A switch between fibers makes no system call, so the
/// kernel cannot have a stack for each.
///
/// # Safety
///
/// As libc's.
pub unsafe fn sigaltstack(on: Option<OnFiber>, new: *const stack_t, old: *mut stack_t) -> c_int {
    // SAFETY: by the contract. All zeros are a value of the structure.
    unsafe {
        let is_plain = || own_threads::take(on, Reason::SignalStack) || on.is_none();
        if new.is_null() || !is_fibers(own()) || is_plain() {
            return next::sigaltstack(new, old);
        }
        let mut current: stack_t = std::mem::zeroed();
        if next::sigaltstack(std::ptr::null(), &mut current) != 0 {
            return -1;
        }
        let code = refusal(&*new, &current);
        if code != 0 {
            sys::set_errno(code);
            return -1;
        }
        if !old.is_null() {
            *old = current;
        }
        0
    }
}

/// Returns the error of setting a signal stack beside the worker's, 0 if it is the worker's. The
/// kernel's checks come first, in its order.
fn refusal(new: &stack_t, current: &stack_t) -> c_int {
    /// `SS_AUTODISARM`.
    const DISARMED: c_int = c_int::MIN;
    let stack = |it: &stack_t| (it.ss_sp, it.ss_size, it.ss_flags);
    match new.ss_flags & !DISARMED {
        _ if current.ss_flags & libc::SS_ONSTACK != 0 => libc::EPERM,
        0 | libc::SS_ONSTACK | libc::SS_DISABLE if stack(new) == stack(current) => 0,
        libc::SS_DISABLE if current.ss_flags & libc::SS_DISABLE != 0 => 0,
        libc::SS_DISABLE => libc::ENOTSUP,
        0 | libc::SS_ONSTACK if new.ss_size < libc::MINSIGSTKSZ => libc::ENOMEM,
        0 | libc::SS_ONSTACK => libc::ENOTSUP,
        _ => libc::EINVAL,
    }
}

/// As [`pthread_kill`], with a value.
fn queue_signal(on: Option<OnFiber>, thread: pthread_t, signal: c_int, value: sigval) -> c_int {
    if thread != own() {
        return signal_to_other(thread, signal);
    }
    own_threads::take(on, Reason::Signal);
    if is_libcs(signal) {
        return libc::EINVAL;
    }
    let info = QueuedSignal {
        signal,
        error: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        process: std::process::id(),
        // SAFETY: the call has no contract.
        user: unsafe { libc::getuid() },
        value,
        rest: [0; 12],
    };
    let (process, worker) = (info.process, sys::thread_number());
    // SAFETY: the structure is borrowed for the call.
    -unsafe { syscall!(SYS_rt_tgsigqueueinfo, process, worker, signal, &raw const info) } as c_int
}

/// `siginfo_t` of a signal that was queued with a value.
#[repr(C)]
struct QueuedSignal {
    signal: c_int,
    error: c_int,
    code: c_int,
    padding: c_int,
    process: u32,
    user: u32,
    value: sigval,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<QueuedSignal>() == size_of::<libc::siginfo_t>());

/// Whether libc has this signal for itself, and refuses to send it.
fn is_libcs(signal: c_int) -> bool {
    (32..libc::SIGRTMIN()).contains(&signal)
}

/// The result of a signal to another fiber. libc sends none to a thread that has ended.
fn signal_to_other(thread: pthread_t, signal: c_int) -> c_int {
    let has_ended = || {
        let found = registry::find(thread);
        found.is_some_and(|found| matches!(found.lock().progress, Progress::Ended(_)))
    };
    match signal {
        _ if signal < 0 || signal > libc::SIGRTMAX() || is_libcs(signal) => libc::EINVAL,
        0 => 0,
        _ if has_ended() => 0,
        _ => signals::send(thread, signal),
    }
}
