//! Fiber locals, and the destructors that run when a fiber ends.

use cringle::fiber;
use cringle_testing::child;
use cringle_testing::tools::{on_one_worker, on_two_workers};
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn each_fiber_has_its_own_locals() {
    cringle::fiber_local! {
        static FIRST: Cell<u32> = Cell::new(1);
        static SECOND: Cell<u32> = Cell::new(1);
    }
    on_one_worker(|| {
        FIRST.with(|first| first.set(5));
        let handles: Vec<_> = (10..20)
            .map(|n| {
                fiber::spawn_local(move || {
                    assert_eq!(FIRST.with(|first| first.replace(n)), 1);
                    fiber::yield_now();
                    (FIRST.with(Cell::get), SECOND.with(Cell::get))
                })
            })
            .collect();
        for (n, handle) in (10..20).zip(handles) {
            assert_eq!(handle.join().unwrap(), (n, 1));
        }
        assert_eq!(FIRST.with(Cell::get), 5);
    });
    assert_eq!(FIRST.with(Cell::get), 1, "a thread outside of `run` has its own");
}

#[test]
fn local_is_destroyed_before_join_returns() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    cringle::fiber_local!(static COUNTED: Counted = {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Counted
    });
    on_two_workers(|| {
        for n in 0..100 {
            let used = fiber::Builder::new().worker(n % 2).spawn(|| COUNTED.with(|_| ()));
            used.unwrap().join().unwrap();
            assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
        }
        let panics = || COUNTED.with(|_| resume_unwind(Box::new(1)));
        fiber::spawn(panics).join().map(drop).unwrap_err();
        assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
        COUNTED.with(|_| ());
    });
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0, "the main fiber's local is destroyed, too");
}

#[test]
fn destructor_of_local_can_wait_and_make_locals() {
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            fiber::sleep(Duration::from_millis(1));
            DESTROYED.fetch_add(1, Ordering::SeqCst);
        }
    }
    struct Early;
    impl Drop for Early {
        fn drop(&mut self) {
            fiber::yield_now();
            LATE.with(|_| ());
            DESTROYED.fetch_add(1, Ordering::SeqCst);
        }
    }
    cringle::fiber_local! {
        static LATE: Late = Late;
        static EARLY: Early = Early;
    }
    on_one_worker(|| {
        for n in 1..10 {
            fiber::spawn_local(|| EARLY.with(|_| ())).join().unwrap();
            assert_eq!(DESTROYED.load(Ordering::SeqCst), 2 * n);
        }
    });
}

#[test]
fn initialiser_of_local_can_wait_and_use_locals() {
    cringle::fiber_local! {
        static INNER: u32 = { fiber::yield_now(); 20 };
        static OUTER: u32 = INNER.with(|inner| inner + 1);
    }
    on_one_worker(|| {
        assert_eq!(fiber::spawn_local(|| OUTER.with(|n| *n)).join().unwrap(), 21);
    });
}

/// The result of a detached fiber is dropped on that fiber: its destructor has the fiber's name,
/// can wait, and has fiber locals.
#[test]
fn unclaimed_result_is_dropped_on_its_fiber() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    cringle::fiber_local!(static USES: Cell<usize> = Cell::new(0));
    struct Unclaimed;
    impl Drop for Unclaimed {
        fn drop(&mut self) {
            assert_eq!(fiber::current().name(), Some("detached"));
            fiber::yield_now();
            fiber::park_timeout(Duration::from_millis(1));
            USES.with(|uses| {
                assert_eq!(uses.replace(1), 0, "the local is not an earlier fiber's");
            });
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    child::must_succeed("unclaimed_result_is_dropped_on_its_fiber", || {
        on_one_worker(|| {
            for n in 1..20 {
                let detached = fiber::Builder::new().name("detached".into());
                drop(detached.spawn_local(|| Unclaimed));
                while DROPPED.load(Ordering::SeqCst) < n {
                    fiber::yield_now();
                }
            }
        });
    });
}

#[test]
fn panic_of_result_destructor_aborts_with_a_message() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a bomb");
        }
    }
    let name = "panic_of_result_destructor_aborts_with_a_message";
    let Some(output) = child::run(name) else {
        on_one_worker(|| {
            drop(fiber::spawn_local(|| Bomb));
            (0..10).for_each(|_| fiber::yield_now());
        });
        return;
    };
    let text = child::transcript(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(text.contains("the destructor of a fiber's result panicked"), "{text}");
}
