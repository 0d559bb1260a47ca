//! pthread's locks on fibers.
//!
//! libc's algorithms and structures stay: a lock is tried by libc's `…_try…` function, which never
//! waits. A fiber that would wait joins the [`queue`] of the lock's address instead, tries again
//! under the queue's lock, and is woken by the interposed unlock, which threads call, too. So
//! threads and fibers share locks.
//!
//! Two things release a lock unseen. libc's `pthread_cond_wait` releases the mutex within; the
//! interposed one announces it to the waiting fibers before, and they try again from time to time
//! while a thread is in there. Other processes release what they share; such locks are tried again
//! from time to time as well.
//!
//! No cancel ends the wait for a lock: C code expects to hold it afterwards. A wait with a time
//! ends as timed out.
//!
//! A mutex that lends priority, is robust, or is owned across processes has a thread of the kernel
//! as its owner. Such mutexes are libc's alone: a fiber that locks one becomes a thread of the
//! system. On a thread of its own, each call for such a mutex shows libc
//! [the thread's number](cringle_tls::with_kernels_number).
//!
//! A mutex's owner and kind are at the places of `<bits/struct_mutex.h>`, which static initialisers
//! have fixed.

use super::call::{Call, OnFiber};
use super::futex::remaining;
use super::notes::Reason;
use super::queue::{self, ANY, Until, Waited};
use super::ready::duration;
use super::threads::interruptible;
use super::{next, own_threads, owned_locks};
use cringle_core::hazards;
use cringle_core::interposition::is_on_own_thread;
use libc::{clockid_t, pthread_mutex_t, pthread_rwlock_t, timespec};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The first and the longest time between two tries of a lock that may be released unseen.
const FIRST_TRY: Duration = Duration::from_millis(1);
const LONGEST_TRY: Duration = Duration::from_millis(10);

/// The fibers that the release of a mutex wakes. A woken fiber runs a turn later, and wakes others
/// when it releases the mutex. If each woke one, many that wait for a mutex which nobody uses any
/// more would pass a turn each.
const WOKEN_BY_UNLOCK: usize = 4;

/// The tries of a lock after which its owner gives it to the waiter.
const MOST_FAILURES: u32 = 8;

/// The threads that are in libc's `pthread_cond_wait`, which releases a mutex unseen.
pub(super) static THREADS_IN_COND_WAIT: AtomicUsize = AtomicUsize::new(0);

/// The limit of a wait: none, or a time of a clock.
#[derive(Clone, Copy)]
pub(super) struct Limit(Option<(clockid_t, *const timespec)>);

impl Limit {
    pub(super) const NONE: Limit = Limit(None);

    pub(super) fn at(clock: clockid_t, time: *const timespec) -> Limit {
        Limit(Some((clock, time)))
    }

    /// # Safety
    ///
    /// The time is valid.
    pub(super) unsafe fn deadline(self, now: Instant) -> Result<Option<Instant>, isize> {
        let Some((clock, time)) = self.0 else { return Ok(None) };
        if !matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC) {
            return Err(-(libc::EINVAL as isize));
        }
        // SAFETY: by the contract.
        if unsafe { time.as_ref() }.is_some_and(|time| time.tv_sec < 0) {
            // For libc it has passed.
            return Ok(Some(now));
        }
        // SAFETY: by the contract.
        let time = unsafe { duration(time)? }.unwrap_or_default();
        Ok(now.checked_add(remaining(clock, time)))
    }
}

/// Waits for a lock. `attempt` returns `EBUSY` while it is held. In [`interruptible`] the wait is a
/// point, and fails with `ECANCELED` if a signal ends it.
///
/// # Safety
///
/// The limit's time is valid.
pub(super) unsafe fn wait_for(
    call: Call,
    address: usize,
    limit: Limit,
    is_shared: bool,
    is_point: bool,
    attempt: impl Fn() -> c_int,
) -> Result<isize, isize> {
    // SAFETY: by the contract.
    let deadline = unsafe { limit.deadline(call.now())? };
    let (mut pause, mut failures) = (FIRST_TRY, 0);
    loop {
        let mut result = libc::EBUSY;
        let may_be_unseen = || is_shared || THREADS_IN_COND_WAIT.load(Ordering::SeqCst) > 0;
        let review = may_be_unseen().then(|| call.now() + pause);
        let until = Until { deadline, review, is_point, starves: failures >= MOST_FAILURES };
        let check = || {
            result = attempt();
            result == libc::EBUSY
        };
        // A thread that is about to release it unseen has announced that before this waiter joined
        // the queue, or wakes the waiter.
        let is_seen = || review.is_some() || !may_be_unseen();
        let waited = queue::wait(call, address, ANY, until, check, is_seen);
        if waited == Waited::Granted {
            return Ok(0);
        }
        if result != libc::EBUSY {
            return Ok(-(result as isize));
        }
        failures += 1;
        if is_point && call.current.is_point_cancelled() {
            return Err(-(libc::ECANCELED as isize));
        }
        if waited == Waited::TimedOut {
            if call.is_over(deadline) {
                return Ok(match attempt() {
                    libc::EBUSY => call.timed_out(deadline),
                    result => -(result as isize),
                });
            }
            pause = (pause * 2).min(LONGEST_TRY);
        }
    }
}

/// A mutex's kind, by the bits of `<bits/struct_mutex.h>`.
#[derive(Clone, Copy)]
struct MutexKind(c_int);

impl MutexKind {
    const ROBUST: c_int = 0x10;
    const INHERITS: c_int = 0x20;
    const PROTECTS: c_int = 0x40;
    const SHARED: c_int = 0x80;

    /// # Safety
    ///
    /// The mutex is valid.
    unsafe fn of(mutex: *const pthread_mutex_t) -> MutexKind {
        // SAFETY: by the contract: the kind is the fifth integer.
        MutexKind(unsafe { mutex.cast::<c_int>().add(4).read_volatile() })
    }

    fn checks_owner(self) -> bool {
        matches!(self.0 & 3, libc::PTHREAD_MUTEX_RECURSIVE | libc::PTHREAD_MUTEX_ERRORCHECK)
    }

    /// Whether the kernel or another process knows the owner, or the lock changes the priority of
    /// its thread.
    fn is_of_kernel(self) -> bool {
        self.0 & (MutexKind::ROBUST | MutexKind::INHERITS | MutexKind::PROTECTS) != 0
            || self.is_shared() && self.checks_owner()
    }

    fn is_shared(self) -> bool {
        self.0 & MutexKind::SHARED != 0
    }

    /// Whether libc lets any thread unlock it.
    fn has_any_owner(self) -> bool {
        !(self.is_of_kernel() || self.is_shared() || self.checks_owner())
    }
}

/// Calls libc's function for a mutex, with the number of the kernel's thread as the owner's if the
/// mutex is of that kind.
///
/// # Safety
///
/// The mutex is valid.
#[inline]
pub(super) unsafe fn as_owner(
    mutex: *const pthread_mutex_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the contract.
    if unsafe { MutexKind::of(mutex) }.is_of_kernel() && is_on_own_thread() {
        // SAFETY: I14. A fiber that has locked such a mutex stays on its own thread.
        return unsafe { cringle_tls::with_kernels_number(call) };
    }
    call()
}

calls! {
    Option<OnFiber>:
    fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int;
    |on| lock(on, mutex, Limit::NONE, || next::pthread_mutex_lock(mutex));

    fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, time: *const timespec) -> c_int;
    |on| {
        let limit = Limit::at(libc::CLOCK_REALTIME, time);
        lock(on, mutex, limit, || next::pthread_mutex_timedlock(mutex, time))
    };

    fn pthread_mutex_clocklock(
        mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec,
    ) -> c_int;
    |on| {
        let limit = Limit::at(clock, time);
        lock(on, mutex, limit, || next::pthread_mutex_clocklock(mutex, clock, time))
    };

    fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int;
    |on| match on_fiber(on, mutex) {
        Ok(on) => {
            let result = tried(on, next::pthread_mutex_trylock(mutex));
            detect(on, mutex, result);
            result
        }
        Err(Refused) => libc::ENOTSUP,
        Err(Plain) => as_owner(mutex, || next::pthread_mutex_trylock(mutex)),
    };

    fn pthread_mutex_consistent(mutex: *mut pthread_mutex_t) -> c_int;
    |_| as_owner(mutex, || next::pthread_mutex_consistent(mutex));

    fn pthread_mutex_setprioceiling(
        mutex: *mut pthread_mutex_t, new: c_int, old: *mut c_int,
    ) -> c_int;
    |on| match on_fiber(on, mutex) {
        Err(Refused) => libc::ENOTSUP,
        _ => as_owner(mutex, || next::pthread_mutex_setprioceiling(mutex, new, old)),
    };
}

/// How a caller that is no fiber, or no more, locks a mutex.
enum Locker {
    /// By libc's function.
    Plain,
    /// Not at all: it cannot become a thread of the system.
    Refused,
}
use Locker::{Plain, Refused};

/// Returns the caller, if it locks a mutex as a fiber.
///
/// # Safety
///
/// The mutex is valid.
unsafe fn on_fiber(on: Option<OnFiber>, mutex: *const pthread_mutex_t) -> Result<OnFiber, Locker> {
    // SAFETY: by the contract.
    if unsafe { MutexKind::of(mutex) }.is_of_kernel() {
        let is_thread = own_threads::take(on, Reason::Mutex) || on.is_none();
        return Err(if is_thread { Plain } else { Refused });
    }
    on.ok_or(Plain)
}

/// Lets the hazard detector list a mutex that knows its owner. `result` is what a lock returned.
///
/// # Safety
///
/// The mutex is valid.
#[inline]
unsafe fn detect(on: OnFiber, mutex: *const pthread_mutex_t, result: c_int) {
    // SAFETY: by the contract: the count is the second integer.
    unsafe {
        if !hazards::is_active() || !MutexKind::of(mutex).checks_owner() {
            return;
        }
        match result {
            0 => {
                let count = mutex.cast::<u32>().add(1).read_volatile();
                owned_locks::entered(on.current, mutex.addr(), count.max(1));
            }
            libc::EDEADLK => owned_locks::refused(on.current, mutex.addr()),
            _ => {}
        }
    }
}

/// Counts a try, and returns its result: a loop of failures lets other fibers run.
pub(super) fn tried(on: OnFiber, result: c_int) -> c_int {
    if result == libc::EBUSY {
        on.call_for_code(|call| {
            call.current.tried(false);
            Ok(0)
        });
    }
    result
}

/// # Safety
///
/// As libc's.
#[inline]
unsafe fn lock(
    on: Option<OnFiber>,
    mutex: *mut pthread_mutex_t,
    limit: Limit,
    plain: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        match on_fiber(on, mutex) {
            Ok(on) => {
                let result = lock_undetected(on, mutex, limit);
                detect(on, mutex, result);
                result
            }
            Err(Refused) => libc::ENOTSUP,
            Err(Plain) => as_owner(mutex, plain),
        }
    }
}

/// # Safety
///
/// As libc's.
unsafe fn lock_undetected(on: OnFiber, mutex: *mut pthread_mutex_t, limit: Limit) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        let kind = MutexKind::of(mutex);
        match next::pthread_mutex_trylock(mutex) {
            libc::EBUSY => {}
            result => return result,
        }
        if kind.0 & 3 == libc::PTHREAD_MUTEX_ERRORCHECK && owner(mutex) == own_number() {
            return libc::EDEADLK;
        }
        let wait = |is_point| on.call_for_code(|call| lock_contended(call, mutex, limit, is_point));
        interruptible(on, wait, || match limit.0 {
            None => next::pthread_mutex_lock(mutex),
            Some((clock, time)) => next::pthread_mutex_clocklock(mutex, clock, time),
        })
    }
}

/// # Safety
///
/// As libc's.
pub(super) unsafe fn lock_contended(
    call: Call,
    mutex: *mut pthread_mutex_t,
    limit: Limit,
    is_point: bool,
) -> Result<isize, isize> {
    // SAFETY: by the contract.
    unsafe {
        let is_shared = MutexKind::of(mutex).is_shared();
        let attempt = || next::pthread_mutex_trylock(mutex);
        wait_for(call, mutex as usize, limit, is_shared, is_point, attempt)
    }
}

/// # Safety
///
/// The mutex is valid.
unsafe fn owner(mutex: *const pthread_mutex_t) -> c_int {
    // SAFETY: by the contract: the owner is the third integer.
    unsafe { mutex.cast::<c_int>().add(2).read_volatile() }
}

/// The number by which libc knows the caller as an owner.
fn own_number() -> c_int {
    let mut mutex = libc::PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    // SAFETY: the contract of libc's functions: the mutex is initialised, and no other code uses
    // it.
    unsafe {
        next::pthread_mutex_lock(&mut mutex);
        let own = owner(&mutex);
        next::pthread_mutex_unlock(&mut mutex);
        own
    }
}

/// # Safety
///
/// As libc's.
#[inline]
pub unsafe fn pthread_mutex_unlock(on: Option<OnFiber>, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: by the contract.
    if hazards::is_active() && on.is_some() && unsafe { MutexKind::of(mutex) }.checks_owner() {
        owned_locks::left(mutex.addr());
    }
    // SAFETY: by the contract.
    if unsafe { MutexKind::of(mutex) }.has_any_owner() && queue::grant(mutex as usize) {
        return 0;
    }
    // SAFETY: by the contract.
    let result = unsafe { as_owner(mutex, || next::pthread_mutex_unlock(mutex)) };
    // Another thread may have freed the mutex by now: only its address is used.
    queue::wake_after_release(mutex as usize, WOKEN_BY_UNLOCK);
    result
}

/// Whether a reader-writer lock is shared with other processes.
///
/// # Safety
///
/// The lock is valid.
unsafe fn is_shared(lock: *const pthread_rwlock_t) -> bool {
    // SAFETY: by the contract: it is the eighth integer in `<bits/struct_rwlock.h>`.
    unsafe { lock.cast::<c_int>().add(7).read_volatile() != 0 }
}

/// Whether the caller holds a reader-writer lock as its writer.
///
/// # Safety
///
/// The lock is valid.
unsafe fn is_writer(lock: *const pthread_rwlock_t) -> bool {
    // SAFETY: by the contract: it is the seventh integer in `<bits/struct_rwlock.h>`.
    let writer = unsafe { lock.cast::<c_int>().add(6).read_volatile() };
    writer != 0 && writer == own_number()
}

type TryLock = unsafe extern "C-unwind" fn(*mut pthread_rwlock_t) -> c_int;

/// # Safety
///
/// As libc's.
unsafe fn lock_rwlock(
    on: OnFiber,
    lock: *mut pthread_rwlock_t,
    limit: Limit,
    attempt: TryLock,
    plain: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the contract.
    unsafe {
        match attempt(lock) {
            libc::EBUSY => {}
            result => return result,
        }
        if is_writer(lock) {
            return libc::EDEADLK;
        }
        let is_shared = is_shared(lock);
        let attempt = || attempt(lock);
        let wait = |is_point| {
            on.call_for_code(|call| {
                wait_for(call, lock as usize, limit, is_shared, is_point, attempt)
            })
        };
        interruptible(on, wait, plain)
    }
}

macro_rules! rwlocks {
    ($($name:ident, $timed:ident, $clocked:ident, $tried:ident;)*) => {$(calls! {
        OnFiber:
        fn $name(lock: *mut pthread_rwlock_t) -> c_int;
        |on| lock_rwlock(on, lock, Limit::NONE, next::$tried, || next::$name(lock));

        fn $timed(lock: *mut pthread_rwlock_t, time: *const timespec) -> c_int;
        |on| {
            let limit = Limit::at(libc::CLOCK_REALTIME, time);
            lock_rwlock(on, lock, limit, next::$tried, || next::$timed(lock, time))
        };

        fn $clocked(
            lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec,
        ) -> c_int;
        |on| {
            let limit = Limit::at(clock, time);
            lock_rwlock(on, lock, limit, next::$tried, || next::$clocked(lock, clock, time))
        };

        fn $tried(lock: *mut pthread_rwlock_t) -> c_int;
        |on| tried(on, next::$tried(lock));
    })*};
}

rwlocks! {
    pthread_rwlock_rdlock, pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock,
        pthread_rwlock_tryrdlock;
    pthread_rwlock_wrlock, pthread_rwlock_timedwrlock, pthread_rwlock_clockwrlock,
        pthread_rwlock_trywrlock;
}

/// # Safety
///
/// As libc's.
#[inline]
pub unsafe fn pthread_rwlock_unlock(_: Option<OnFiber>, lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: by the contract.
    let result = unsafe { next::pthread_rwlock_unlock(lock) };
    // All readers may continue at once, or one writer.
    queue::wake_after_release(lock as usize, usize::MAX);
    result
}
