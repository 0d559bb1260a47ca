//! One-time initialisation, semaphores, barriers, spin locks, and C11's names for threads.

use super::call::OnFiber;
use super::conditions::{
    pthread_cond_broadcast, pthread_cond_signal, pthread_cond_timedwait, pthread_cond_wait,
};
use super::locks::{self, pthread_mutex_unlock};
use super::queue::{self, ANY, Until};
use super::{next, sleep};
use cringle_sys::syscall;
use libc::{pthread_barrier_t, pthread_cond_t, pthread_mutex_t, timespec};
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// The states of a `pthread_once_t`, with libc's numbers. While the routine runs, the rest of the
/// number counts the forks of the process before.
const NEW: i32 = 0;
const RUNNING: i32 = 1;
const DONE: i32 = 2;
const FORK: i32 = 4;

/// The forks of this process and its ancestors, times [`FORK`].
static FORKS: AtomicI32 = AtomicI32::new(0);

/// Has the routines that other threads of the parent have begun run again, in a forked child.
pub(super) fn count_fork() {
    FORKS.fetch_add(FORK, Ordering::Relaxed);
}

/// A number that is another one in a forked child.
pub(super) fn forks() -> i32 {
    FORKS.load(Ordering::Relaxed)
}

/// A function that initialises.
pub type Routine = extern "C-unwind" fn();

/// `pthread_once`, for every caller: in libc's own, a thread would wait for a fiber's routine in
/// the kernel.
///
/// # Safety
///
/// As libc's.
#[inline]
pub unsafe fn pthread_once(on: Option<OnFiber>, control: *mut c_int, routine: Routine) -> c_int {
    // SAFETY: by the contract.
    let word = unsafe { AtomicI32::from_ptr(control) };
    if word.load(Ordering::Acquire) != DONE {
        initialize(on, word, routine);
    }
    0
}

#[cold]
fn initialize(on: Option<OnFiber>, word: &AtomicI32, routine: Routine) {
    let running = forks() | RUNNING;
    let mut idle = NEW;
    loop {
        match word.compare_exchange(idle, running, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {
                let mut attempt = Attempt { word, outcome: NEW };
                routine();
                attempt.outcome = DONE;
                return;
            }
            Err(DONE) => return,
            Err(state) if state == running => {
                wait_for_other(on, word, state);
                idle = NEW;
            }
            // New, or run by a thread that this process has not.
            Err(state) => idle = state,
        }
    }
}

fn wait_for_other(on: Option<OnFiber>, word: &AtomicI32, state: i32) {
    let address = word.as_ptr() as usize;
    let Some(on) = on else {
        let (wait, forever) =
            (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, std::ptr::null::<timespec>());
        // SAFETY: I14. The caller's word stays while it waits.
        unsafe { syscall!(SYS_futex, address, wait, state, forever) };
        return;
    };
    on.call_for_code(|call| {
        let check = || word.load(Ordering::SeqCst) == state;
        queue::wait(call, address, ANY, Until::NEVER, check, || true);
        Ok(0)
    });
}

/// A routine that runs. If it ends by an exception, the next caller runs it again.
struct Attempt<'a> {
    word: &'a AtomicI32,
    outcome: i32,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.word.store(self.outcome, Ordering::SeqCst);
        let address = self.word.as_ptr() as usize;
        queue::wake(address, ANY, usize::MAX);
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: I14. The kernel uses only the address.
        unsafe { syscall!(SYS_futex, address, wake, i32::MAX) };
    }
}

calls! {
    OnFiber:
    fn pthread_spin_trylock(lock: *mut c_int) -> c_int;
    |on| locks::tried(on, next::pthread_spin_trylock(lock));
}

/// # Safety
///
/// As libc's.
pub unsafe fn pthread_spin_lock(on: OnFiber, lock: *mut c_int) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        match next::pthread_spin_trylock(lock) {
            libc::EBUSY => {}
            result => return result,
        }
        on.call_for_code(|call| {
            // An allocator may wait for its lock so.
            call.current.fiber.family().while_pinned(|| {
                loop {
                    call.current.yield_now();
                    match next::pthread_spin_trylock(lock) {
                        libc::EBUSY => {}
                        result => return Ok(-(result as isize)),
                    }
                }
            })
        })
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn pthread_barrier_wait(on: OnFiber, barrier: *mut pthread_barrier_t) -> c_int {
    let barrier = barrier as usize;
    // SAFETY: by the contract; the caller's memory is lent until this returns.
    on.on_thread(move || unsafe { next::pthread_barrier_wait(barrier as *mut pthread_barrier_t) })
}

const THRD_BUSY: c_int = 1;
const THRD_ERROR: c_int = 2;
const THRD_NOMEM: c_int = 3;
const THRD_TIMEDOUT: c_int = 4;

/// C11's result for a result of pthread's.
pub(super) fn c11(result: c_int) -> c_int {
    match result {
        0 => 0,
        libc::EBUSY => THRD_BUSY,
        libc::ENOMEM => THRD_NOMEM,
        libc::ETIMEDOUT => THRD_TIMEDOUT,
        _ => THRD_ERROR,
    }
}

// libc's types are pthread's by other names.
calls! {
    OnFiber:
    fn mtx_lock(mutex: *mut pthread_mutex_t) -> c_int;
    |on| c11(locks::pthread_mutex_lock(Some(on), mutex));

    fn mtx_trylock(mutex: *mut pthread_mutex_t) -> c_int;
    |on| c11(locks::pthread_mutex_trylock(Some(on), mutex));

    fn mtx_timedlock(mutex: *mut pthread_mutex_t, time: *const timespec) -> c_int;
    |on| c11(locks::pthread_mutex_timedlock(Some(on), mutex, time));

    fn thrd_yield() -> ();
    |on| { sleep::sched_yield(on); };
}

calls! {
    Option<OnFiber>:
    fn mtx_unlock(mutex: *mut pthread_mutex_t) -> c_int;
    |on| c11(pthread_mutex_unlock(on, mutex));

    fn cnd_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int;
    |on| c11(pthread_cond_wait(on, condition, mutex));

    fn cnd_timedwait(
        condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec,
    ) -> c_int;
    |on| c11(pthread_cond_timedwait(on, condition, mutex, time));

    fn cnd_signal(condition: *mut pthread_cond_t) -> c_int;
    |on| c11(pthread_cond_signal(on, condition));

    fn cnd_broadcast(condition: *mut pthread_cond_t) -> c_int;
    |on| c11(pthread_cond_broadcast(on, condition));

    fn call_once(control: *mut c_int, routine: Routine) -> ();
    |on| { pthread_once(on, control, routine); };
}

/// # Safety
///
/// As libc's.
pub unsafe fn thrd_sleep(on: OnFiber, time: *const timespec, left: *mut timespec) -> c_int {
    const INVALID: c_int = -2;
    // SAFETY: by the contract.
    match unsafe { sleep::clock_nanosleep(on, libc::CLOCK_REALTIME, 0, time, left) } {
        0 => 0,
        _ => INVALID,
    }
}
