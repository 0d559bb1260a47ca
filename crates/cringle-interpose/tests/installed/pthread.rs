//! pthread's locks, as C libraries call them.

use crate::common::{on_both_drivers, on_one_and_two_workers};
use cringle::fiber;
use libc::*;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const FIBERS: usize = 20;

unsafe extern "C" {
    fn pthread_once(control: *mut c_int, routine: extern "C" fn()) -> c_int;
    fn mtx_lock(mutex: *mut pthread_mutex_t) -> c_int;
    fn mtx_trylock(mutex: *mut pthread_mutex_t) -> c_int;
    fn mtx_unlock(mutex: *mut pthread_mutex_t) -> c_int;
}

fn pause() {
    thread::sleep(Duration::from_micros(200));
}

/// An object of C that fibers and threads share.
struct Shared<T>(UnsafeCell<T>);

// SAFETY: pthread's functions synchronise their callers.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn new(value: T) -> Shared<T> {
        Shared(UnsafeCell::new(value))
    }

    fn get(&self) -> *mut T {
        self.0.get()
    }
}

fn mutex(set: impl FnOnce(*mut pthread_mutexattr_t) -> c_int) -> Shared<pthread_mutex_t> {
    // SAFETY: the structures are initialised by libc's functions.
    unsafe {
        let mut attributes = MaybeUninit::uninit();
        assert_eq!(pthread_mutexattr_init(attributes.as_mut_ptr()), 0);
        assert_eq!(set(attributes.as_mut_ptr()), 0);
        let mut mutex = MaybeUninit::uninit();
        assert_eq!(pthread_mutex_init(mutex.as_mut_ptr(), attributes.as_ptr()), 0);
        Shared::new(mutex.assume_init())
    }
}

fn mutex_of_type(kind: c_int) -> Shared<pthread_mutex_t> {
    // SAFETY: the attributes are initialised.
    mutex(|attributes| unsafe { pthread_mutexattr_settype(attributes, kind) })
}

/// The time of `CLOCK_REALTIME` after these milliseconds.
fn after_ms(clock: clockid_t, ms: i64) -> timespec {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is borrowed for the call.
    unsafe { clock_gettime(clock, &mut time) };
    time.tv_nsec += ms * 1_000_000;
    time.tv_sec += time.tv_nsec / 1_000_000_000;
    time.tv_nsec %= 1_000_000_000;
    time
}

#[test]
fn many_fibers_pass_a_mutex_in_a_few_turns() {
    const WAITING: usize = 64;
    on_both_drivers(|| {
        let lock = mutex_of_type(PTHREAD_MUTEX_NORMAL);
        let (arrived, passed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // SAFETY: the mutex is initialised.
        let take = || assert_eq!(unsafe { pthread_mutex_lock(lock.get()) }, 0);
        // SAFETY: its owner unlocks it.
        let release = || assert_eq!(unsafe { pthread_mutex_unlock(lock.get()) }, 0);
        let turns_until_all = |count: &AtomicUsize| {
            let has_all = || count.load(Ordering::SeqCst) == WAITING;
            std::iter::repeat_with(fiber::yield_now).take_while(|()| !has_all()).count()
        };
        take();
        fiber::scope(|s| {
            for _ in 0..WAITING {
                s.spawn(|| {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    take();
                    passed.fetch_add(1, Ordering::SeqCst);
                    release();
                });
            }
            turns_until_all(&arrived);
            release();
            let turns = turns_until_all(&passed);
            assert!(turns < WAITING / 4, "{turns} turns");
        });
    });
}

#[test]
fn pthread_mutexes_exclude_fibers() {
    on_one_and_two_workers(|| {
        for kind in [
            PTHREAD_MUTEX_NORMAL,
            PTHREAD_MUTEX_RECURSIVE,
            PTHREAD_MUTEX_ERRORCHECK,
            PTHREAD_MUTEX_ADAPTIVE_NP,
        ] {
            let (lock, inside) = (mutex_of_type(kind), AtomicUsize::new(0));
            let work = || {
                for _ in 0..3 {
                    // SAFETY: the mutex is initialised.
                    unsafe {
                        assert_eq!(pthread_mutex_lock(lock.get()), 0);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        pause();
                        if kind == PTHREAD_MUTEX_RECURSIVE {
                            assert_eq!(pthread_mutex_lock(lock.get()), 0);
                            pause();
                            assert_eq!(pthread_mutex_unlock(lock.get()), 0);
                        }
                        if kind == PTHREAD_MUTEX_ERRORCHECK {
                            assert_eq!(pthread_mutex_lock(lock.get()), EDEADLK);
                        }
                        inside.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(pthread_mutex_unlock(lock.get()), 0);
                    }
                }
            };
            thread::scope(|t| {
                let thread = t.spawn(work);
                fiber::scope(|s| drop([(); FIBERS].map(|()| s.spawn(work))));
                thread.join().unwrap();
            });
        }
    });
}

#[test]
fn contended_mutex_times_out_and_is_busy() {
    on_one_and_two_workers(|| {
        let lock = mutex_of_type(PTHREAD_MUTEX_NORMAL);
        // SAFETY: the mutex is initialised.
        unsafe {
            assert_eq!(pthread_mutex_lock(lock.get()), 0);
            fiber::scope(|s| {
                s.spawn(|| {
                    let time = after_ms(CLOCK_REALTIME, 20);
                    assert_eq!(pthread_mutex_timedlock(lock.get(), &time), ETIMEDOUT);
                    assert_eq!(pthread_mutex_trylock(lock.get()), EBUSY);
                });
            });
            assert_eq!(pthread_mutex_unlock(lock.get()), 0);
            assert_eq!(mtx_lock(lock.get()), 0);
            assert_eq!(fiber::scope(|s| s.spawn(|| mtx_trylock(lock.get())).join().unwrap()), 1);
            assert_eq!(mtx_unlock(lock.get()), 0);
        }
    });
}

#[test]
fn owners_that_the_kernel_checks_are_refused() {
    let inherits = mutex(|attributes| {
        // SAFETY: the attributes are initialised.
        unsafe { pthread_mutexattr_setprotocol(attributes, PTHREAD_PRIO_INHERIT) }
    });
    let robust = mutex(|attributes| {
        // SAFETY: as above.
        unsafe { pthread_mutexattr_setrobust(attributes, PTHREAD_MUTEX_ROBUST) }
    });
    let shared = mutex(|attributes| {
        // SAFETY: as above.
        unsafe {
            pthread_mutexattr_settype(attributes, PTHREAD_MUTEX_RECURSIVE);
            pthread_mutexattr_setpshared(attributes, PTHREAD_PROCESS_SHARED)
        }
    });
    for lock in [inherits, robust, shared] {
        // SAFETY: the mutex is initialised.
        unsafe {
            on_one_and_two_workers(|| assert_eq!(pthread_mutex_lock(lock.get()), ENOTSUP));
            assert_eq!(pthread_mutex_lock(lock.get()), 0, "a thread may have it");
            assert_eq!(pthread_mutex_unlock(lock.get()), 0);
        }
    }
}

/// A number that changes under a mutex.
struct Turn {
    lock: Shared<pthread_mutex_t>,
    changed: Shared<pthread_cond_t>,
    turn: AtomicUsize,
}

impl Turn {
    fn new() -> Turn {
        Turn {
            lock: Shared::new(PTHREAD_MUTEX_INITIALIZER),
            changed: Shared::new(PTHREAD_COND_INITIALIZER),
            turn: AtomicUsize::new(0),
        }
    }

    fn take(&self, mine: usize) {
        // SAFETY: both are initialised.
        unsafe {
            assert_eq!(pthread_mutex_lock(self.lock.get()), 0);
            while self.turn.load(Ordering::Relaxed) != mine {
                assert_eq!(pthread_cond_wait(self.changed.get(), self.lock.get()), 0);
            }
            pause();
            self.turn.store(mine + 1, Ordering::Relaxed);
            assert_eq!(pthread_cond_broadcast(self.changed.get()), 0);
            assert_eq!(pthread_mutex_unlock(self.lock.get()), 0);
        }
    }
}

#[test]
fn pthread_conditions_hand_over_between_fibers_and_threads() {
    on_one_and_two_workers(|| {
        let turn = Turn::new();
        thread::scope(|t| {
            let thread = t.spawn(|| (0..FIBERS).step_by(2).for_each(|mine| turn.take(mine)));
            fiber::scope(|s| {
                for mine in (1..FIBERS).step_by(2).rev() {
                    let turn = &turn;
                    s.spawn(move || turn.take(mine));
                }
            });
            thread.join().unwrap();
        });
        assert_eq!(turn.turn.into_inner(), FIBERS);
    });
}

#[test]
fn pthread_condition_times_out_by_its_clock() {
    on_one_and_two_workers(|| {
        for clock in [CLOCK_REALTIME, CLOCK_MONOTONIC] {
            // SAFETY: the structures are initialised by libc's functions.
            unsafe {
                let mut attributes = MaybeUninit::uninit();
                assert_eq!(pthread_condattr_init(attributes.as_mut_ptr()), 0);
                assert_eq!(pthread_condattr_setclock(attributes.as_mut_ptr(), clock), 0);
                let mut changed = MaybeUninit::uninit();
                assert_eq!(pthread_cond_init(changed.as_mut_ptr(), attributes.as_ptr()), 0);
                let mut lock = PTHREAD_MUTEX_INITIALIZER;
                assert_eq!(pthread_mutex_lock(&mut lock), 0);
                let time = after_ms(clock, 20);
                let result = pthread_cond_timedwait(changed.as_mut_ptr(), &mut lock, &time);
                assert_eq!(result, ETIMEDOUT);
                assert_eq!(pthread_mutex_unlock(&mut lock), 0);
            }
        }
    });
}

#[test]
fn pthread_rwlocks_exclude_writers() {
    on_one_and_two_workers(|| {
        let (lock, value) = (Shared::new(PTHREAD_RWLOCK_INITIALIZER), AtomicUsize::new(0));
        let read = || {
            // SAFETY: the lock is initialised.
            unsafe {
                assert_eq!(pthread_rwlock_rdlock(lock.get()), 0);
                let before = value.load(Ordering::Relaxed);
                pause();
                assert_eq!(value.load(Ordering::Relaxed), before);
                assert_eq!(pthread_rwlock_unlock(lock.get()), 0);
            }
        };
        let write = || {
            // SAFETY: the lock is initialised.
            unsafe {
                assert_eq!(pthread_rwlock_wrlock(lock.get()), 0);
                assert_eq!(pthread_rwlock_wrlock(lock.get()), EDEADLK);
                let before = value.load(Ordering::Relaxed);
                pause();
                value.store(before + 1, Ordering::Relaxed);
                assert_eq!(pthread_rwlock_unlock(lock.get()), 0);
            }
        };
        thread::scope(|t| {
            let thread = t.spawn(write);
            fiber::scope(|s| {
                for _ in 0..FIBERS {
                    s.spawn(read);
                    s.spawn(write);
                }
            });
            thread.join().unwrap();
        });
        assert_eq!(value.into_inner(), FIBERS + 1);
    });
}

#[test]
fn pthread_once_runs_its_routine_once() {
    static RUNS: AtomicI32 = AtomicI32::new(0);
    extern "C" fn routine() {
        pause();
        RUNS.fetch_add(1, Ordering::SeqCst);
    }
    let control = Shared::new(PTHREAD_ONCE_INIT_VALUE);
    on_one_and_two_workers(|| {
        // SAFETY: nobody uses it between the rounds.
        unsafe { *control.get() = PTHREAD_ONCE_INIT_VALUE };
        // SAFETY: the control is initialised.
        let once = || unsafe {
            assert_eq!(pthread_once(control.get(), routine), 0);
            assert!(RUNS.load(Ordering::SeqCst) > 0);
        };
        thread::scope(|t| {
            let thread = t.spawn(once);
            fiber::scope(|s| drop([(); FIBERS].map(|()| s.spawn(once))));
            thread.join().unwrap();
        });
    });
    assert_eq!(RUNS.load(Ordering::SeqCst), 4, "once for each runtime");
}

const PTHREAD_ONCE_INIT_VALUE: c_int = 0;

#[test]
fn semaphores_count_permits() {
    on_one_and_two_workers(|| {
        let mut semaphore = MaybeUninit::uninit();
        // SAFETY: the semaphore is initialised here.
        let semaphore = unsafe {
            assert_eq!(sem_init(semaphore.as_mut_ptr(), 0, 2), 0);
            Shared::new(semaphore.assume_init())
        };
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        fiber::scope(|s| {
            for _ in 0..FIBERS {
                // SAFETY: the semaphore is initialised.
                s.spawn(|| unsafe {
                    assert_eq!(sem_wait(semaphore.get()), 0);
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    pause();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(sem_post(semaphore.get()), 0);
                });
            }
        });
        assert_eq!(most.into_inner(), 2);
    });
}

#[test]
fn pthread_barrier_releases_fibers_and_threads() {
    on_one_and_two_workers(|| {
        let mut barrier = MaybeUninit::uninit();
        // SAFETY: the barrier is initialised here.
        let barrier = unsafe {
            let count = FIBERS as u32 + 1;
            assert_eq!(pthread_barrier_init(barrier.as_mut_ptr(), std::ptr::null(), count), 0);
            Shared::new(barrier.assume_init())
        };
        let leaders = AtomicUsize::new(0);
        let wait = || {
            // SAFETY: the barrier is initialised.
            match unsafe { pthread_barrier_wait(barrier.get()) } {
                0 => {}
                PTHREAD_BARRIER_SERIAL_THREAD => {
                    leaders.fetch_add(1, Ordering::SeqCst);
                }
                error => panic!("{error}"),
            }
        };
        thread::scope(|t| {
            let thread = t.spawn(wait);
            fiber::scope(|s| drop([(); FIBERS].map(|()| s.spawn(wait))));
            thread.join().unwrap();
        });
        assert_eq!(leaders.into_inner(), 1);
    });
}
