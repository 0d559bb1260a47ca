//! `Barrier`, `WaitGroup` and `Semaphore`.

use super::everywhere;
use cringle::fiber;
use cringle::sync::{Barrier, Semaphore, WaitGroup};
use cringle_testing::tools::{on_one_worker, on_two_workers, yield_times};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

// ----- Barrier, WaitGroup -----

#[test]
fn barrier_can_be_reused() {
    let (barrier, arrived, leaders) = (Barrier::new(8), AtomicUsize::new(0), AtomicUsize::new(0));
    everywhere(|| {
        for round in 1..=100 {
            arrived.fetch_add(1, Ordering::SeqCst);
            leaders.fetch_add(usize::from(barrier.wait().is_leader()), Ordering::SeqCst);
            assert!(arrived.load(Ordering::SeqCst) >= round * 8);
            barrier.wait();
        }
    });
    assert_eq!(leaders.into_inner(), 100);
    assert!(Barrier::new(0).wait().is_leader());
}

#[test]
fn wait_group_waits_for_all_its_clones() {
    let done = Arc::new(AtomicUsize::new(0));
    let start = |member: WaitGroup, on_thread: bool| {
        let done = Arc::clone(&done);
        let work = move || {
            fiber::yield_now();
            done.fetch_add(1, Ordering::SeqCst);
            drop(member);
        };
        if on_thread {
            drop(thread::spawn(work));
        } else {
            drop(fiber::spawn(work));
        }
    };
    on_two_workers(|| {
        let group = WaitGroup::new();
        (0..20).for_each(|n| start(group.clone(), n % 5 == 0));
        let clone = group.clone();
        let waits = fiber::spawn(move || clone.wait());
        group.wait();
        assert_eq!(done.load(Ordering::SeqCst), 20);
        waits.join().unwrap();
        WaitGroup::new().wait();
    });
}

// ----- Semaphore -----

#[test]
fn semaphore_bounds_its_holders() {
    let (semaphore, inside) = (Semaphore::new(3), AtomicUsize::new(0));
    everywhere(|| {
        for n in 0..200 {
            let permits = 1 + n % 3;
            let _permit = semaphore.acquire_many(permits);
            assert!(inside.fetch_add(permits, Ordering::SeqCst) + permits <= 3);
            fiber::yield_now();
            inside.fetch_sub(permits, Ordering::SeqCst);
        }
    });
    assert_eq!(semaphore.available(), 3);
}

#[test]
fn semaphore_serves_waiters_in_order() {
    on_one_worker(|| {
        let semaphore = Rc::new(Semaphore::new(2));
        let order = Rc::new(RefCell::new(Vec::new()));
        let held = semaphore.acquire();
        for permits in [2, 1] {
            let (semaphore, order) = (Rc::clone(&semaphore), Rc::clone(&order));
            fiber::spawn_local(move || {
                let _permit = semaphore.acquire_many(permits);
                order.borrow_mut().push(permits);
            });
        }
        yield_times(2);
        assert!(order.borrow().is_empty());
        assert!(semaphore.try_acquire().is_none(), "one permit is free, but a fiber waits");
        drop(held);
        yield_times(3);
        assert_eq!(*order.borrow(), [2, 1]);
    });
}

#[test]
fn permits_can_be_added_and_forgotten() {
    let semaphore = Semaphore::new(0);
    assert!(semaphore.try_acquire().is_none());
    thread::scope(|threads| {
        let waits = threads.spawn(|| semaphore.acquire_many(2).forget());
        semaphore.add_permits(1);
        semaphore.add_permits(2);
        waits.join().unwrap();
    });
    assert_eq!(semaphore.available(), 1);
    let permit = semaphore.try_acquire_many(1).unwrap();
    thread::scope(|threads| drop(threads.spawn(move || drop(permit))));
    assert_eq!(semaphore.available(), 1);
    let too_many = AssertUnwindSafe(|| semaphore.add_permits(Semaphore::MAX_PERMITS));
    assert!(catch_unwind(too_many).is_err());
    assert_eq!(semaphore.available(), 1);
}

/// Held permits return to the semaphore, so they count.
#[test]
fn held_permits_count_towards_the_maximum() {
    const MAX: usize = Semaphore::MAX_PERMITS;
    let semaphore = Semaphore::new(MAX);
    let refused = |count| {
        let add = AssertUnwindSafe(|| semaphore.add_permits(count));
        assert!(catch_unwind(add).is_err(), "{count} more");
    };
    let all = semaphore.acquire_many(MAX);
    for count in [1, MAX, usize::MAX] {
        refused(count);
    }
    drop(all);
    assert_eq!(semaphore.available(), MAX);
    semaphore.acquire_many(7).forget();
    refused(8);
    semaphore.add_permits(7);
    refused(1);
    assert_eq!(semaphore.available(), MAX);
}
