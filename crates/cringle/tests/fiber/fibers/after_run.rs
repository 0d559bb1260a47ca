//! Handles that outlive `run`.

use cringle::{fiber, runtime};
use cringle_testing::tools::on_two_workers;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn unpark_after_run_does_nothing() {
    for round in 0..50 {
        let mut threads = Vec::new();
        on_two_workers(|| {
            threads.push(fiber::current());
            for n in 0..10 {
                let parked = fiber::Builder::new().worker(n % 2).spawn(fiber::park).unwrap();
                threads.push(parked.thread().clone());
            }
            fiber::yield_now();
        });
        // The runtime's descriptors are closed; the next run reuses their numbers.
        threads.iter().for_each(fiber::Thread::unpark);
        on_two_workers(|| {
            threads.iter().for_each(fiber::Thread::unpark);
            let ours = fiber::spawn(fiber::park);
            fiber::Builder::new()
                .worker(1)
                .spawn(move || {
                    threads.iter().for_each(fiber::Thread::unpark);
                })
                .unwrap()
                .join()
                .unwrap();
            ours.thread().unpark();
            ours.join().unwrap();
            assert_eq!(runtime::workers(), Some(2), "round {round}");
        });
    }
}

/// Threads unpark fibers while their runtime ends and others begin.
#[test]
fn unpark_can_race_with_the_end_of_run() {
    let stop = AtomicBool::new(false);
    let current: std::sync::Mutex<Vec<fiber::Thread>> = std::sync::Mutex::default();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let threads = current.lock().unwrap().clone();
                    threads.iter().for_each(fiber::Thread::unpark);
                    std::thread::yield_now();
                }
            });
        }
        for _ in 0..200 {
            on_two_workers(|| {
                let parked: Vec<_> = (0..4)
                    .map(|n| fiber::Builder::new().worker(n % 2).spawn(fiber::park).unwrap())
                    .collect();
                let threads = parked.iter().map(|handle| handle.thread().clone()).collect();
                *current.lock().unwrap() = threads;
                fiber::yield_now();
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}
