//! `join` and `join_all`.

use super::{FOREVER, discard, is_cancel, panic_of, silent_pipe};
use cringle::{Cancelled, fiber, time};
use cringle_testing::tools::{on_one_worker, yield_times};
use std::cell::{Cell, RefCell};
use std::io::Read;
use std::panic::{catch_unwind, panic_any, resume_unwind};

#[test]
fn join_runs_both_concurrently_on_one_worker() {
    on_one_worker(|| {
        let (steps, text) = (RefCell::new(Vec::new()), String::from("borrowed"));
        let step = |name| {
            for _ in 0..3 {
                steps.borrow_mut().push(name);
                fiber::yield_now();
            }
            text.len()
        };
        assert_eq!(fiber::join(|| step('a'), || step('b')), (8, 8));
        assert_eq!(steps.into_inner(), ['a', 'b', 'a', 'b', 'a', 'b']);
    });
}

#[test]
fn join_resumes_panic_after_cancelling_the_other_side() {
    on_one_worker(|| {
        let ended = Cell::new(false);
        let waits = || {
            fiber::sleep_cancellable(FOREVER).unwrap_err();
            fiber::protect(|| yield_times(3));
            ended.set(true);
        };
        let panics = || -> () {
            fiber::yield_now();
            panic_any(7)
        };
        assert_eq!(panic_of(|| discard(fiber::join(panics, waits))), 7);
        assert!(ended.replace(false), "the other side has ended");
        assert_eq!(panic_of(|| discard(fiber::join(waits, panics))), 7);
        assert!(ended.get());
        // The unwinding of the cancelled side is no second panic.
        assert_eq!(panic_of(|| discard(fiber::join(panics, || fiber::sleep(FOREVER)))), 7);
        assert_eq!(panic_of(|| discard(fiber::join(|| fiber::sleep(FOREVER), panics))), 7);
    });
}

#[test]
fn first_of_two_panics_is_resumed() {
    on_one_worker(|| {
        let both = || {
            fiber::join(
                || catch_unwind(|| fiber::sleep(FOREVER)).map_err(|_| panic_any(2)).unwrap(),
                || -> () { resume_unwind(Box::new(1)) },
            )
        };
        assert_eq!(panic_of(|| discard(both())), 1);
    });
}

#[test]
fn join_does_not_start_second_side_after_panic() {
    on_one_worker(|| {
        let begun = Cell::new(false);
        assert_eq!(panic_of(|| discard(fiber::join(|| panic_any(1), || begun.set(true)))), 1);
        assert!(!begun.get());
    });
}

#[test]
fn cancelled_join_returns_both_results_or_unwinds() {
    on_one_worker(|| {
        let (pipe, _writer) = silent_pipe();
        fiber::scope(|s| {
            let returns = s.spawn_local(|| {
                let read = || (&pipe).read(&mut [0]);
                fiber::join(read, || time::sleep(FOREVER))
            });
            let unwinds = s.spawn_local(|| fiber::join(|| 1, || fiber::sleep(FOREVER)));
            yield_times(3);
            s.cancel();
            let (read, slept) = returns.join().unwrap();
            assert!(is_cancel(&read.unwrap_err()) && is_cancel(&slept.unwrap_err()));
            assert!(unwinds.join().unwrap_err().is::<Cancelled>());
        });
    });
}

#[test]
fn join_all_starts_and_returns_in_order() {
    on_one_worker(|| {
        let begun = RefCell::new(Vec::new());
        let closures = [5, 1, 3].map(|n| {
            let begun = &begun;
            move || {
                begun.borrow_mut().push(n);
                yield_times(n);
                n
            }
        });
        assert_eq!(fiber::join_all(closures), [5, 1, 3]);
        assert_eq!(begun.into_inner(), [5, 1, 3]);
        assert!(fiber::join_all(<[fn(); 0]>::default()).is_empty());
    });
}

#[test]
fn panic_in_join_all_cancels_the_others() {
    on_one_worker(|| {
        let closures = (0..10).map(|n| {
            move || match n {
                4 => panic_any(4),
                _ => fiber::sleep(FOREVER),
            }
        });
        assert_eq!(panic_of(|| discard(fiber::join_all(closures))), 4);
    });
}
