//! Locking and unlocking an uncontended mutex.

use crate::report::{Contest, Report};
use common::clock::cpu_ns_per_op;
use std::hint::black_box;

const LOCKS: u64 = 1_000_000;
const BAR: f64 = 1.0;

pub(crate) fn run(rounds: usize) -> Report {
    let on_fibers = "cringle: Mutex, on a fiber";
    let on_tokio = "tokio: Mutex, in a task";
    Contest::new("lock + unlock, uncontended")
        .side(on_fibers, || crate::on_one_worker(fiber))
        .side("cringle: Mutex, on a thread", fiber)
        .side(on_tokio, task)
        .side("std: Mutex", thread)
        .run(rounds)
        .ratio(on_fibers, &[on_tokio], Some(BAR))
        .ratio(on_fibers, &["std: Mutex"], None)
}

fn fiber() -> f64 {
    let mutex = cringle::sync::Mutex::new(0u64);
    let lock = |locks: u64| {
        (0..locks).for_each(|_| *black_box(&mutex).lock().expect("not poisoned") += 1);
    };
    lock(1000);
    cpu_ns_per_op(LOCKS, || lock(LOCKS))
}

fn thread() -> f64 {
    let mutex = std::sync::Mutex::new(0u64);
    let lock = |locks: u64| {
        (0..locks).for_each(|_| *black_box(&mutex).lock().expect("not poisoned") += 1);
    };
    lock(1000);
    cpu_ns_per_op(LOCKS, || lock(LOCKS))
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
    runtime.block_on(async { tokio::spawn(task).await.expect("no panic") })
}
