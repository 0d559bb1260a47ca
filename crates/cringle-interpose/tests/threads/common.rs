//! Runtimes whose threads are fibers.

use cringle::Builder;
use cringle::runtime::{DriverChoice, Threads};
use std::sync::Once;
use std::time::Duration;

/// Calls `f` in runtimes of one worker and of two, with rings and without.
pub(crate) fn on_each_runtime(f: impl Fn() + Sync) {
    on_workers(1, &f);
    on_workers(2, &f);
}

/// Calls `f` in runtimes of so many workers, with rings and without.
pub(crate) fn on_workers(workers: usize, f: impl Fn() + Sync) {
    end_if_stuck();
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        let builder = Builder::new().workers(workers).driver(driver).threads(Threads::Fibers);
        builder.run(&f).expect("the driver is available");
    }
}

/// A thread that blocked its worker would hang for ever.
pub(crate) fn end_if_stuck() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(120));
            eprintln!("a test is stuck: a thread has blocked its worker");
            std::process::abort();
        });
    });
}

/// The kernel's number of the calling thread: on fibers, of the worker.
pub(crate) fn kernel_thread() -> i32 {
    // SAFETY: the call has no contract.
    unsafe { libc::gettid() }
}
