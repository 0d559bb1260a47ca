//! What the kernel keeps of a thread, for a thread that it does not know: the name, the stack's
//! bounds, the alternate signal stack, signals.
//!
//! On a fiber libc would use the worker's, which other fibers use, too. `run`'s closure has the
//! handle of the thread that called `run`, and uses what is that thread's; but its stack is a
//! fiber's.

use super::super::call::OnFiber;
use super::super::next;
use super::{is_fibers, own, registry};
use crate::runtime::stack::GUARD_BYTES;
use crate::sys::syscall;
use libc::{c_ulong, pthread_attr_t, pthread_t, stack_t};
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

/// # Safety
///
/// As libc's.
pub unsafe fn pthread_setname_np(
    on: Option<OnFiber>,
    thread: pthread_t,
    name: *const c_char,
) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        if !is_fibers(thread) {
            return next::pthread_setname_np(thread, name);
        }
        let text = CStr::from_ptr(name).to_bytes();
        if text.len() >= NAME_BYTES {
            return libc::ERANGE;
        }
        set_name(on, thread, text)
    }
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
                call.worker().rename(call.fiber(), String::from_utf8_lossy(text).into());
                0
            });
        }
        return 0;
    }
    if found.is_some() { 0 } else { libc::ESRCH }
}

/// # Safety
///
/// As libc's.
pub unsafe fn pthread_getname_np(
    _: Option<OnFiber>,
    thread: pthread_t,
    name: *mut c_char,
    bytes: usize,
) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        if !is_fibers(thread) {
            return next::pthread_getname_np(thread, name, bytes);
        }
    }
    if bytes < NAME_BYTES {
        return libc::ERANGE;
    }
    let known = match registry::find(thread) {
        Some(found) => found.lock().name,
        None if thread == own() => NAME.get(),
        None => return libc::ESRCH,
    };
    let text = known.unwrap_or_else(workers_name);
    // SAFETY: by the contract: there is room for these bytes.
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
    on: OnFiber,
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        match option {
            libc::PR_SET_NAME if is_fibers(own()) => {
                let name = CStr::from_ptr(a as *const c_char).to_bytes();
                set_name(Some(on), own(), &name[..name.len().min(NAME_BYTES - 1)])
            }
            libc::PR_GET_NAME if is_fibers(own()) => {
                (a as *mut Name).write(NAME.get().unwrap_or_else(workers_name));
                0
            }
            _ => next::prctl(option, a, b, c, d),
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
    let (address, bytes) = match (on, registry::find(thread)) {
        (Some(on), _) if thread == own() => on.fiber().stack_area(),
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
        pthread_attr_setstack(attributes, address, bytes)
    }
}

/// A fiber has no alternate stack of its own: it reads its worker's, and what it sets is ignored.
/// The worker's lives as long as the worker.
///
/// # Safety
///
/// As libc's.
pub unsafe fn sigaltstack(_: OnFiber, new: *const stack_t, old: *mut stack_t) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        let new = if is_fibers(own()) { std::ptr::null() } else { new };
        next::sigaltstack(new, old)
    }
}

/// A signal to the calling fiber itself reaches its worker's thread, on which it runs. Others
/// cannot be signalled.
///
/// # Safety
///
/// As libc's.
pub unsafe fn pthread_kill(_: Option<OnFiber>, thread: pthread_t, signal: c_int) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        match signal {
            _ if thread == own() || !is_fibers(thread) => next::pthread_kill(thread, signal),
            0 => 0,
            _ => libc::ENOTSUP,
        }
    }
}

/// Fibers are not cancelled as libc cancels threads.
///
/// # Safety
///
/// As libc's.
pub unsafe fn pthread_cancel(_: Option<OnFiber>, thread: pthread_t) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        match is_fibers(thread) {
            true => libc::ENOTSUP,
            false => next::pthread_cancel(thread),
        }
    }
}
