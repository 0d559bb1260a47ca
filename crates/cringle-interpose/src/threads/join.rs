//! Waiting for a thread, and detaching it.
//!
//! A fiber waits for a thread of the system on a thread of the pool, and until a time by trying.
//! The wait for a thread that is a fiber is a wait for a futex. A cancel ends only waits with a
//! time.

use super::super::call::{OnFiber, TIMED_OUT};
use super::super::locks::Limit;
use super::super::queue::{self, Until};
use super::super::{next, waits};
use super::registry::{self, Progress, Thread};
use super::{is_fibers, own};
use cringle_core::interposition::release_block;
use cringle_sys as sys;
use libc::{clockid_t, pthread_t, timespec};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// How long a caller waits.
#[derive(Clone, Copy)]
enum Patience {
    None,
    Until(Limit),
}

calls! {
    Option<OnFiber>:
    fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    |on| {
        if is_fibers(thread) {
            return join(on, thread, result, Patience::Until(Limit::NONE));
        }
        let result = result as usize;
        let call = move || next::pthread_join(thread, result as *mut *mut c_void);
        wait_for_system(on, thread, call)
    };

    fn pthread_tryjoin_np(thread: pthread_t, result: *mut *mut c_void) -> c_int,
        next if !is_fibers(thread);
    |_| join(None, thread, result, Patience::None);

    fn pthread_timedjoin_np(
        thread: pthread_t, result: *mut *mut c_void, time: *const timespec,
    ) -> c_int;
    |on| match on {
        _ if is_fibers(thread) => join(on, thread, result, until(libc::CLOCK_REALTIME, time)),
        Some(on) => try_until(on, thread, result, libc::CLOCK_REALTIME, time),
        None => next::pthread_timedjoin_np(thread, result, time),
    };

    fn pthread_clockjoin_np(
        thread: pthread_t, result: *mut *mut c_void, clock: clockid_t, time: *const timespec,
    ) -> c_int;
    |on| match on {
        _ if is_fibers(thread) => join(on, thread, result, until(clock, time)),
        Some(on) => try_until(on, thread, result, clock, time),
        None => next::pthread_clockjoin_np(thread, result, clock, time),
    };

    fn pthread_detach(thread: pthread_t) -> c_int, next if !is_fibers(thread);
    |_| detach(thread);

    fn thrd_detach(thread: pthread_t) -> c_int;
    |on| waits::c11(pthread_detach(on, thread));
}

fn until(clock: clockid_t, time: *const timespec) -> Patience {
    Patience::Until(if time.is_null() { Limit::NONE } else { Limit::at(clock, time) })
}

/// # Safety
///
/// As libc's.
pub unsafe fn thrd_join(on: Option<OnFiber>, thread: pthread_t, result: *mut c_int) -> c_int {
    let mut value = std::ptr::null_mut();
    // SAFETY: by the contract. C11's threads are pthread's.
    unsafe {
        let code = pthread_join(on, thread, &mut value);
        if code == 0 && !result.is_null() {
            *result = value.addr() as c_int;
        }
        waits::c11(code)
    }
}

/// Waits for a thread of the system: on a fiber, by a thread of the pool.
///
/// # Safety
///
/// As the call's: the caller's memory is lent until this returns.
unsafe fn wait_for_system(
    on: Option<OnFiber>,
    thread: pthread_t,
    call: impl FnOnce() -> c_int + Send,
) -> c_int {
    match on {
        None => call(),
        Some(_) if thread == own() => libc::EDEADLK,
        Some(on) => on.on_thread(call),
    }
}

/// Waits on a fiber for a thread of the system until a time.
///
/// # Safety
///
/// As libc's.
unsafe fn try_until(
    on: OnFiber,
    thread: pthread_t,
    result: *mut *mut c_void,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    if time.is_null() {
        // SAFETY: by the contract: libc waits for ever.
        return unsafe { pthread_join(Some(on), thread, result) };
    }
    if thread == own() {
        return libc::EDEADLK;
    }
    on.call_for_code(|call| {
        // SAFETY: by the contract.
        let deadline = unsafe { Limit::at(clock, time).deadline(call.now())? };
        // SAFETY: by the contract.
        let result =
            call.poll_to_the_end(|| match unsafe { next::pthread_tryjoin_np(thread, result) } {
                libc::EBUSY => call.is_over(deadline).then_some(TIMED_OUT),
                code => Some(-(code as isize)),
            });
        Ok(if result == TIMED_OUT { call.timed_out(deadline) } else { result })
    })
}

/// Waits for a thread that is a fiber.
///
/// # Safety
///
/// As libc's.
unsafe fn join(
    on: Option<OnFiber>,
    handle: pthread_t,
    result: *mut *mut c_void,
    patience: Patience,
) -> c_int {
    let is_own = handle == own();
    let thread = match registry::find(handle) {
        // libc asks first whether it has ended.
        Some(thread) if matches!(patience, Patience::None) && !is_over(&thread) => {
            return libc::EBUSY;
        }
        _ if is_own => {
            // It has not ended: it calls this.
            return if matches!(patience, Patience::None) { libc::EBUSY } else { libc::EDEADLK };
        }
        Some(thread) => thread,
        // Of another fiber there is no end to wait for.
        None => return libc::EINVAL,
    };
    {
        let mut state = thread.lock();
        if state.is_detached || state.is_joined {
            return libc::EINVAL;
        }
        state.is_joined = true;
    }
    let code = match (patience, on) {
        (Patience::None, _) => 0,
        // SAFETY: by the contract.
        (Patience::Until(limit), Some(on)) => unsafe { wait_on_fiber(on, &thread, limit) },
        // SAFETY: by the contract.
        (Patience::Until(limit), None) => unsafe { wait_on_thread(&thread, limit) },
    };
    if code != 0 {
        thread.lock().is_joined = false;
        return code;
    }
    let value = release(&thread);
    if !result.is_null() {
        // SAFETY: by the contract.
        unsafe { *result = std::ptr::with_exposed_provenance_mut(value) };
    }
    0
}

fn is_over(thread: &Thread) -> bool {
    matches!(thread.lock().progress, Progress::Ended(_))
}

/// Gives up the block of a thread that has ended. Returns the thread's value.
fn release(thread: &Thread) -> usize {
    let mut state = thread.lock();
    let value = state.value;
    let progress = std::mem::replace(&mut state.progress, Progress::Running);
    drop(state);
    thread.forget();
    if let Progress::Ended(block) = progress {
        release_block(block);
    }
    value
}

/// # Safety
///
/// The limit's time is valid.
unsafe fn wait_on_fiber(on: OnFiber, thread: &Thread, limit: Limit) -> c_int {
    on.call_for_code(|call| {
        // SAFETY: by the contract.
        let deadline = unsafe { limit.deadline(call.now())? };
        while !is_over(thread) {
            if call.is_over(deadline) {
                return Err(call.timed_out(deadline));
            }
            if call.current.is_point_cancelled() {
                return Err(-(libc::ECANCELED as isize));
            }
            let goes_on = || !is_over(thread);
            let until = Until { is_point: true, ..Until::deadline(deadline) };
            queue::wait(call, thread.address(), u32::MAX, until, goes_on, || true);
        }
        Ok(0)
    })
}

/// # Safety
///
/// The limit's time is valid.
unsafe fn wait_on_thread(thread: &Thread, limit: Limit) -> c_int {
    // SAFETY: by the contract.
    let deadline = match unsafe { limit.deadline(sys::now()) } {
        Ok(deadline) => deadline,
        Err(code) => return -code as c_int,
    };
    let mut state = thread.lock();
    while !matches!(state.progress, Progress::Ended(_)) {
        let left = deadline.map(|at| at.saturating_duration_since(sys::now()));
        if left == Some(Duration::ZERO) {
            return libc::ETIMEDOUT;
        }
        state = thread.wait(state, left);
    }
    0
}

fn detach(handle: pthread_t) -> c_int {
    let Some(thread) = registry::find(handle) else { return libc::EINVAL };
    let mut state = thread.lock();
    if state.is_detached || state.is_joined {
        return libc::EINVAL;
    }
    state.is_detached = true;
    let has_ended = matches!(state.progress, Progress::Ended(_));
    drop(state);
    if has_ended {
        release(&thread);
    }
    0
}
