//! Fibers that wait in a call of std, and the proof that the worker is free meanwhile.

use cringle::runtime::DriverChoice;
use cringle::{Builder, fiber};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Calls `f` in a runtime of one worker, with a ring and without.
pub(crate) fn on_both_drivers(f: impl Fn() + Sync) {
    on_workers(&[1], &f);
}

/// Calls `f` in runtimes of one worker and of two, with rings and without.
pub(crate) fn on_one_and_two_workers(f: impl Fn() + Sync) {
    on_workers(&[1, 2], &f);
}

/// Calls `f` in runtimes of one worker and of two, with rings.
pub(crate) fn on_workers_with_ring(f: impl Fn() + Sync) {
    for workers in [1, 2] {
        on(workers, DriverChoice::Uring, &f);
    }
}

// The functions below are compiled once, and not for each closure of a test.

fn on_workers(workers: &[usize], f: &(dyn Fn() + Sync)) {
    for &workers in workers {
        for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
            on(workers, driver, f);
        }
    }
}

fn on(workers: usize, driver: DriverChoice, f: &(dyn Fn() + Sync)) {
    Builder::new().workers(workers).driver(driver).run(f).expect("the driver is available");
}

/// Runs `wait` on a fiber, and `release` on another one of the same worker once the first has begun
/// and the worker has taken several turns. Checks that the first was still waiting then.
pub(crate) fn waits_for<T: Send>(wait: impl FnOnce() -> T + Send, release: impl FnOnce()) -> T {
    let mut result = None;
    let (mut wait, mut release) = (Some(wait), Some(release));
    let mut wait = || result = wait.take().map(|wait| wait());
    let mut release = |has_ended: bool| {
        assert!(!has_ended, "the call has returned before its release");
        release.take().into_iter().for_each(|release| release());
    };
    waits(&mut wait, &mut release);
    result.expect("the waiter has run")
}

/// Like [`waits_for`], with a wait that has a timeout, which may have passed before `release`.
pub(crate) fn waits_until_timeout<T: Send>(
    wait: impl FnOnce() -> T + Send,
    release: impl FnOnce(),
) -> T {
    let mut result = None;
    let (mut wait, mut release) = (Some(wait), Some(release));
    let mut wait = || result = wait.take().map(|wait| wait());
    waits(&mut wait, &mut |_| release.take().into_iter().for_each(|release| release()));
    result.expect("the waiter has run")
}

/// `release` gets whether the wait has ended.
fn waits(wait: &mut (dyn FnMut() + Send), release: &mut dyn FnMut(bool)) {
    let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    fiber::scope(|s| {
        let waiter = s.spawn(|| {
            begun.store(true, Ordering::SeqCst);
            wait();
            ended.store(true, Ordering::SeqCst);
        });
        while !begun.load(Ordering::SeqCst) {
            fiber::yield_now();
        }
        for _ in 0..5 {
            fiber::sleep(Duration::from_millis(1));
        }
        release(ended.load(Ordering::SeqCst));
        waiter.join().expect("the waiter does not panic");
    });
}

/// Counts the fibers that are in a call at once.
#[derive(Default)]
pub(crate) struct AtOnce {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl AtOnce {
    pub(crate) fn count(&self, call: impl FnOnce()) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        call();
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    /// The largest number so far.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}
