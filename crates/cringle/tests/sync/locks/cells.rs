//! `Once`, `OnceLock` and `LazyLock`.

use super::everywhere;
use cringle::fiber;
use cringle::sync::{LazyLock, Once, OnceLock};
use cringle_testing::tools::{on_one_worker, on_two_workers, yield_times};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[test]
fn once_runs_one_closure_while_others_wait() {
    let (once, value) = (Once::new(), AtomicUsize::new(0));
    everywhere(|| {
        once.call_once(|| {
            yield_times(5);
            value.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(value.load(Ordering::Relaxed), 1);
        once.wait();
    });
    assert!(once.is_completed());
}

#[test]
fn panic_poisons_once_until_call_once_force() {
    let once = Once::new();
    let panics = AssertUnwindSafe(|| once.call_once(|| resume_unwind(Box::new(1))));
    assert!(catch_unwind(panics).is_err());
    assert!(!once.is_completed());
    assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| ()))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| once.wait())).is_err());
    once.call_once_force(|state| assert!(state.is_poisoned()));
    once.call_once(|| unreachable!());
}

#[test]
fn waiters_of_once_panic_with_its_closure() {
    on_one_worker(|| {
        let once = Once::new();
        fiber::scope(|s| {
            let panics = s.spawn_local(|| {
                once.call_once(|| {
                    yield_times(2);
                    resume_unwind(Box::new(1));
                });
            });
            let waits = s.spawn_local(|| once.call_once(|| unreachable!()));
            let forces = s.spawn_local(|| once.wait_force());
            assert!(panics.join().is_err());
            assert!(waits.join().is_err());
            once.call_once_force(|_| ());
            forces.join().unwrap();
        });
    });
}

#[test]
fn once_lock_is_set_once_and_dropped_once() {
    let value = Arc::new(7);
    let mut lock = OnceLock::new();
    assert_eq!(lock.get(), None);
    assert!(lock.set(Arc::clone(&value)).is_ok());
    assert!(lock.set(Arc::clone(&value)).is_err());
    assert_eq!(format!("{lock:?}"), "OnceLock(7)");
    assert_eq!(lock.clone(), lock);
    assert_eq!(Arc::strong_count(&value), 2);
    assert_eq!(lock.take().as_deref(), Some(&7));
    assert_eq!(lock.get_mut(), None);
    let made = AssertUnwindSafe(|| lock.get_or_init(|| resume_unwind(Box::new(1))).clone());
    assert!(catch_unwind(made).is_err());
    assert_eq!(**lock.get_or_init(|| Arc::clone(&value)), 7);
    drop(lock);
    assert_eq!(Arc::strong_count(&value), 1);
    assert_eq!(OnceLock::from(3).into_inner(), Some(3));
}

#[test]
fn fibers_and_threads_can_wait_for_once_lock() {
    let lock = OnceLock::new();
    thread::scope(|threads| {
        threads.spawn(|| assert_eq!(*lock.wait(), 9));
        on_two_workers(|| {
            fiber::scope(|s| {
                (0..4).for_each(|_| drop(s.spawn(|| assert_eq!(*lock.wait(), 9))));
                lock.set(9).unwrap();
            });
        });
    });
}

#[test]
fn lazy_lock_calls_its_closure_once() {
    let made = AtomicUsize::new(0);
    let lazy = LazyLock::new(|| {
        yield_times(3);
        made.fetch_add(1, Ordering::Relaxed) + 40
    });
    everywhere(|| assert_eq!(*lazy, 40));
    let fails = LazyLock::new(|| -> u8 { resume_unwind(Box::new(1)) });
    assert!(catch_unwind(AssertUnwindSafe(|| *fails)).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| *LazyLock::force(&fails))).is_err());
}
