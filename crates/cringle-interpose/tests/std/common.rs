//! Fibers that wait in a call of std, and the proof that the worker is free meanwhile.

use cringle::runtime::DriverChoice;
use cringle::{Builder, fiber};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Calls `f` in a runtime of one worker, with a ring and without.
pub(crate) fn on_both_drivers(f: impl Fn() + Sync) {
    on_workers(1, f);
}

/// Calls `f` in runtimes of one worker and of two, with rings and without.
pub(crate) fn on_one_and_two_workers(f: impl Fn() + Sync) {
    on_workers(1, &f);
    on_workers(2, &f);
}

/// Calls `f` in runtimes of one worker and of two, with rings.
pub(crate) fn on_workers_with_ring(f: impl Fn() + Sync) {
    end_if_stuck();
    for workers in [1, 2] {
        on(workers, DriverChoice::Uring, &f);
    }
}

fn on_workers(workers: usize, f: impl Fn() + Sync) {
    end_if_stuck();
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        on(workers, driver, &f);
    }
}

fn on(workers: usize, driver: DriverChoice, f: impl Fn() + Sync) {
    Builder::new().workers(workers).driver(driver).run(f).expect("the driver is available");
}

/// A call that blocks the worker would hang for ever: nothing else on the worker could end it.
fn end_if_stuck() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(120));
            eprintln!("a test is stuck: a call has blocked its worker");
            std::process::abort();
        });
    });
}

/// Runs `wait` on a fiber, and `release` on another one of the same worker once the first has begun
/// and the worker has taken several turns. Checks that the first was still waiting then.
pub(crate) fn waits_for<T: Send>(wait: impl FnOnce() -> T + Send, release: impl FnOnce()) -> T {
    let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    fiber::scope(|s| {
        let waiter = s.spawn(|| {
            begun.store(true, Ordering::SeqCst);
            let result = wait();
            ended.store(true, Ordering::SeqCst);
            result
        });
        while !begun.load(Ordering::SeqCst) {
            fiber::yield_now();
        }
        for _ in 0..5 {
            fiber::sleep(Duration::from_millis(1));
        }
        assert!(!ended.load(Ordering::SeqCst), "the call has returned before its release");
        release();
        waiter.join().expect("the waiter does not panic")
    })
}
