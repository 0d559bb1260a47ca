//! Scoped fibers: what they borrow, and where their panics go.

use cringle::fiber;
use cringle_testing::tools::{on_one_worker, on_two_workers};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn scoped_fibers_borrow_and_end_before_scope_returns() {
    on_two_workers(|| {
        let mut numbers = vec![1; 100];
        let (sum, once) = (AtomicUsize::new(0), Cell::new(0));
        fiber::scope(|s| {
            for chunk in numbers.chunks_mut(10) {
                let sum = &sum;
                s.spawn(move || {
                    fiber::yield_now();
                    chunk.iter_mut().for_each(|n| *n += 1);
                    sum.fetch_add(chunk.iter().sum(), Ordering::Relaxed);
                });
            }
            s.spawn_local(|| once.set(once.get() + 1));
        });
        assert_eq!((sum.into_inner(), once.get()), (200, 1));
        assert_eq!(numbers, vec![2; 100]);
    });
}

#[test]
fn scoped_fibers_can_spawn_into_their_scope() {
    on_two_workers(|| {
        let count = AtomicUsize::new(0);
        fiber::scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    for _ in 0..10 {
                        s.spawn(|| count.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 100);
    });
}

#[test]
fn joined_panic_of_scoped_fiber_is_not_resumed() {
    cringle::run(|| {
        let value = fiber::scope(|s| {
            let failed = s.spawn(|| -> () { resume_unwind(Box::new(3)) }).join();
            *failed.unwrap_err().downcast::<i32>().unwrap()
        });
        assert_eq!(value, 3);
    });
}

#[test]
fn unjoined_panic_of_scoped_fiber_makes_scope_panic() {
    cringle::run(|| {
        let ended = AtomicBool::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            fiber::scope(|s| {
                s.spawn(|| resume_unwind(Box::new(3)));
                s.spawn(|| {
                    (0..10).for_each(|_| fiber::yield_now());
                    ended.store(true, Ordering::SeqCst);
                });
            });
        }));
        let text = *caught.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(text, "a scoped fiber panicked");
        assert!(ended.into_inner(), "the scope still waits for its other fibers");
    });
}

#[test]
fn panic_of_scope_closure_wins_over_fibers_panic() {
    cringle::run(|| {
        let ended = AtomicBool::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            fiber::scope(|s| {
                s.spawn(|| {
                    (0..10).for_each(|_| fiber::yield_now());
                    ended.store(true, Ordering::SeqCst);
                    resume_unwind(Box::new(1))
                });
                resume_unwind(Box::new(2))
            })
        }));
        assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 2);
        assert!(ended.into_inner());
    });
}

/// The result of a scoped fiber may borrow from the frame that opened the scope.
#[test]
fn unclaimed_result_is_dropped_before_scope_returns() {
    struct Result<'a>(&'a AtomicUsize);
    impl Drop for Result<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    on_two_workers(|| {
        for _ in 0..200 {
            let dropped = AtomicUsize::new(0);
            fiber::scope(|s| {
                s.spawn(|| Result(&dropped));
                s.spawn_local(|| Result(&dropped));
                drop(fiber::Builder::new().worker(1).spawn_scoped(s, || Result(&dropped)));
            });
            assert_eq!(dropped.load(Ordering::SeqCst), 3);
        }
    });
}

#[test]
fn fiber_drops_captures_then_locals_then_result() {
    thread_local!(static ORDER: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) });
    struct Note(&'static str);
    impl Drop for Note {
        fn drop(&mut self) {
            ORDER.with_borrow_mut(|order| order.push(self.0));
        }
    }
    cringle::fiber_local!(static LOCAL: Note = Note("local"));
    on_one_worker(|| {
        let captured = Note("captured");
        let handle = fiber::spawn_local(move || {
            let _captured = captured;
            let _frame = Note("frame");
            LOCAL.with(|_| ());
            Note("result")
        });
        drop(handle.join());
    });
    assert_eq!(ORDER.take(), ["frame", "captured", "local", "result"]);
}
