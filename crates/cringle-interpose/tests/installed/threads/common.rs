//! Runtimes whose threads are fibers.

use cringle::Builder;
use cringle::runtime::{DriverChoice, Threads};

/// Calls `f` in runtimes of one worker and of two, with rings and without.
pub(crate) fn on_each_runtime(f: impl Fn() + Sync) {
    on(1, &f);
    on(2, &f);
}

/// Calls `f` in runtimes of so many workers, with rings and without.
pub(crate) fn on_workers(workers: usize, f: impl Fn() + Sync) {
    on(workers, &f);
}

/// Compiled once, and not for each closure of a test.
fn on(workers: usize, f: &(dyn Fn() + Sync)) {
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        let builder = Builder::new().workers(workers).driver(driver).threads(Threads::Fibers);
        builder.run(f).expect("the driver is available");
    }
}

/// The kernel's number of the calling thread: on fibers, of the worker.
pub(crate) fn kernel_thread() -> i32 {
    // SAFETY: the call has no contract.
    unsafe { libc::gettid() }
}
