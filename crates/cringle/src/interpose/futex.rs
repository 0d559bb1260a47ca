//! `syscall`, which std, `parking_lot` and C++ call for futexes.
//!
//! On a fiber, a wait for a futex of this process joins the [`queue`] of its address. A wake-up, by
//! a fiber or by a thread, wakes first from that queue and then in the kernel, where threads wait.
//! A futex that other processes share is waited for by a thread of the pool.
//!
//! No cancel ends such a wait: the locks that are built on it would only wait again.

use super::call::{Call, OnFiber};
use super::next;
use super::queue::{self, Waited};
use super::ready::duration;
use super::sleep::time_of;
use libc::timespec;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The arguments of `syscall(SYS_futex, …)`.
struct Futex {
    address: usize,
    operation: c_int,
    value: u32,
    /// A time, or the second number of a requeue.
    time: usize,
    other: usize,
    value3: u32,
}

const OPTIONS: c_int = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;

/// # Safety
///
/// As libc's.
#[inline]
#[allow(clippy::too_many_arguments, reason = "they are libc's")]
pub unsafe fn syscall(
    on: Option<OnFiber>,
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if number == libc::SYS_futex {
        let futex = Futex {
            address: a,
            operation: b as c_int,
            value: c as u32,
            time: d,
            other: e,
            value3: f as u32,
        };
        // SAFETY: by the contract.
        if let Some(result) = unsafe { futex.perform(on) } {
            return result;
        }
    }
    // SAFETY: by the contract.
    unsafe { next::syscall(number, a, b, c, d, e, f) }
}

impl Futex {
    /// Performs the call, or the part of it that concerns fibers. `None` if the kernel has to
    /// perform it.
    ///
    /// # Safety
    ///
    /// As the system call's.
    unsafe fn perform(&self, on: Option<OnFiber>) -> Option<c_long> {
        const PRIORITY: [c_int; 6] = [
            libc::FUTEX_LOCK_PI,
            libc::FUTEX_UNLOCK_PI,
            libc::FUTEX_TRYLOCK_PI,
            libc::FUTEX_WAIT_REQUEUE_PI,
            libc::FUTEX_CMP_REQUEUE_PI,
            libc::FUTEX_LOCK_PI2,
        ];
        match (self.operation & !OPTIONS, on) {
            // SAFETY: by the contract.
            (libc::FUTEX_WAIT, Some(on)) => Some(unsafe { self.wait(on, u32::MAX) }),
            // SAFETY: by the contract.
            (libc::FUTEX_WAIT_BITSET, Some(on)) => Some(unsafe { self.wait(on, self.value3) }),
            (libc::FUTEX_WAKE, _) => self.wake(u32::MAX),
            (libc::FUTEX_WAKE_BITSET, _) => self.wake(self.value3),
            // A woken waiter looks again, so it is no harm to wake one that would be requeued.
            (libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE, _) => {
                queue::wake(
                    self.address,
                    u32::MAX,
                    (self.value as usize).saturating_add(self.time),
                );
                None
            }
            (libc::FUTEX_WAKE_OP, _) => {
                queue::wake(self.address, u32::MAX, self.value as usize);
                queue::wake(self.other, u32::MAX, self.time);
                None
            }
            (operation, Some(on)) if PRIORITY.contains(&operation) => {
                // The kernel would make its thread the owner.
                Some(on.call(|_| -(libc::ENOTSUP as isize)) as c_long)
            }
            _ => None,
        }
    }

    /// Wakes fibers, and leaves the rest of the number to the kernel.
    #[inline]
    fn wake(&self, mask: u32) -> Option<c_long> {
        let most = self.value as usize;
        let woken = queue::wake(self.address, mask, most);
        if woken == 0 {
            return None;
        }
        if woken < most {
            let operation = self.operation as usize;
            let rest = most - woken;
            // SAFETY: by the contract of a wake-up, which has none.
            let more = unsafe {
                let (time, other, mask) = (self.time, self.other, self.value3 as usize);
                next::syscall(libc::SYS_futex, self.address, operation, rest, time, other, mask)
            };
            return Some(woken as c_long + more.max(0));
        }
        Some(woken as c_long)
    }

    /// # Safety
    ///
    /// As the system call's.
    unsafe fn wait(&self, on: OnFiber, mask: u32) -> c_long {
        let result = on.call(|call| {
            if self.operation & libc::FUTEX_PRIVATE_FLAG == 0 {
                // SAFETY: by the contract.
                return unsafe { self.wait_on_thread(call) };
            }
            if !self.address.is_multiple_of(4) || mask == 0 {
                return -(libc::EINVAL as isize);
            }
            if self.address == 0 {
                return -(libc::EFAULT as isize);
            }
            // SAFETY: by the contract.
            let deadline = match unsafe { self.deadline(call) } {
                Ok(deadline) => deadline,
                Err(code) => return code,
            };
            // SAFETY: by the contract: the address is that of an aligned integer.
            let word = unsafe { AtomicU32::from_ptr(self.address as *mut u32) };
            let check = || word.load(Ordering::SeqCst) == self.value;
            match queue::wait(call, self.address, mask, deadline, check, || true) {
                Waited::Woken => 0,
                Waited::TimedOut => -(libc::ETIMEDOUT as isize),
                Waited::NotNeeded => -(libc::EAGAIN as isize),
            }
        });
        result as c_long
    }

    /// # Safety
    ///
    /// As the system call's.
    unsafe fn wait_on_thread(&self, call: Call) -> isize {
        let Futex { address, operation, value, time, other, value3 } = *self;
        let arguments = [address, operation as usize, value as usize, time, other, value3 as usize];
        // SAFETY: by the contract.
        unsafe { call.system_call_on_thread(libc::SYS_futex, arguments) }
    }

    /// # Safety
    ///
    /// As the system call's.
    unsafe fn deadline(&self, call: Call) -> Result<Option<Instant>, isize> {
        // SAFETY: by the contract.
        let Some(time) = (unsafe { duration(self.time as *const timespec)? }) else {
            return Ok(None);
        };
        let is_relative = self.operation & !OPTIONS == libc::FUTEX_WAIT;
        let limit = if is_relative {
            time
        } else if self.operation & libc::FUTEX_CLOCK_REALTIME != 0 {
            remaining(libc::CLOCK_REALTIME, time)
        } else {
            remaining(libc::CLOCK_MONOTONIC, time)
        };
        Ok(call.now().checked_add(limit))
    }
}

/// The time until a clock shows `time`.
pub(super) fn remaining(clock: libc::clockid_t, time: Duration) -> Duration {
    time.saturating_sub(time_of(clock))
}
