//! Spawning and joining: values, panics, detached fibers.

use cringle::fiber;
use cringle_testing::tools::{on_one_worker, on_two_workers};
use std::panic::{panic_any, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn join_returns_the_value() {
    cringle::run(|| {
        assert_eq!(fiber::spawn(|| "sent").join().unwrap(), "sent");
        assert_eq!(*fiber::spawn_local(|| Rc::new(7)).join().unwrap(), 7);
    });
}

#[test]
fn join_returns_the_payload_of_a_panic() {
    cringle::run(|| {
        let result = fiber::spawn(|| -> () { panic_any(17) }).join();
        assert_eq!(*result.unwrap_err().downcast::<i32>().unwrap(), 17);
        let n = std::hint::black_box(3);
        let result = fiber::spawn_local(move || -> () { panic!("n = {n}") }).join();
        assert_eq!(*result.unwrap_err().downcast::<String>().unwrap(), "n = 3");
    });
}

#[test]
fn unjoined_panic_ends_only_its_fiber() {
    on_one_worker(|| {
        drop(fiber::spawn_local(|| resume_unwind(Box::new(1))));
        assert_eq!(fiber::spawn_local(|| 2).join().unwrap(), 2);
    });
}

#[test]
fn thousand_fibers_run_on_two_workers() {
    let count = AtomicUsize::new(0);
    on_two_workers(|| {
        fiber::scope(|s| {
            for _ in 0..1000 {
                s.spawn(|| {
                    fiber::yield_now();
                    count.fetch_add(1, Ordering::Relaxed)
                });
            }
        });
    });
    assert_eq!(count.into_inner(), 1000);
}

#[test]
fn fiber_on_other_worker_can_be_joined_anytime() {
    on_two_workers(|| {
        for n in 0..3000 {
            let other = fiber::Builder::new().worker(1).spawn(move || n).unwrap();
            // By now the fiber is not started, running or finished, depending on `n`.
            (0..n % 7).for_each(|_| fiber::yield_now());
            assert_eq!(other.join().unwrap(), n);
        }
    });
}

#[test]
fn is_finished_when_join_would_not_wait() {
    on_one_worker(|| {
        let handle = fiber::spawn_local(fiber::park);
        assert!(!handle.is_finished());
        fiber::yield_now();
        assert!(!handle.is_finished());
        handle.thread().unpark();
        while !handle.is_finished() {
            fiber::yield_now();
        }
        handle.join().unwrap();
    });
}

#[test]
fn handle_can_be_joined_elsewhere_and_after_run() {
    on_two_workers(|| {
        let first = fiber::spawn(|| 1);
        let second = fiber::spawn(move || first.join().unwrap() + 1);
        let third = fiber::unblock(move || second.join().unwrap() + 1);
        assert_eq!(third, 3);
    });
    let (value, panic) = cringle::run(|| {
        (fiber::spawn(|| 4), fiber::spawn_local(|| -> () { resume_unwind(Box::new(5)) }))
    });
    assert!(value.is_finished());
    assert_eq!(value.join().unwrap(), 4);
    assert_eq!(*panic.join().unwrap_err().downcast::<i32>().unwrap(), 5);
}

/// A thread that joins a fiber is parked, which may consume a token that it had before.
#[test]
fn join_by_a_thread_keeps_its_park_token() {
    on_one_worker(|| {
        let joined = fiber::spawn_local(fiber::park);
        let fiber = joined.thread().clone();
        let joins = std::thread::spawn(move || {
            std::thread::current().unpark();
            joined.join().unwrap();
            // This would wait for ever if the join had consumed the token.
            std::thread::park();
        });
        // Most likely the thread waits by now; if it does not, the test checks less.
        fiber::sleep(Duration::from_millis(50));
        fiber.unpark();
        fiber::unblock(|| joins.join().unwrap());
    });
}

#[test]
fn dropping_a_handle_detaches_the_fiber() {
    let (sender, receiver) = mpsc::channel();
    on_one_worker(|| {
        drop(fiber::spawn(move || {
            fiber::yield_now();
            sender.send("ended").unwrap();
        }));
        fiber::unblock(|| ());
        while receiver.try_recv() != Ok("ended") {
            fiber::yield_now();
        }
    });
}

/// A closure with few captures is moved onto its fiber's stack; a large one is boxed.
#[test]
fn closure_can_capture_more_than_a_frame_holds() {
    let big = [7u8; 100_000];
    let sum = cringle::run(move || {
        let larger = [1u8; 2000];
        let local = fiber::spawn_local(move || larger.iter().map(|&b| u32::from(b)).sum::<u32>());
        let scoped = fiber::scope(|s| s.spawn_local(move || big.len() as u32).join().unwrap());
        local.join().unwrap() + scoped + u32::from(big[0])
    });
    assert_eq!(sum, 2000 + 100_000 + 7);
}
