//! Futexes that are woken by system calls of the program's own, which pass no hook.

use crate::common::{on_one_and_two_workers, on_workers_with_ring, waits_for};
use cringle::runtime::{self, Driver, DriverChoice, Feature};
use cringle::{Builder, fiber};
use libc::{
    FUTEX_CMP_REQUEUE, FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE, FUTEX_WAIT, FUTEX_WAIT_BITSET,
    FUTEX_WAKE, FUTEX_WAKE_BITSET, FUTEX_WAKE_OP, SYS_futex, c_int, c_long, timespec,
};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// `futex(2)` by the instruction, as Go and rustix make it.
fn inline(word: &AtomicU32, operation: c_int, value: u32, mask: u32) -> isize {
    let result: isize;
    // SAFETY: the contract of `futex`: the word lives, and no time is given. A wake-up reads and
    // writes no memory.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") SYS_futex => result,
            in("rdi") word.as_ptr(), in("rsi") operation, in("rdx") value,
            in("r10") 0, in("r8") 0, in("r9") mask,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            inlateout("x0") word.as_ptr() => result,
            in("x8") SYS_futex, in("x1") operation, in("x2") value,
            in("x3") 0, in("x4") 0, in("x5") mask,
        );
    }
    result
}

fn wake_inline(word: &AtomicU32, most: u32) -> isize {
    inline(word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, most, 0)
}

/// `futex(2)` through libc, which is interposed.
fn hooked(
    word: &AtomicU32,
    operation: c_int,
    value: u32,
    time: Option<Duration>,
    mask: u32,
) -> c_long {
    let time = time.map(|time| timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: the contract of `futex`: the word and the time live.
    unsafe {
        libc::syscall(SYS_futex, word.as_ptr(), operation, value, time, null_mut::<u32>(), mask)
    }
}

fn wait(word: &AtomicU32, value: u32) -> c_long {
    hooked(word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, None, 0)
}

fn wake_hooked(word: &AtomicU32, most: u32) -> isize {
    hooked(word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, most, None, 0) as isize
}

/// Whether the ring of this runtime waits for futexes. Prints what is not tested if it does not.
fn ring_has_futexes() -> bool {
    let has = matches!(runtime::driver(), Driver::Uring(features) if features.has(Feature::Futex));
    if !has {
        eprintln!("skipped: no IORING_OP_FUTEX_WAIT (Linux 6.7)");
    }
    has
}

/// Calls `f` until a wake-up has reached a waiter. The fibers of the worker run meanwhile.
fn until_one_is_woken(mut wake: impl FnMut() -> isize) {
    while wake() == 0 {
        fiber::sleep(Duration::from_micros(100));
    }
}

#[test]
fn long_wait_ends_by_an_inline_wake_up() {
    on_workers_with_ring(|| {
        if !ring_has_futexes() {
            return;
        }
        // The value never changes: only a waiter in the kernel can be woken.
        let word = AtomicU32::new(7);
        let result = waits_for(|| wait(&word, 7), || until_one_is_woken(|| wake_inline(&word, 1)));
        assert_eq!(result, 0);
    });
}

#[test]
fn inline_wake_up_before_the_wait_is_in_the_kernel_is_not_missed() {
    on_workers_with_ring(|| {
        if !ring_has_futexes() {
            return;
        }
        let (word, begun) = (AtomicU32::new(0), AtomicBool::new(false));
        fiber::scope(|s| {
            let waiter = s.spawn(|| {
                begun.store(true, Ordering::SeqCst);
                while word.load(Ordering::SeqCst) == 0 {
                    wait(&word, 0);
                }
            });
            while !begun.load(Ordering::SeqCst) {
                fiber::yield_now();
            }
            word.store(1, Ordering::SeqCst);
            wake_inline(&word, 1);
            waiter.join().unwrap();
        });
    });
}

#[test]
fn long_wait_ends_by_a_hooked_wake_up() {
    on_workers_with_ring(|| {
        let word = AtomicU32::new(7);
        let result = waits_for(
            || wait(&word, 7),
            || {
                until_one_is_woken(|| wake_hooked(&word, 1));
            },
        );
        assert_eq!(result, 0);
    });
}

#[test]
fn wake_ups_reach_each_waiter_once_in_both_queues() {
    const WAITERS: usize = 60;
    on_workers_with_ring(|| {
        let word = AtomicU32::new(0);
        fiber::scope(|s| {
            let waiters: Vec<_> = (0..WAITERS)
                .map(|i| {
                    let word = &word;
                    s.spawn(move || {
                        // Some are in the kernel when the others come.
                        fiber::sleep(Duration::from_micros(100 * i as u64));
                        wait(word, 0)
                    })
                })
                .collect();
            let mut woken = 0;
            while woken < WAITERS {
                woken += wake_hooked(&word, 3) as usize;
                fiber::sleep(Duration::from_micros(300));
            }
            assert_eq!(woken, WAITERS, "a wake-up was counted twice");
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), 0);
            }
        });
    });
}

#[test]
fn mask_and_deadline_count_in_the_kernel_too() {
    on_workers_with_ring(|| {
        if !ring_has_futexes() {
            return;
        }
        let word = AtomicU32::new(1);
        let wake = |mask| inline(&word, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, 1, mask);
        let result = waits_for(
            || hooked(&word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 1, None, 0b01),
            || {
                assert_eq!(wake(0b10), 0);
                until_one_is_woken(|| wake(0b11));
            },
        );
        assert_eq!(result, 0);

        let time = Some(Duration::from_millis(5));
        let late = hooked(&word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 1, time, 0);
        assert_eq!(
            (late, std::io::Error::last_os_error().raw_os_error()),
            (-1, Some(libc::ETIMEDOUT))
        );
    });
}

#[test]
fn futex_that_processes_share_is_waited_for_by_the_ring() {
    on_workers_with_ring(|| {
        if !ring_has_futexes() {
            return;
        }
        let word = AtomicU32::new(1);
        let before = threads_of_process();
        let results = waits_for(
            || fiber::join_all((0..50).map(|_| || hooked(&word, FUTEX_WAIT, 1, None, 0))),
            || {
                let mut woken = 0;
                while woken < 50 {
                    woken += inline(&word, FUTEX_WAKE, 50, 0);
                    fiber::sleep(Duration::from_micros(100));
                }
            },
        );
        assert_eq!(results, [0; 50]);
        assert!(threads_of_process() < before + 50, "each wait took a thread");
        assert_eq!(hooked(&word, FUTEX_WAIT, 2, None, 0), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
    });
}

#[test]
fn no_deadline_of_the_fiber_ends_a_wait() {
    on_workers_with_ring(|| {
        let word = AtomicU32::new(1);
        // The value does not change: a waiter that has not begun would return at once, unwoken.
        let mut seen = (-1, 0);
        let wait = || {
            let wait = || {
                seen = (wait(&word, 1), word.load(Ordering::SeqCst));
                Ok(())
            };
            drop(cringle::time::timeout(Duration::from_millis(2), wait));
        };
        waits_for(wait, || {
            until_one_is_woken(|| wake_hooked(&word, 1));
        });
        assert_eq!(seen, (0, 1));
    });
}

#[test]
fn without_the_op_a_futex_is_served_by_the_queue() {
    let builder = Builder::new().workers(1).without(Feature::Futex);
    let run = builder.run(|| {
        let word = AtomicU32::new(7);
        assert_eq!(waits_for(|| wait(&word, 7), || assert_eq!(wake_hooked(&word, 1), 1)), 0);
    });
    run.expect("a driver is available");
}

/// Calls `f` where a wait for a futex stays in the queue of the process.
fn without_ring_futexes(workers: usize, f: impl Fn() + Sync) {
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        let builder = Builder::new().workers(workers).driver(driver).without(Feature::Futex);
        builder.run(&f).expect("the driver is available");
    }
}

/// Calls `f` while three fibers wait for the futex, and ends their waits.
fn with_three_waiters<T>(word: &AtomicU32, f: impl FnOnce() -> T) -> T {
    let begun = AtomicU32::new(0);
    fiber::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                begun.fetch_add(1, Ordering::SeqCst);
                while word.load(Ordering::SeqCst) == 1 {
                    wait(word, 1);
                }
            });
        }
        while begun.load(Ordering::SeqCst) < 3 {
            fiber::yield_now();
        }
        let result = f();
        word.store(2, Ordering::SeqCst);
        wake_hooked(word, 3);
        result
    })
}

#[test]
fn counts_are_those_of_the_kernel() {
    // In the queue for the whole wait: on the way to the ring, no call would count a waiter.
    let counts = || {
        let result_of = |operation: c_int, value: c_int, second: usize, value3: u32| {
            let (word, other) = (AtomicU32::new(1), AtomicU32::new(0));
            with_three_waiters(&word, || {
                let operation = operation | FUTEX_PRIVATE_FLAG;
                let (word, other) = (word.as_ptr(), other.as_ptr());
                // SAFETY: the contract of `futex`: both words live.
                let result = unsafe {
                    libc::syscall(SYS_futex, word, operation, value, second, other, value3)
                };
                let error = std::io::Error::last_os_error().raw_os_error();
                if result < 0 { -c_long::from(error.unwrap()) } else { result }
            })
        };
        assert_eq!(result_of(FUTEX_WAKE, 2, 0, 0), 2);
        assert_eq!(result_of(FUTEX_WAKE, 9, 0, 0), 3);
        assert_eq!((result_of(FUTEX_WAKE, 0, 0, 0), result_of(FUTEX_WAKE, -1, 0, 0)), (1, 1));
        assert_eq!(result_of(FUTEX_CMP_REQUEUE, 1, 9, 7), -c_long::from(libc::EAGAIN));
        assert_eq!(result_of(FUTEX_CMP_REQUEUE, 1, 9, 1), 3);
        assert_eq!(result_of(FUTEX_REQUEUE, -1, 9, 0), -c_long::from(libc::EINVAL));
        assert_eq!(result_of(FUTEX_REQUEUE, 1, 9, 0), 1);
        assert_eq!(result_of(FUTEX_WAKE_OP, 2, 1, 0), 2);
    };
    without_ring_futexes(1, counts);
}

/// The second value of `FUTEX_WAKE_OP` changes within the call: the unlocking half of a condition
/// variable's signal.
#[test]
fn wake_up_with_an_operation_comes_after_the_operation() {
    /// `FUTEX_OP(SET, 0, CMP_GT, 1)`.
    const SET_TO_0_IF_ABOVE_1: u32 = 4 << 24 | 1;
    on_one_and_two_workers(|| {
        let (lock, condition) = (AtomicU32::new(2), AtomicU32::new(0));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..200 {
                    while lock.load(Ordering::SeqCst) != 2 {
                        std::thread::yield_now();
                    }
                    let operation = FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG;
                    let (word, second) = (condition.as_ptr(), lock.as_ptr());
                    // SAFETY: the contract of `futex`: both words live.
                    let result = unsafe {
                        let all = 10_usize;
                        libc::syscall(
                            SYS_futex,
                            word,
                            operation,
                            0,
                            all,
                            second,
                            SET_TO_0_IF_ABOVE_1,
                        )
                    };
                    assert!(result >= 0);
                }
            });
            for round in 0..200 {
                while lock.load(Ordering::SeqCst) == 2 {
                    wait(&lock, 2);
                }
                if round < 199 {
                    lock.store(2, Ordering::SeqCst);
                }
            }
        });
    });
}

#[test]
fn one_call_wakes_no_waiter_twice() {
    const WAITERS: usize = 100;
    // In the queue for the whole wait: the kernel does not know when the call began.
    let run = || {
        let (word, ends) = (AtomicU32::new(0), AtomicBool::new(false));
        let most = fiber::scope(|s| {
            for _ in 0..WAITERS {
                s.spawn(|| {
                    while !ends.load(Ordering::SeqCst) {
                        wait(&word, 0);
                    }
                });
            }
            let wake = || wake_hooked(&word, c_int::MAX as u32) as usize;
            let woken = (0..100).map(|_| {
                fiber::yield_now();
                fiber::unblock(wake)
            });
            let most = woken.max();
            ends.store(true, Ordering::SeqCst);
            word.store(1, Ordering::SeqCst);
            wake();
            most
        });
        assert!(most <= Some(WAITERS), "{most:?}");
    };
    without_ring_futexes(1, run);
    without_ring_futexes(2, run);
}

fn threads_of_process() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}
