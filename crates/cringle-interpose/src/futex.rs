//! `syscall`, which std, `parking_lot` and C++ call for futexes.
//!
//! On a fiber, a wait for a futex of this process joins the [`queue`] of its address. A wake-up, by
//! a fiber or by a thread, wakes first from that queue and then in the kernel, where threads wait.
//! A wait that lasts continues in the kernel as an op of the ring, so that wake-ups without a hook
//! reach it. (To wait in the kernel from the start would make a hand-over between two fibers about
//! three times as long.) A futex that processes share is waited for by such an op from the start.
//!
//! # No wake-up is lost between the two
//!
//! A caller that wakes a waiter has changed the value before, or what the value stands for. The op
//! begins only if the value is unchanged; otherwise the wait ends as if by a wake-up. If the value
//! has changed and changed back, the waiter waits on, as a caller that arrives now would wait. That
//! is right, because a wait may end without a reason: callers decide by the value, and not by the
//! end of a wait.
//!
//! A wake-up that takes longer than a waiter stays in the queue may wake the waiter in the queue,
//! and once more in the kernel, where the waiter waits by then. The wake-up counts the waiter
//! twice, but takes nothing from other waiters: the kernel wakes the first arrival first.
//!
//! Without such an op (epoll, kernels before 6.7) the queue serves the whole wait, and a thread of
//! the pool waits for a futex that processes share.
//!
//! No cancel ends a wait without a time: the locks that are built on it would only wait again. A
//! wait with a time ends as timed out.

use super::call::{Call, OnFiber, TIMED_OUT};
use super::notes::Reason;
use super::queue::{self, Until, Waited};
use super::ready::duration;
use super::sleep::time_of;
use super::{next, own_threads, threads};
use cringle_core::worker::Worker;
use cringle_driver::Op;
use cringle_sys::{self as sys, syscall};
use libc::timespec;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
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

/// The time that a futex of this process is waited for in the queue of the process.
const SHORT: Duration = Duration::from_millis(1);

/// The longest call of a thread for a wait with a time.
const SLICE: Duration = Duration::from_millis(50);

/// The futex had another value when the wait began.
const CHANGED: isize = -(libc::EAGAIN as isize);

/// The workers that wait for a futex in the kernel, while their fibers wait with them.
static BLOCKED: AtomicUsize = AtomicUsize::new(0);

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
    let [a, b, c, d, e, f] = match unsafe { threads::admit(on, number, [a, b, c, d, e, f]) } {
        Ok(arguments) => arguments,
        Err(result) => return result,
    };
    // If the call waits, the monitor may give the fiber a thread meanwhile.
    if let Some(on) = on {
        on.leave_library();
    }
    // SAFETY: by the contract.
    let result = unsafe { next::syscall(number, a, b, c, d, e, f) };
    if let Some(on) = on {
        on.enter_library();
    }
    result
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
        let is_realtime = self.operation & libc::FUTEX_CLOCK_REALTIME != 0;
        match (self.operation & !OPTIONS, on) {
            // The kernel refuses it.
            (libc::FUTEX_WAIT, _) if is_realtime => None,
            // SAFETY: by the contract.
            (libc::FUTEX_WAIT, Some(on)) => Some(unsafe { self.wait(on, u32::MAX) }),
            // SAFETY: by the contract.
            (libc::FUTEX_WAIT_BITSET, Some(on)) => Some(unsafe { self.wait(on, self.value3) }),
            (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET, None) => {
                // SAFETY: by the contract.
                Worker::here().map(|_| unsafe { self.block() })
            }
            (libc::FUTEX_WAKE, _) => self.wake(u32::MAX),
            (libc::FUTEX_WAKE_BITSET, _) => self.wake(self.value3),
            // SAFETY: by the contract.
            (libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE, _) => Some(unsafe { self.requeue() }),
            // SAFETY: by the contract.
            (libc::FUTEX_WAKE_OP, _) => Some(unsafe { self.wake_by_operation() }),
            (operation, Some(on)) if PRIORITY.contains(&operation) => {
                // The kernel makes its thread the owner.
                match own_threads::take(Some(on), Reason::Mutex) {
                    true => None,
                    false => Some(on.call(|_| Err(-(libc::ENOTSUP as isize))) as c_long),
                }
            }
            _ => None,
        }
    }

    /// Makes the call as it is.
    ///
    /// # Safety
    ///
    /// As the system call's.
    unsafe fn in_kernel(&self) -> c_long {
        let Futex { address, operation, value, time, other, value3 } = *self;
        let (operation, value, value3) = (operation as usize, value as usize, value3 as usize);
        // SAFETY: by the contract.
        unsafe { next::syscall(libc::SYS_futex, address, operation, value, time, other, value3) }
    }

    /// A wait that blocks the worker.
    ///
    /// # Safety
    ///
    /// As the system call's.
    unsafe fn block(&self) -> c_long {
        BLOCKED.fetch_add(1, Ordering::SeqCst);
        // SAFETY: by the contract.
        let result = unsafe { self.in_kernel() };
        BLOCKED.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// The kernel compares and moves threads. The fibers of the queue that would be moved are
    /// woken, which is no harm: each looks again.
    ///
    /// # Safety
    ///
    /// As the system call's.
    unsafe fn requeue(&self) -> c_long {
        // SAFETY: by the contract.
        let in_kernel = unsafe { self.in_kernel() };
        if in_kernel < 0 {
            return in_kernel;
        }
        let most = self.most().saturating_add(self.time).saturating_sub(in_kernel as usize);
        let woken = queue::wake(self.address, u32::MAX, most);
        let counts_moved = self.operation & !OPTIONS == libc::FUTEX_CMP_REQUEUE;
        in_kernel + if counts_moved { woken } else { woken.min(self.most()) } as c_long
    }

    /// The kernel changes the other value first. The waiters find out whether the change asks for a
    /// wake-up there.
    ///
    /// # Safety
    ///
    /// As the system call's.
    unsafe fn wake_by_operation(&self) -> c_long {
        // SAFETY: by the contract.
        let in_kernel = unsafe { self.in_kernel() };
        if in_kernel < 0 {
            return in_kernel;
        }
        let woken = queue::wake(self.address, u32::MAX, self.most())
            + queue::wake(self.other, u32::MAX, (self.time as c_int).max(1) as usize);
        in_kernel + woken as c_long
    }

    /// The number that a wake-up wakes at most. As the kernel, it wakes one for 0 and less.
    #[inline]
    fn most(&self) -> usize {
        (self.value as c_int).max(1) as usize
    }

    /// Wakes fibers, and leaves the rest of the number to the kernel. One wake-up is left to the
    /// kernel if a worker is blocked: a woken fiber of that worker does nothing before the worker
    /// continues.
    #[inline]
    fn wake(&self, mask: u32) -> Option<c_long> {
        let most = self.most();
        let woken = queue::wake(self.address, mask, most);
        if woken == 0 {
            return None;
        }
        let is_blocked = BLOCKED.load(Ordering::SeqCst) > 0;
        if woken == most && !is_blocked {
            return Some(woken as c_long);
        }
        let rest = Futex { value: (most - woken).max(1) as u32, ..*self };
        // SAFETY: by the contract of a wake-up, which has none.
        let more = unsafe { rest.in_kernel() };
        Some((woken as c_long + more.max(0)).min(most as c_long))
    }

    /// # Safety
    ///
    /// As the system call's.
    unsafe fn wait(&self, on: OnFiber, mask: u32) -> c_long {
        on.call(|call| {
            if call.current.worker.is_in_use() {
                // SAFETY: by the contract.
                return match unsafe { self.block() } {
                    -1 => Err(-(sys::errno() as isize)),
                    result => Ok(result as isize),
                };
            }
            if !self.address.is_multiple_of(4) || mask == 0 {
                return Err(-(libc::EINVAL as isize));
            }
            if self.address == 0 {
                return Err(-(libc::EFAULT as isize));
            }
            // SAFETY: by the contract.
            let deadline = unsafe { self.deadline(call)? };
            let until = Until::deadline(deadline);
            let result = match (self.is_shared(), self.ring_op(call, mask)) {
                // SAFETY: by the contract.
                (true, _) if deadline.is_some() && call.is_late() => unsafe { self.look() },
                (true, Some(op)) => wait_on_ring(call, op, deadline),
                // SAFETY: by the contract.
                (true, None) => unsafe { self.wait_on_thread(call, mask, deadline) },
                // SAFETY: by the contract.
                (false, Some(op)) => unsafe { self.wait_long(call, mask, op, deadline) },
                // SAFETY: by the contract.
                (false, None) => unsafe { self.wait_in_queue(call, mask, until) },
            };
            Ok(if result == TIMED_OUT { call.timed_out(deadline) } else { result })
        }) as c_long
    }

    /// Waits in the process's queue for a short time, and then in the kernel's.
    ///
    /// # Safety
    ///
    /// As the system call's.
    unsafe fn wait_long(&self, call: Call, mask: u32, op: Op, deadline: Option<Instant>) -> isize {
        let review = Some(call.now() + SHORT);
        let until = Until { review, ..Until::deadline(deadline) };
        // SAFETY: by the contract.
        match unsafe { self.wait_in_queue(call, mask, until) } {
            TIMED_OUT if !call.is_over(deadline) => match wait_on_ring(call, op, deadline) {
                CHANGED => 0,
                result => result,
            },
            result => result,
        }
    }

    /// # Safety
    ///
    /// As the system call's.
    unsafe fn wait_in_queue(&self, call: Call, mask: u32, until: Until) -> isize {
        // SAFETY: by the contract.
        let check = || unsafe { self.look() } != CHANGED;
        match queue::wait(call, self.address, mask, until, check, || true) {
            Waited::Woken | Waited::Granted => 0,
            Waited::TimedOut => TIMED_OUT,
            Waited::NotNeeded => CHANGED,
        }
    }

    /// Returns the result of a wait that is over when it begins.
    ///
    /// # Safety
    ///
    /// As the system call's.
    unsafe fn look(&self) -> isize {
        // SAFETY: by the contract: an aligned integer is at the address.
        let word = unsafe { AtomicU32::from_ptr(self.address as *mut u32) };
        if word.load(Ordering::SeqCst) == self.value { TIMED_OUT } else { CHANGED }
    }

    fn is_shared(&self) -> bool {
        self.operation & libc::FUTEX_PRIVATE_FLAG == 0
    }

    /// The op by which the worker's ring waits, if it has one.
    fn ring_op(&self, call: Call, mask: u32) -> Option<Op> {
        let (word, is_shared) = (self.address as *const u32, self.is_shared());
        let op = Op::FutexWait { word, value: self.value, mask, is_shared };
        let here = call.current.worker;
        here.driver().borrow().performs(&op).then_some(op)
    }

    /// Waits on a thread of the pool. No cancel reaches it there: a wait with a time looks for one
    /// between calls that are short.
    ///
    /// # Safety
    ///
    /// As the system call's.
    unsafe fn wait_on_thread(&self, call: Call, mask: u32, deadline: Option<Instant>) -> isize {
        let (operation, value) = (libc::FUTEX_WAIT_BITSET as usize, self.value as usize);
        let mut changed = CHANGED;
        loop {
            let end = deadline.map(|at| monotonic(at.min(call.now() + SLICE)));
            let end = end.as_ref().map_or(0, |end| std::ptr::from_ref(end).addr());
            let arguments = [self.address, operation, value, end, 0, mask as usize];
            // SAFETY: by the contract; the time is lent until the call has returned.
            match unsafe { call.system_call_on_thread(libc::SYS_futex, arguments) } {
                TIMED_OUT if !call.is_over(deadline) => {}
                CHANGED => return changed,
                result => return result,
            }
            changed = 0;
        }
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

/// Forgets the blocked workers, in a forked child: they are the parent's.
pub(super) fn forget_all() {
    BLOCKED.store(0, Ordering::Relaxed);
}

/// Waits in the kernel's queue, by an op of the worker's ring. A cancel ends a wait with a time,
/// and that of a cancellation point any wait there.
pub(super) fn wait_on_ring(call: Call, op: Op, deadline: Option<Instant>) -> isize {
    let wait = || {
        call.current.worker.watch_at_end(call.current.fiber);
        call.perform_until(op, deadline)
    };
    let is_ended = deadline.is_some() && call.ends_timed_waits();
    let mut result =
        if is_ended || !call.current.is_interrupted() { wait() } else { call.shielded(wait) };
    let is_refused = |result: Option<isize>| result.is_some_and(|it| call.is_refusal(it));
    if is_refused(result) && !is_ended && !call.current.is_point_cancelled() {
        result = call.shielded(wait);
    }
    result.filter(|&result| !call.is_refusal(result)).unwrap_or(TIMED_OUT)
}

/// Converts a time of the library's to one of the kernel's monotonic clock.
fn monotonic(at: Instant) -> timespec {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is borrowed for the call.
    unsafe { syscall!(SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut now) };
    let left = at.saturating_duration_since(sys::now());
    let nsec = now.tv_nsec + libc::c_long::from(left.subsec_nanos() as i32);
    timespec {
        tv_sec: now.tv_sec + left.as_secs() as libc::time_t + nsec / 1_000_000_000,
        tv_nsec: nsec % 1_000_000_000,
    }
}

/// The time until a clock shows `time`.
pub(super) fn remaining(clock: libc::clockid_t, time: Duration) -> Duration {
    time.saturating_sub(time_of(clock))
}
