//! Locks, condition variables, barriers and cells behave as std's between fibers and threads, and
//! serve their waiters in order.

mod cells;
mod condvar;
mod groups;
mod mutex;
mod rwlock;

use cringle::fiber;
use cringle_testing::tools::on_two_workers;
use std::thread;
use std::time::Duration;

/// Longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

/// Runs `work` on two threads and on six fibers of two workers, concurrently.
fn everywhere(work: impl Fn() + Sync) {
    thread::scope(|threads| {
        threads.spawn(&work);
        threads.spawn(&work);
        on_two_workers(|| {
            fiber::scope(|s| {
                (0..6).for_each(|_| drop(s.spawn(&work)));
            });
        });
    });
}
