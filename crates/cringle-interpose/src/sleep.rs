//! Sleeping and yielding.
//!
//! A cancel cannot be reported to C code here: std's `sleep` panics on an error that it does not
//! know, and repeats the call after `EINTR`. So a cancelled sleep ends early and reports success,
//! as any timed wait, and the fiber's next call that can fail reports the cancel. A loop that only
//! sleeps would spin then, so after a number of such calls the fiber sleeps for the whole time.

use super::call::{Call, OnFiber};
use super::next;
use super::ready::duration;
use super::threads::is_own_clock;
use cringle_core::worker::Current;
use cringle_sys::{self as sys, syscall};
use libc::{clockid_t, timespec};
use std::ffi::{c_int, c_uint};
use std::time::Duration;

/// # Safety
///
/// As libc's.
pub unsafe fn nanosleep(on: OnFiber, time: *const timespec, left: *mut timespec) -> c_int {
    on.call_int(|call| {
        if time.is_null() {
            return Err(-(libc::EFAULT as isize));
        }
        // SAFETY: by the contract.
        unsafe {
            sleep_for(call, duration(time)?);
            nothing_left(left);
        }
        Ok(0)
    })
}

/// # Safety
///
/// It is null or valid.
unsafe fn nothing_left(left: *mut timespec) {
    if !left.is_null() {
        // SAFETY: by the contract.
        unsafe { *left = timespec { tv_sec: 0, tv_nsec: 0 } };
    }
}

fn sleep_for(call: Call, limit: Option<Duration>) {
    let deadline = limit.and_then(|limit| call.now().checked_add(limit));
    sleep_until(call, || deadline);
}

/// Sleeps until the deadline, which is asked for again after each sleep.
fn sleep_until(call: Call, deadline: impl Fn() -> Option<std::time::Instant>) {
    loop {
        let at = deadline();
        if call.sleep_until(at) {
            if deadline().is_none_or(|at| at <= call.now()) {
                return;
            }
        } else if call.ends_timed_waits() {
            return call.pass_until(at);
        } else {
            call.shielded(|| call.sleep_until(at));
            return;
        }
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn clock_nanosleep(
    on: OnFiber,
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    on.call_for_code(|call| {
        if is_own_clock(clock) {
            return Err(-(libc::EINVAL as isize));
        }
        let is_absolute = flags & libc::TIMER_ABSTIME != 0;
        let is_simple = matches!(
            clock,
            libc::CLOCK_REALTIME | libc::CLOCK_TAI | libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME
        );
        if !is_simple || time.is_null() {
            // A clock of CPU time, or one that the kernel refuses.
            let arguments = [clock as usize, flags as usize, time as usize, left as usize];
            // SAFETY: by the contract.
            return Ok(unsafe { call.system_call_on_thread(libc::SYS_clock_nanosleep, arguments) });
        }
        // SAFETY: by the contract.
        let limit = unsafe { duration(time)? }.unwrap_or_default();
        if is_absolute {
            sleep_until(call, || call.now().checked_add(limit.saturating_sub(time_of(clock))));
        } else {
            sleep_for(call, Some(limit));
            // SAFETY: by the contract.
            unsafe { nothing_left(left) };
        }
        Ok(0)
    })
}

/// Whether a clock counts the time since the machine started. Of a cancelled fiber it may be ahead.
fn is_monotonic(clock: clockid_t) -> bool {
    matches!(clock, libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_BOOTTIME)
}

/// The time of a clock, as the calling fiber's caller goes by it.
pub(super) fn time_of(clock: clockid_t) -> Duration {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is borrowed for the call.
    unsafe { syscall!(SYS_clock_gettime, clock, &raw mut now) };
    let is_late = |current: &Current| !current.surely_unwinds();
    let lead = Current::get().filter(|_| is_monotonic(clock)).filter(is_late);
    let lead = lead.map_or(Duration::ZERO, |current| current.fiber.lead());
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec as u32) + lead
}

/// # Safety
///
/// As libc's.
#[inline]
pub unsafe fn clock_gettime(on: OnFiber, clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: by the contract.
    let result = unsafe { next::clock_gettime(clock, time) };
    if result == 0 && is_monotonic(clock) && !sys::is_own_look() {
        let lead = on.current.fiber.take_lead();
        // No cancel ends the waits of a fiber that unwinds.
        if !lead.is_zero() && !on.current.surely_unwinds() {
            // SAFETY: by the contract; libc has written it.
            let time = unsafe { &mut *time };
            let nsec = time.tv_nsec + libc::c_long::from(lead.subsec_nanos() as i32);
            time.tv_sec += lead.as_secs() as libc::time_t + nsec / 1_000_000_000;
            time.tv_nsec = nsec % 1_000_000_000;
        }
    }
    result
}

/// `usleep`.
pub fn usleep(on: OnFiber, us: c_uint) -> c_int {
    on.call_int(|call| {
        sleep_for(call, Some(Duration::from_micros(us.into())));
        Ok(0)
    })
}

/// `sleep`.
pub fn sleep(on: OnFiber, seconds: c_uint) -> c_uint {
    on.call(|call| {
        sleep_for(call, Some(Duration::from_secs(seconds.into())));
        Ok(0)
    }) as c_uint
}

/// `sched_yield`.
pub fn sched_yield(on: OnFiber) -> c_int {
    on.call_int(|call| {
        // An allocator may wait for its lock so.
        call.current.fiber.family().while_pinned(|| call.current.yield_now());
        Ok(0)
    })
}
