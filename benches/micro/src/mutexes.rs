//! What it costs to take a lock that nobody else wants, and to let go of it.

use crate::report::{Contest, Report};
use common::clock::cpu_ns_per_op;
use std::hint::black_box;

const LOCKS: u64 = 1_000_000;
const BAR: f64 = 1.0;

pub(crate) fn run(rounds: usize) -> Report {
    let ours = "cringle: Mutex, on a fiber";
    let theirs = "tokio: Mutex, in a task";
    Contest::new("lock + unlock, uncontended")
        .side(ours, || crate::on_one_worker(fiber))
        .side("cringle: Mutex, on a thread", fiber)
        .side(theirs, task)
        .side("std: Mutex", thread)
        .run(rounds)
        .ratio(ours, &[theirs], Some(BAR))
        .ratio(ours, &["std: Mutex"], None)
}

fn fiber() -> f64 {
    let mutex = cringle::sync::Mutex::new(0u64);
    let locking = |locks: u64| {
        (0..locks).for_each(|_| *black_box(&mutex).lock().expect("not poisoned") += 1);
    };
    locking(1000);
    cpu_ns_per_op(LOCKS, || locking(LOCKS))
}

fn thread() -> f64 {
    let mutex = std::sync::Mutex::new(0u64);
    let locking = |locks: u64| {
        (0..locks).for_each(|_| *black_box(&mutex).lock().expect("not poisoned") += 1);
    };
    locking(1000);
    cpu_ns_per_op(LOCKS, || locking(LOCKS))
}

fn task() -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("no drivers");
    let task = async {
        let mutex = tokio::sync::Mutex::new(0u64);
        let start = common::clock::thread_cpu();
        for _ in 0..LOCKS {
            *black_box(&mutex).lock().await += 1;
        }
        (common::clock::thread_cpu() - start).as_secs_f64() * 1e9 / LOCKS as f64
    };
    runtime.block_on(async { tokio::spawn(task).await.expect("it does not panic") })
}
