//! Waits for POSIX semaphores.
//!
//! glibc (2.21 and later, where a word has 64 bits) keeps the value of a semaphore in the low half
//! of a word, and the number of those that wait for it in the high half. A fiber counts itself
//! there and waits for the futex of the value on the ring, as a thread does in the kernel: so
//! libc's own `sem_post` wakes it, also in a signal handler, and nothing touches the semaphore until
//! then. A program may free a semaphore under threads that never run again, as CPython does at its
//! end.
//!
//! Without futexes on the ring (Linux 6.7), the fiber polls.

use super::call::{Call, OnFiber, TIMED_OUT};
use super::futex::wait_on_ring;
use super::locks::{self, Limit};
use super::next;
use cringle_driver::Op;
use cringle_sys as sys;
use libc::{clockid_t, sem_t, timespec};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One that waits, in the word.
const WAITER: u64 = 1 << 32;
const CHANGED: isize = -(libc::EAGAIN as isize);

/// glibc's `struct new_sem`.
#[repr(C)]
struct Semaphore {
    value_and_waiters: AtomicU64,
    /// Not 0 if processes share it.
    is_shared: c_int,
}

impl Semaphore {
    /// The op that waits while the value is 0, if the worker's ring has it.
    fn wait_op(&self, call: Call) -> Option<Op> {
        let half = usize::from(cfg!(target_endian = "big"));
        let word = self.value_and_waiters.as_ptr().cast::<u32>().wrapping_add(half);
        let is_shared = self.is_shared != 0;
        let op = Op::FutexWait { word, value: 0, mask: u32::MAX, is_shared };
        call.current.worker.driver().borrow().performs(&op).then_some(op)
    }

    /// Waits as one that is counted, until the value is taken or the time has passed.
    fn wait(&self, call: Call, op: Op, deadline: Option<Instant>) -> isize {
        let mut now = self.value_and_waiters.fetch_add(WAITER, Ordering::SeqCst) + WAITER;
        loop {
            if now as u32 == 0 {
                if call.is_over(deadline) || call.current.is_point_cancelled() {
                    self.value_and_waiters.fetch_sub(WAITER, Ordering::SeqCst);
                    return TIMED_OUT;
                }
                match wait_on_ring(call, op, deadline) {
                    0 | CHANGED | TIMED_OUT => {}
                    code => {
                        self.value_and_waiters.fetch_sub(WAITER, Ordering::SeqCst);
                        return code;
                    }
                }
                now = self.value_and_waiters.load(Ordering::SeqCst);
                continue;
            }
            let (order, taken) = (Ordering::SeqCst, now - 1 - WAITER);
            match self.value_and_waiters.compare_exchange_weak(now, taken, order, order) {
                Ok(_) => return 0,
                Err(changed) => now = changed,
            }
        }
    }
}

/// # Safety
///
/// As libc's.
unsafe fn wait_for_permit(on: OnFiber, semaphore: *mut sem_t, limit: Limit) -> c_int {
    // SAFETY: by the contract.
    let attempt = || unsafe {
        match next::sem_trywait(semaphore) {
            0 => Some(0),
            _ if sys::errno() == libc::EAGAIN => None,
            _ => Some(-(sys::errno() as isize)),
        }
    };
    on.call_int(|call| {
        if let Some(result) = attempt() {
            return Ok(result);
        }
        // SAFETY: by the contract.
        let deadline = unsafe { limit.deadline(call.now())? };
        let is_over = || call.is_over(deadline) || call.current.is_point_cancelled();
        let poll = || call.poll_to_the_end(|| attempt().or_else(|| is_over().then_some(TIMED_OUT)));
        // SAFETY: by the contract.
        let words = unsafe { &*semaphore.cast::<Semaphore>() };
        let op = if call.current.worker.is_in_use() { None } else { words.wait_op(call) };
        let wait = || op.map_or_else(poll, |op| words.wait(call, op, deadline));
        // An allocator may wait for its lock so.
        match call.current.fiber.family().while_pinned(wait) {
            TIMED_OUT => Err(call.timed_out(deadline)),
            result => Ok(result),
        }
    })
}

calls! {
    OnFiber:
    fn sem_wait(semaphore: *mut sem_t) -> c_int;
    |on| wait_for_permit(on, semaphore, Limit::NONE);

    fn sem_timedwait(semaphore: *mut sem_t, time: *const timespec) -> c_int;
    |on| wait_for_permit(on, semaphore, Limit::at(libc::CLOCK_REALTIME, time));

    fn sem_clockwait(semaphore: *mut sem_t, clock: clockid_t, time: *const timespec) -> c_int;
    |on| wait_for_permit(on, semaphore, Limit::at(clock, time));
}

/// # Safety
///
/// As libc's.
pub unsafe fn sem_trywait(on: OnFiber, semaphore: *mut sem_t) -> c_int {
    // SAFETY: by the contract.
    let result = unsafe { next::sem_trywait(semaphore) };
    locks::tried(on, if result == 0 { 0 } else { libc::EBUSY });
    result
}
