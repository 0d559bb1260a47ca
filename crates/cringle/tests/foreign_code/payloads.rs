//! Payloads that a scope drops at its end.

use crate::Bomb;
use cringle::fiber;
use cringle_testing::child;
use cringle_testing::tools::*;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::rc::Rc;

/// The second payload is dropped while the scope still waits for a fiber.
#[test]
fn scope_outlives_fibers_when_exit_calls_panic() {
    child::must_succeed("scope_outlives_fibers_when_exit_calls_panic", || {
        on_one_worker(|| {
            let ended = Rc::new(Cell::new(false));
            let sets = Rc::clone(&ended);
            let scope = AssertUnwindSafe(|| {
                fiber::scope(|s| {
                    s.on_exit_local(move || {
                        s.spawn_local(move || {
                            (0..9).for_each(|_| fiber::yield_now());
                            sets.set(true);
                        });
                        panic_any(Bomb);
                    });
                    s.on_exit_local(|| panic!("the first"));
                });
            });
            let payload = catch_unwind(scope).unwrap_err();
            assert!(ended.get(), "the scope was left before its fiber ended");
            assert_eq!(message(payload), "the first");
        });
    });
}

#[test]
fn combinator_raises_first_of_two_panics() {
    child::must_succeed("combinator_raises_first_of_two_panics", || {
        on_one_worker(|| {
            let both = AssertUnwindSafe(|| {
                let second = || {
                    let _later = OnDrop(fiber::yield_now);
                    panic_any(Bomb)
                };
                fiber::join(
                    || {
                        fiber::yield_now();
                        panic!("the first")
                    },
                    second,
                )
            });
            let payload = catch_unwind(both).map(|((), ())| ()).unwrap_err();
            assert_eq!(message(payload), "the first");
        });
    });
}

#[test]
fn try_scope_raises_panic_despite_panicking_payload() {
    child::must_succeed("try_scope_raises_panic_despite_panicking_payload", || {
        on_one_worker(|| {
            let scope = AssertUnwindSafe(|| {
                fiber::try_scope(|s| -> std::io::Result<()> {
                    s.spawn_local(|| -> std::io::Result<()> { panic!("the first") });
                    fiber::yield_now();
                    panic_any(Bomb)
                })
            });
            let payload = catch_unwind(scope).map(drop).unwrap_err();
            assert_eq!(message(payload), "the first");
        });
    });
}
