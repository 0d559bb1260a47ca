//! `park`, `unpark` and `sleep`.

use cringle::fiber;
use cringle_testing::tools::{on_one_worker, on_two_workers};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn two_unparks_before_park_leave_one_token() {
    on_one_worker(|| {
        fiber::current().unpark();
        fiber::current().unpark();
        fiber::park();
        let parked = fiber::current();
        let unparked = Rc::new(Cell::new(false));
        let unparks = Rc::clone(&unparked);
        fiber::spawn_local(move || {
            unparks.set(true);
            parked.unpark();
        });
        fiber::park();
        assert!(unparked.get(), "the second park waits for a third unpark");
    });
}

#[test]
fn fiber_can_be_unparked_before_it_starts() {
    on_one_worker(|| {
        let handle = fiber::spawn(fiber::park);
        handle.thread().unpark();
        handle.join().unwrap();
    });
}

#[test]
fn unpark_crosses_workers_and_threads() {
    on_two_workers(|| {
        let main = fiber::current();
        for n in 0..200 {
            let main = main.clone();
            if n % 2 == 0 {
                fiber::Builder::new().worker(1).spawn(move || main.unpark()).unwrap();
            } else {
                std::thread::spawn(move || main.unpark());
            }
            fiber::park();
        }
    });
}

/// Two fibers pass a turn back and forth; a lost wake-up would hang the test.
#[test]
fn no_unpark_between_workers_is_lost() {
    const ROUNDS: usize = 20_000;
    on_two_workers(|| {
        let turn = Arc::new(AtomicUsize::new(0));
        let play = |me: usize, turn: Arc<AtomicUsize>, other: fiber::Thread| {
            while turn.load(Ordering::SeqCst) < ROUNDS {
                if turn.load(Ordering::SeqCst) % 2 == me {
                    turn.fetch_add(1, Ordering::SeqCst);
                    other.unpark();
                } else {
                    fiber::park();
                }
            }
            other.unpark();
        };
        let main = fiber::current();
        let same_turn = Arc::clone(&turn);
        let other = fiber::Builder::new().worker(1).spawn(move || play(1, same_turn, main));
        let other = other.unwrap();
        play(0, turn, other.thread().clone());
        other.join().unwrap();
    });
}

#[test]
fn park_timeout_waits_for_time_or_token() {
    on_one_worker(|| {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(5) {
            fiber::park_timeout(Duration::from_millis(5));
        }
        fiber::current().unpark();
        fiber::park_timeout(Duration::MAX);
        let parked = fiber::current();
        fiber::spawn_local(move || parked.unpark());
        fiber::park_timeout(Duration::from_secs(1 << 40));
    });
}

#[test]
fn sleeping_fibers_wake_in_order_of_their_deadlines() {
    on_one_worker(|| {
        let begin = Instant::now();
        let (order, begun) = (RefCell::new(Vec::new()), Cell::new(0));
        let begun_together = fiber::scope(|s| {
            for ms in [60, 20, 40] {
                let (order, begun) = (&order, &begun);
                s.spawn_local(move || {
                    begun.set(begun.get() + 1);
                    fiber::sleep(Duration::from_millis(ms));
                    assert!(begin.elapsed() >= Duration::from_millis(ms));
                    order.borrow_mut().push(ms);
                });
            }
            while begun.get() < 3 {
                fiber::yield_now();
            }
            begin.elapsed() < Duration::from_millis(20)
        });
        let mut order = order.into_inner();
        if !begun_together {
            // The machine paused between the calls of `sleep`, so any order is right.
            order.sort_unstable();
        }
        assert_eq!(order, [20, 40, 60]);
        fiber::sleep(Duration::ZERO);
    });
}

#[test]
fn unpark_does_not_end_a_sleep() {
    on_one_worker(|| {
        let begin = Instant::now();
        let sleeper = fiber::spawn_local(|| fiber::sleep(Duration::from_millis(20)));
        while !sleeper.is_finished() {
            sleeper.thread().unpark();
            fiber::yield_now();
        }
        assert!(begin.elapsed() >= Duration::from_millis(20));
    });
}
