//! Timed waits of a cancelled fiber. Each waits for an hour: a test that returns shows that the
//! wait was ended.

use crate::common::on_both_drivers;
use cringle::{fiber, time};
use libc::*;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

mod clock;

const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_millis(2);

unsafe extern "C-unwind" {
    fn pthread_cond_clockwait(
        condition: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> c_int;
    fn pthread_mutex_clocklock(
        mutex: *mut pthread_mutex_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> c_int;
    fn pthread_rwlock_clockrdlock(
        lock: *mut pthread_rwlock_t,
        clock: clockid_t,
        time: *const timespec,
    ) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, time: *const timespec) -> c_int;
    fn pthread_timedjoin_np(
        thread: pthread_t,
        result: *mut *mut c_void,
        time: *const timespec,
    ) -> c_int;
    fn pthread_clockjoin_np(
        thread: pthread_t,
        result: *mut *mut c_void,
        clock: clockid_t,
        time: *const timespec,
    ) -> c_int;
    fn sem_clockwait(semaphore: *mut sem_t, clock: clockid_t, time: *const timespec) -> c_int;
    fn mtx_timedlock(mutex: *mut pthread_mutex_t, time: *const timespec) -> c_int;
    fn cnd_timedwait(
        condition: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t,
        time: *const timespec,
    ) -> c_int;
}

const THRD_TIMEDOUT: c_int = 4;

/// Calls `f` twice on a fiber with a deadline: the first wait is ended, the second begins late.
fn late<T>(f: impl Fn() -> T) -> [T; 2] {
    time::timeout(LIMIT, || Ok([f(), f()])).unwrap()
}

/// Calls `f` after the deadline of its fiber.
fn after_the_deadline(f: impl FnOnce()) {
    time::timeout(LIMIT, || {
        time::sleep(HOUR).unwrap_err();
        f();
        Ok(())
    })
    .unwrap();
}

/// Whether the next read of the clock is far from the right time.
fn is_ahead() -> bool {
    Instant::now() > time::now() + HOUR / 2
}

/// In an hour, by a clock.
fn in_an_hour(clock: clockid_t) -> timespec {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is borrowed for the call.
    assert_eq!(unsafe { clock_gettime(clock, &mut time) }, 0);
    time.tv_sec += 3600;
    time
}

/// The error of a call that returns −1.
fn code(result: c_long) -> c_int {
    assert_eq!(result, -1);
    io::Error::last_os_error().raw_os_error().unwrap()
}

/// An object of C at one address.
struct Object<T>(Box<std::cell::UnsafeCell<T>>);

impl<T> Object<T> {
    fn new(value: T) -> Object<T> {
        Object(Box::new(value.into()))
    }

    fn get(&self) -> *mut T {
        self.0.get()
    }
}

#[test]
fn deadline_ends_timed_waits_of_pthread() {
    on_both_drivers(|| {
        let (mutex, free) = [(); 2].map(|()| Object::new(PTHREAD_MUTEX_INITIALIZER)).into();
        let condition = Object::new(PTHREAD_COND_INITIALIZER);
        let lock = Object::new(PTHREAD_RWLOCK_INITIALIZER);
        let semaphore = Object::new(MaybeUninit::<sem_t>::zeroed());
        let semaphore = semaphore.get().cast::<sem_t>();
        let (real, monotonic) = (CLOCK_REALTIME, CLOCK_MONOTONIC);
        let wait_for = |clock, f: &dyn Fn(*const timespec) -> c_int| late(|| f(&in_an_hour(clock)));
        // SAFETY: the objects are initialised, and stay in place.
        unsafe {
            assert_eq!(sem_init(semaphore, 0, 0), 0);
            assert_eq!(pthread_mutex_lock(mutex.get()), 0);
            assert_eq!(pthread_rwlock_rdlock(lock.get()), 0);
            let timed_out = [ETIMEDOUT; 2];
            let found = [
                wait_for(real, &|time| pthread_mutex_timedlock(mutex.get(), time)),
                wait_for(monotonic, &|time| pthread_mutex_clocklock(mutex.get(), monotonic, time)),
                wait_for(real, &|time| pthread_rwlock_timedwrlock(lock.get(), time)),
                wait_for(real, &|time| code(sem_timedwait(semaphore, time).into())),
                wait_for(monotonic, &|time| code(sem_clockwait(semaphore, monotonic, time).into())),
                // The caller has the mutex, and has it again.
                wait_for(real, &|time| pthread_cond_timedwait(condition.get(), mutex.get(), time)),
                wait_for(monotonic, &|time| {
                    pthread_cond_clockwait(condition.get(), mutex.get(), monotonic, time)
                }),
            ];
            assert_eq!(found, [timed_out; 7]);
            let found = [
                wait_for(real, &|time| mtx_timedlock(mutex.get(), time)),
                wait_for(real, &|time| cnd_timedwait(condition.get(), mutex.get(), time)),
            ];
            assert_eq!(found, [[THRD_TIMEDOUT; 2]; 2]);
            // A lock that is free, or is released meanwhile, is had.
            assert_eq!(
                wait_for(real, &|time| {
                    let result = pthread_mutex_timedlock(free.get(), time);
                    assert_eq!(pthread_mutex_unlock(free.get()), 0);
                    result
                }),
                [0; 2]
            );
            let clocked = |time| pthread_rwlock_clockrdlock(lock.get(), monotonic, time);
            assert_eq!(wait_for(monotonic, &clocked), [0; 2]);
            for unlocked in [(); 3].map(|()| pthread_rwlock_unlock(lock.get())) {
                assert_eq!(unlocked, 0);
            }
            assert_eq!(pthread_mutex_unlock(mutex.get()), 0);
        }
    });
}

#[test]
fn deadline_ends_timed_waits_for_futexes() {
    on_both_drivers(|| {
        let word = 7u32;
        let wait = |operation: c_int, value: u32, time: timespec| {
            // SAFETY: the word and the time live.
            let result = unsafe {
                syscall(SYS_futex, &word, operation, value, &time, null::<u32>(), u32::MAX)
            };
            code(result)
        };
        let relative = timespec { tv_sec: 3600, tv_nsec: 0 };
        for private in [FUTEX_PRIVATE_FLAG, 0] {
            let both = late(|| wait(FUTEX_WAIT | private, 7, relative));
            assert_eq!(both, [ETIMEDOUT; 2]);
            for (flag, clock) in [(0, CLOCK_MONOTONIC), (FUTEX_CLOCK_REALTIME, CLOCK_REALTIME)] {
                let operation = FUTEX_WAIT_BITSET | private | flag;
                assert_eq!(late(|| wait(operation, 7, in_an_hour(clock))), [ETIMEDOUT; 2]);
            }
            after_the_deadline(|| assert_eq!(wait(FUTEX_WAIT | private, 8, relative), EAGAIN));
        }
    });
}

#[test]
fn deadline_ends_timed_joins_of_system_threads() {
    on_both_drivers(|| {
        let (release, released) = mpsc::channel::<()>();
        let thread = thread::spawn(move || released.recv().unwrap_err());
        let handle = std::os::unix::thread::JoinHandleExt::as_pthread_t(&thread);
        let join = |clock| {
            let time = in_an_hour(clock);
            // SAFETY: the thread has not been joined, and is not by a call that times out.
            unsafe {
                match clock {
                    CLOCK_REALTIME => pthread_timedjoin_np(handle, null_mut(), &time),
                    _ => pthread_clockjoin_np(handle, null_mut(), clock, &time),
                }
            }
        };
        assert_eq!(late(|| join(CLOCK_REALTIME)), [ETIMEDOUT; 2]);
        assert_eq!(late(|| join(CLOCK_MONOTONIC)), [ETIMEDOUT; 2]);
        drop(release);
        thread.join().unwrap();
    });
}

#[test]
fn deadline_ends_timed_waits_for_events() {
    on_both_drivers(|| {
        let (instance, never) = (Descriptor::epoll(), Descriptor::event(0));
        instance.watch(&never);
        let (ms, time) = (3_600_000, timespec { tv_sec: 3600, tv_nsec: 0 });
        let mut event = epoll_event { events: 0, u64: 0 };
        let mut fds = [pollfd { fd: never.0, events: POLLIN, revents: 0 }; 2];
        // SAFETY: the structures live, and their lengths are right.
        let found = time::timeout(LIMIT, || unsafe {
            let mut set: fd_set = std::mem::zeroed();
            FD_SET(never.0, &mut set);
            let mut left = timeval { tv_sec: 3600, tv_usec: 0 };
            Ok([
                epoll_wait(instance.0, &mut event, 1, ms),
                epoll_wait(instance.0, &mut event, 1, ms),
                poll(fds.as_mut_ptr(), 1, ms),
                poll(fds.as_mut_ptr(), 2, ms),
                poll(null_mut(), 0, ms),
                ppoll(fds.as_mut_ptr(), 1, &time, null()),
                select(never.0 + 1, &mut set, null_mut(), null_mut(), &mut left),
                (left.tv_sec + left.tv_usec) as c_int,
            ])
        });
        assert_eq!(found.unwrap(), [0; 8]);
        let signals = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: an empty set; the time lives.
        let wait = || code(unsafe { sigtimedwait(signals.as_ptr(), null_mut(), &time) }.into());
        assert_eq!(late(wait), [EAGAIN; 2]);
    });
}

/// A descriptor that is closed at the end.
struct Descriptor(c_int);

impl Descriptor {
    fn epoll() -> Descriptor {
        // SAFETY: no pointers.
        Descriptor(unsafe { epoll_create1(EPOLL_CLOEXEC) })
    }

    fn event(flags: c_int) -> Descriptor {
        // SAFETY: no pointers.
        Descriptor(unsafe { eventfd(0, flags) })
    }

    fn watch(&self, other: &Descriptor) {
        let mut event = epoll_event { events: EPOLLIN as u32, u64: 5 };
        // SAFETY: the structure lives.
        assert_eq!(unsafe { epoll_ctl(self.0, EPOLL_CTL_ADD, other.0, &mut event) }, 0);
    }

    fn write(&self, bytes: &[u8]) -> isize {
        // SAFETY: the bytes live.
        unsafe { write(self.0, bytes.as_ptr().cast(), bytes.len()) }
    }

    fn read(&self, bytes: &mut [u8]) -> isize {
        // SAFETY: the bytes live.
        unsafe { read(self.0, bytes.as_mut_ptr().cast(), bytes.len()) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's.
        unsafe { close(self.0) };
    }
}

/// tokio panics on any error but `EINTR`, and if its wake-up fails.
#[test]
fn event_loop_of_a_late_fiber_sees_no_error() {
    on_both_drivers(|| {
        let (instance, waker) = (Descriptor::epoll(), Descriptor::event(EFD_NONBLOCK));
        instance.watch(&waker);
        let mut event = epoll_event { events: 0, u64: 0 };
        let next = |event: &mut epoll_event, timeout| {
            // SAFETY: the structure lives.
            unsafe { epoll_wait(instance.0, event, 1, timeout) }
        };
        fiber::scope(|s| {
            s.spawn(|| {
                time::sleep(Duration::from_millis(50)).unwrap();
                assert_eq!(waker.write(&1u64.to_ne_bytes()), 8);
            });
            after_the_deadline(|| {
                let mut interruptions = 0;
                loop {
                    match next(&mut event, -1) {
                        -1 => assert_eq!(code(-1), EINTR),
                        found => break assert_eq!(found, 1),
                    }
                    interruptions += 1;
                    assert!(interruptions < 2000, "it spins");
                }
                assert_eq!({ event.u64 }, 5);
                // What is ready is reported, and wake-ups are written and taken.
                assert_eq!([0, 1000, -1].map(|timeout| next(&mut event, timeout)), [1; 3]);
                let mut count = [0; 8];
                assert_eq!((waker.read(&mut count), u64::from_ne_bytes(count)), (8, 1));
                assert_eq!((waker.read(&mut count), code(-1)), (-1, EAGAIN));
                assert_eq!(waker.write(&1u64.to_ne_bytes()), 8);
                assert_eq!(next(&mut event, -1), 1);
            });
        });
    });
}

/// The timers of the loop may be those of other fibers.
#[test]
fn event_loop_does_not_pass_the_clock_on() {
    on_both_drivers(|| {
        let (instance, waker) = (Descriptor::epoll(), Descriptor::event(EFD_NONBLOCK));
        instance.watch(&waker);
        let mut event = epoll_event { events: 0, u64: 0 };
        fiber::scope(|s| {
            s.spawn(|| {
                time::sleep(Duration::from_millis(50)).unwrap();
                assert_eq!(waker.write(&1u64.to_ne_bytes()), 8);
            });
            after_the_deadline(|| {
                let mut rounds = 0;
                // SAFETY: the structure lives.
                while unsafe { epoll_wait(instance.0, &mut event, 1, 3_600_000) } == 0 {
                    assert!(!is_ahead());
                    rounds += 1;
                    assert!(rounds < 2000, "it spins");
                }
                assert_eq!({ event.u64 }, 5);
            });
        });
    });
}

#[test]
fn late_fiber_writes_a_byte_to_its_pipe() {
    on_both_drivers(|| {
        let mut ends = [0; 2];
        // SAFETY: the array lives.
        assert_eq!(unsafe { pipe2(ends.as_mut_ptr(), O_NONBLOCK | O_CLOEXEC) }, 0);
        let [reader, writer] = ends.map(Descriptor);
        after_the_deadline(|| {
            assert_eq!(writer.write(&[7]), 1);
            assert_eq!((writer.write(&[7; 9]), code(-1)), (-1, ETIMEDOUT));
            assert_eq!((reader.read(&mut [0]), code(-1)), (-1, ETIMEDOUT));
        });
    });
}

#[test]
fn poll_without_a_timeout_reports_the_cancel() {
    on_both_drivers(|| {
        let never = [Descriptor::event(0), Descriptor::event(0)];
        let mut both = never.each_ref().map(|it| pollfd { fd: it.0, events: POLLIN, revents: 0 });
        for count in [1, 2] {
            // SAFETY: the array is borrowed for the call.
            let mut wait = || code(unsafe { poll(both.as_mut_ptr(), count, -1) }.into());
            let ended = time::timeout(LIMIT, || Ok([wait(), wait()])).unwrap();
            assert_eq!(ended, [ETIMEDOUT; 2]);
            let cancelled = fiber::scope(|s| {
                s.cancel();
                wait()
            });
            assert_eq!(cancelled, ECANCELED);
        }
    });
}

#[test]
fn timed_waits_last_after_a_thousand_refusals() {
    on_both_drivers(|| {
        let (nothing, never) = (Mutex::new(()), Condvar::new());
        let wait = |limit| drop(never.wait_timeout(nothing.lock().unwrap(), limit).unwrap());
        after_the_deadline(|| {
            let begun = time::now();
            for _ in 0..900 {
                wait(Duration::from_secs(10));
            }
            assert!(time::now() < begun + HOUR, "it has waited");
            for _ in 0..200 {
                wait(Duration::from_micros(100));
            }
            let (begun, limit) = (time::now(), Duration::from_millis(5));
            wait(limit);
            assert!(time::now() - begun >= limit);
        });
    });
}

#[test]
fn protected_timed_waits_last() {
    on_both_drivers(|| {
        let (_sender, receiver) = mpsc::channel::<()>();
        after_the_deadline(|| {
            receiver.recv_timeout(HOUR).unwrap_err();
            let (begun, limit) = (time::now(), Duration::from_millis(5));
            fiber::protect(|| receiver.recv_timeout(limit).unwrap_err());
            assert!(time::now() - begun >= limit);
        });
    });
}

#[test]
fn cancel_without_a_deadline_ends_timed_waits() {
    on_both_drivers(|| {
        let (_sender, receiver) = mpsc::channel::<()>();
        fiber::scope(|s| {
            let waiter = s.spawn(move || receiver.recv_timeout(HOUR));
            fiber::sleep(LIMIT);
            s.cancel();
            assert_eq!(waiter.join().unwrap(), Err(mpsc::RecvTimeoutError::Timeout));
        });
    });
}
