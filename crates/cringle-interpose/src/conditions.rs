//! pthread's condition variables and one-time initialisation.
//!
//! A fiber that waits for a condition joins the [`queue`] of its address before it releases the
//! mutex. A signal wakes a fiber, or else a thread by libc's function; a broadcast wakes all of
//! both.

use super::call::OnFiber;
use super::locks::{Limit, THREADS_IN_COND_WAIT, as_owner, lock_contended, pthread_mutex_unlock};
use super::notes::Reason;
use super::queue::{self, ANY, Until, Waited};
use super::{next, own_threads};
use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, timespec};
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// The word of a condition that has its attributes, as the number of an integer: the only one that
/// differs between conditions of two clocks. Found before `main`, because libc's versions differ.
static ATTRIBUTES: AtomicI32 = AtomicI32::new(-1);

const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// Finds the attributes in libc's conditions. If they are not found, a fiber's timed wait and the
/// wait for a shared condition are refused.
pub(super) fn find_attributes() {
    let words = |set: &dyn Fn(*mut libc::pthread_condattr_t) -> c_int| {
        // SAFETY: the contract of libc's functions: all structures are this function's.
        unsafe {
            let mut attributes = std::mem::MaybeUninit::<libc::pthread_condattr_t>::zeroed();
            let mut condition = std::mem::MaybeUninit::<[u32; 12]>::zeroed();
            libc::pthread_condattr_init(attributes.as_mut_ptr());
            set(attributes.as_mut_ptr());
            libc::pthread_cond_init(condition.as_mut_ptr().cast(), attributes.as_ptr());
            condition.assume_init()
        }
    };
    // SAFETY: the contract of libc's functions: the attributes are initialised.
    let monotonic = words(&|attributes| unsafe {
        libc::pthread_condattr_setclock(attributes, libc::CLOCK_MONOTONIC)
    });
    // SAFETY: as above.
    let shared = words(&|attributes| unsafe {
        libc::pthread_condattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED)
    });
    let only = |words: [u32; 12], value| {
        let mut others = words.iter().enumerate().filter(|&(_, &word)| word != 0);
        others
            .next()
            .filter(|&(_, &word)| word == value && others.next().is_none())
            .map(|(at, _)| at)
    };
    if let (Some(at), Some(same)) = (only(monotonic, MONOTONIC), only(shared, SHARED))
        && at == same
        && words(&|_| 0) == [0; 12]
    {
        ATTRIBUTES.store(at as i32, Ordering::Relaxed);
    }
}

/// Returns the clock of a condition; `None` if other processes share it, or if it is not known.
///
/// # Safety
///
/// The condition is valid.
unsafe fn clock_of(condition: *const pthread_cond_t) -> Option<clockid_t> {
    let at = usize::try_from(ATTRIBUTES.load(Ordering::Relaxed)).ok()?;
    // SAFETY: by the contract, and the contract of `find_attributes`.
    let word = unsafe { condition.cast::<u32>().add(at).read_volatile() };
    match word & (SHARED | MONOTONIC) {
        0 => Some(libc::CLOCK_REALTIME),
        MONOTONIC => Some(libc::CLOCK_MONOTONIC),
        _ => None,
    }
}

/// # Safety
///
/// As libc's.
unsafe fn wait(
    on: OnFiber,
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    limit: impl FnOnce(clockid_t) -> Limit,
) -> c_int {
    // SAFETY: by the contract.
    let Some(clock) = (unsafe { clock_of(condition) }) else {
        own_threads::wish(Reason::Mutex);
        return libc::ENOTSUP;
    };
    on.call_for_code(|call| {
        // SAFETY: by the contract.
        let deadline = unsafe { limit(clock).deadline(call.now())? };
        let mut error = 0;
        let release = || {
            // SAFETY: by the contract.
            error = unsafe { pthread_mutex_unlock(Some(on), mutex) };
            error == 0
        };
        let until = Until { is_point: true, ..Until::deadline(deadline) };
        let waited = queue::wait(call, condition as usize, ANY, until, || true, release);
        if error != 0 {
            return Err(-(error as isize));
        }
        let result = if waited == Waited::TimedOut { call.timed_out(deadline) } else { 0 };
        // SAFETY: by the contract.
        let locked = unsafe { lock_contended(call, mutex, Limit::NONE)? };
        Ok(if locked == 0 { result } else { locked })
    })
}

/// Calls libc's function on a thread. The fibers that wait for the mutex learn that it is about to
/// be released unseen. The call may end by the cancellation of the thread, which leaves the count
/// too high: fibers then continue to try.
///
/// # Safety
///
/// The mutex is valid.
unsafe fn on_thread(mutex: *mut pthread_mutex_t, wait: impl FnOnce() -> c_int) -> c_int {
    THREADS_IN_COND_WAIT.fetch_add(1, Ordering::SeqCst);
    queue::wake(mutex as usize, ANY, usize::MAX);
    // SAFETY: by the contract.
    let result = unsafe { as_owner(mutex, wait) };
    THREADS_IN_COND_WAIT.fetch_sub(1, Ordering::SeqCst);
    result
}

calls! {
    Option<OnFiber>:
    fn pthread_cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int;
    |on| match on {
        Some(on) => wait(on, condition, mutex, |_| Limit::NONE),
        None => on_thread(mutex, || next::pthread_cond_wait(condition, mutex)),
    };

    fn pthread_cond_timedwait(
        condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec,
    ) -> c_int;
    |on| match on {
        Some(on) => wait(on, condition, mutex, |clock| Limit::at(clock, time)),
        None => on_thread(mutex, || next::pthread_cond_timedwait(condition, mutex, time)),
    };

    fn pthread_cond_clockwait(
        condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t,
        time: *const timespec,
    ) -> c_int;
    |on| match on {
        Some(on) => wait(on, condition, mutex, |_| Limit::at(clock, time)),
        None => on_thread(mutex, || next::pthread_cond_clockwait(condition, mutex, clock, time)),
    };
}

/// # Safety
///
/// As libc's.
#[inline]
pub unsafe fn pthread_cond_signal(_: Option<OnFiber>, condition: *mut pthread_cond_t) -> c_int {
    if queue::wake(condition as usize, ANY, 1) > 0 {
        return 0;
    }
    // SAFETY: by the contract.
    unsafe { next::pthread_cond_signal(condition) }
}

/// # Safety
///
/// As libc's.
#[inline]
pub unsafe fn pthread_cond_broadcast(_: Option<OnFiber>, condition: *mut pthread_cond_t) -> c_int {
    queue::wake(condition as usize, ANY, usize::MAX);
    // SAFETY: by the contract.
    unsafe { next::pthread_cond_broadcast(condition) }
}
