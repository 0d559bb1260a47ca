//! `par_map`, `par_for_each`, and their fallible forms.

use super::{FOREVER, discard, is_cancel, is_unwound, panic_of, silent_pipe};
use cringle::{Cancelled, fiber, time};
use cringle_testing::tools::{message, on_one_worker, yield_times};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read};
use std::panic::{catch_unwind, panic_any};
use std::time::Duration;

/// The number of running closures, and its maximum.
#[derive(Default)]
struct Running {
    now: Cell<usize>,
    max: Cell<usize>,
}

impl Running {
    fn during<T>(&self, f: impl FnOnce() -> T) -> T {
        self.now.set(self.now.get() + 1);
        self.max.set(self.max.get().max(self.now.get()));
        let result = f();
        self.now.set(self.now.get() - 1);
        result
    }
}

#[test]
fn par_map_keeps_order_and_reaches_its_limit() {
    on_one_worker(|| {
        for (items, limit) in [(0, 1), (1, 7), (100, 1), (100, 7), (7, 7), (5, 1000)] {
            let (running, begun) = (Running::default(), RefCell::new(Vec::new()));
            let factor = std::hint::black_box(2);
            let double = |n: usize| {
                begun.borrow_mut().push(n);
                running.during(|| yield_times(n % 5 + 20));
                n * factor
            };
            // An iterator of known length, and one of unknown length.
            let known = fiber::par_map(0..items, limit, double);
            let unknown = fiber::par_map((0..items).filter(|_| true), limit, double);
            assert!(known == unknown && known.iter().copied().eq((0..items).map(|n| n * factor)));
            assert!(begun.into_inner().into_iter().eq((0..items).chain(0..items)));
            assert_eq!(running.max.get(), limit.min(items));
        }
    });
}

#[test]
fn par_map_takes_items_only_below_its_limit() {
    on_one_worker(|| {
        let (taken, done) = (Cell::new(0), Cell::new(0));
        let items = (0..50).inspect(|_| taken.set(taken.get() + 1));
        fiber::par_for_each(items, 4, |_| {
            assert!(taken.get() - done.get() <= 4);
            fiber::yield_now();
            done.set(done.get() + 1);
        });
        assert_eq!(done.get(), 50);
    });
}

#[test]
fn iterator_of_par_map_can_wait() {
    on_one_worker(|| {
        let items = (0..20).inspect(|_| fiber::yield_now());
        let squares = fiber::par_map(items, 3, |n| {
            fiber::yield_now();
            n * n
        });
        assert_eq!(squares, (0..20).map(|n| n * n).collect::<Vec<_>>());
    });
}

#[test]
fn million_items_share_three_fibers() {
    on_one_worker(|| {
        let sum = Cell::new(0u64);
        fiber::par_for_each(0..1_000_000u64, 3, |n| {
            if n % 1000 == 0 {
                fiber::yield_now();
            }
            sum.set(sum.get() + n);
        });
        assert_eq!(sum.get(), 499_999_500_000);
    });
}

#[test]
fn try_par_map_error_is_returned_after_all_end() {
    on_one_worker(|| {
        let (running, begun) = (Running::default(), Cell::new(0));
        let result = fiber::try_par_map(0.., 4, |n| {
            begun.set(begun.get() + 1);
            running.during(|| match n {
                5 => Err(io::Error::from(ErrorKind::NotFound)),
                1..=3 => time::sleep(FOREVER).map(|()| n),
                _ => fiber::yield_now_cancellable().map(|()| n),
            })
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(running.now.get(), 0, "all calls have ended");
        assert_eq!(begun.get(), 6, "no call starts after the error");
        let fine = fiber::try_par_map(0..10, 4, |n| fiber::yield_now_cancellable().map(|()| n));
        assert_eq!(fine.unwrap(), (0..10).collect::<Vec<_>>());
        let ends = fiber::try_par_for_each(0..10, 4, |_| Err(ErrorKind::NotFound.into()));
        let ends: io::Error = ends.unwrap_err();
        assert_eq!(ends.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn failed_try_par_map_takes_no_further_item() {
    on_one_worker(|| {
        let (taken, begun) = (Cell::new(0), Cell::new(0));
        let items = (0..10).inspect(|_| taken.set(taken.get() + 1));
        let result = fiber::try_par_map(items, 2, |n| {
            begun.set(begun.get() + 1);
            if n == 0 {
                fiber::yield_now();
                return Err(io::Error::from(ErrorKind::NotFound));
            }
            // It succeeds after the error, because it ignores the cancel.
            while fiber::yield_now_cancellable().is_ok() {}
            Ok(n)
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!((taken.get(), begun.get()), (2, 2));
    });
}

#[test]
fn panic_in_par_map_cancels_the_other_calls() {
    on_one_worker(|| {
        let begun = Cell::new(0);
        let map = || {
            fiber::par_map(0.., 4, |n| {
                begun.set(begun.get() + 1);
                match n {
                    2 => panic_any(2),
                    _ => fiber::sleep(FOREVER),
                }
            })
        };
        assert_eq!(panic_of(|| discard(map())), 2);
        assert_eq!(begun.get(), 3);
        // A panic of the iterator, too.
        let items = (0..10).inspect(|&n| {
            if n == 3 {
                panic_any(3)
            }
        });
        let map = || fiber::par_for_each(items, 2, |_| fiber::yield_now());
        assert_eq!(panic_of(map), 3);
    });
}

/// Returns the result of `f`, whose fiber is cancelled after its closures have started.
fn cancelled<T>(f: impl FnOnce() -> T) -> fiber::Result<T> {
    fiber::scope(|s| {
        let handle = s.spawn_local(f);
        yield_times(5);
        s.cancel();
        handle.join()
    })
}

#[test]
fn cancel_reaches_all_closures_of_par_map() {
    on_one_worker(|| {
        let (pipe, _writer) = silent_pipe();
        let ended = RefCell::new(Vec::new());
        let read = |n: usize| {
            let result = (&pipe).read(&mut [0]);
            ended.borrow_mut().push(n);
            result
        };
        let all_ended = || {
            let mut ended = ended.take();
            ended.sort_unstable();
            ended == [0, 1, 2, 3, 4]
        };
        let error = cancelled(|| fiber::try_par_map(0.., 5, read).unwrap_err());
        assert!(is_cancel(&error.unwrap()));
        assert!(all_ended(), "the running calls have ended, and no others started");

        // `par_map` has no error to return: it unwinds, because items are left.
        let payload = cancelled(|| fiber::par_map(0.., 5, read).len()).unwrap_err();
        assert!(payload.is::<Cancelled>() && all_ended());

        // If no items are left, the results of the running calls are returned.
        let results = cancelled(|| fiber::par_map(0..5, 5, read)).unwrap();
        assert!(results.into_iter().all(|result| is_cancel(&result.unwrap_err())) && all_ended());

        // Unwound calls have no results.
        let sleep = |_| fiber::sleep(FOREVER);
        let payload = cancelled(|| fiber::par_for_each(0..5, 5, sleep)).unwrap_err();
        assert!(payload.is::<Cancelled>());
        let try_sleep = |n| -> io::Result<()> {
            sleep(n);
            Ok(())
        };
        let error = cancelled(|| fiber::try_par_for_each(0..5, 5, try_sleep).unwrap_err());
        assert!(is_cancel(&error.unwrap()));

        // A deadline returns its own error.
        let limit = Duration::from_millis(1);
        let late = time::timeout(limit, || Ok(fiber::par_map(0.., 5, read).len()));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        let late = time::timeout(limit, || fiber::try_par_map(0.., 5, read));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn cancelled_caller_of_par_map_starts_no_item() {
    on_one_worker(|| {
        fiber::scope(|s| {
            s.cancel();
            let error = fiber::try_par_map(0..3, 2, |_| -> io::Result<()> { panic!("begun") });
            assert!(is_cancel(&error.unwrap_err()));
            assert!(is_unwound(|| fiber::par_for_each(0..3, 2, |_| panic!("begun"))));
            // A protected call is not cancelled, and an empty one needs no check.
            fiber::protect(|| assert_eq!(fiber::par_map(0..3, 2, |n| n), [0, 1, 2]));
            assert!(fiber::par_map(0..0, 2, |n: i32| n).is_empty());
        });
    });
}

#[test]
#[should_panic(expected = "a limit of 0 allows no work")]
fn limit_of_zero_panics() {
    on_one_worker(|| fiber::par_for_each(0..3, 0, drop));
}

#[test]
fn join_outside_of_run_panics_with_the_remedy() {
    let payload = catch_unwind(|| fiber::join(|| (), || ())).unwrap_err();
    assert!(message(payload).contains("cringle::run"));
}

/// The calls wait for each other, so all must run concurrently.
#[test]
fn par_for_each_runs_up_to_limit_concurrently() {
    on_one_worker(|| {
        let all = cringle::sync::Barrier::new(32);
        fiber::par_for_each(0..32, 32, |_| {
            all.wait();
        });
    });
}
