//! `par_map_workers`, `par_for_each_workers`, and their fallible forms.

use super::{FOREVER, discard, is_cancel, is_unwound, panic_of, silent_pipe};
use cringle::runtime::{Balance, DriverChoice};
use cringle::{Builder, Cancelled, cancel, fiber, runtime, time};
use cringle_testing::tools::{OnDrop, message, spawn_on, yield_times};
use std::cell::Cell;
use std::io::{self, ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn on_workers(workers: usize, f: impl FnOnce()) {
    Builder::new().workers(workers).run(f).unwrap();
}

/// Runs `f` with one worker, with two and with three, on both drivers.
fn on_some_workers(f: impl Fn()) {
    for workers in [1, 2, 3] {
        for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
            Builder::new().workers(workers).driver(driver).run(&f).unwrap();
        }
    }
}

/// The number of running closures, and its maximum.
#[derive(Default)]
struct Running {
    now: AtomicUsize,
    max: AtomicUsize,
}

impl Running {
    fn during<T>(&self, f: impl FnOnce() -> T) -> T {
        self.max.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
        let _end = OnDrop(|| {
            self.now.fetch_sub(1, SeqCst);
        });
        f()
    }

    fn now(&self) -> usize {
        self.now.load(SeqCst)
    }
}

#[test]
fn results_of_all_workers_are_in_order() {
    on_some_workers(|| {
        for (items, limit) in [(0, 1), (1, 7), (100, 1), (1000, 7), (7, 7), (5, 3000)] {
            let running = Running::default();
            let double = |n: usize| {
                running.during(|| yield_times(n % 5));
                n * 2
            };
            // An iterator of known length, and one of unknown length.
            let known = fiber::par_map_workers(0..items, limit, double);
            let unknown = fiber::par_map_workers((0..items).filter(|_| true), limit, double);
            assert!(known == unknown && known.iter().copied().eq((0..items).map(|n| n * 2)));
            assert!(running.max.into_inner() <= limit);
        }
    });
}

fn wait_until(pause: impl Fn(), condition: impl Fn() -> bool) {
    while !condition() {
        pause();
    }
}

/// Keeps the calling worker busy.
fn block_worker() {
    std::thread::sleep(Duration::from_micros(100));
}

/// The calls wait for each other, so all must run concurrently.
#[test]
fn calls_on_all_workers_reach_their_limit() {
    on_some_workers(|| {
        for limit in [1, 2, 5, 33] {
            let begun = AtomicUsize::new(0);
            fiber::par_for_each_workers(0..limit * 3, limit, |_| {
                let all = (begun.fetch_add(1, SeqCst) / limit + 1) * limit;
                let pause = || time::sleep(Duration::from_micros(100)).unwrap();
                wait_until(pause, || begun.load(SeqCst) >= all);
            });
        }
    });
}

/// Each call blocks its worker until the others have begun.
#[test]
fn each_worker_gets_a_call() {
    for workers in [2, 3] {
        on_workers(workers, || {
            for limit in [workers, 10 * workers] {
                let begun = AtomicUsize::new(0);
                let mut used = fiber::par_map_workers(0..workers, limit, |_| {
                    begun.fetch_add(1, SeqCst);
                    wait_until(block_worker, || begun.load(SeqCst) == workers);
                    runtime::worker().unwrap()
                });
                used.sort_unstable();
                assert!(used.into_iter().eq(0..workers));
            }
        });
    }
}

/// Runs `f` on one of two workers, while the other one is busy until `f` sets the flag, or ends.
/// Fibers that move at every chance would move to the busy worker, too, and not run there.
fn beside_busy_worker(f: impl FnOnce(&AtomicBool) + Send) {
    let run = || {
        let (is_busy, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        fiber::scope(|s| {
            spawn_on(1, s, || {
                is_busy.store(true, SeqCst);
                wait_until(block_worker, || is_over.load(SeqCst));
            });
            while !is_busy.load(SeqCst) {
                fiber::yield_now();
            }
            let _end = OnDrop(|| is_over.store(true, SeqCst));
            f(&is_over);
        });
    };
    Builder::new().workers(2).balance(Balance::Fixed).run(run).unwrap();
}

#[test]
fn busy_worker_is_not_awaited() {
    beside_busy_worker(|_| {
        for limit in [2, 64] {
            let here = fiber::par_map_workers(0..200, limit, |_| {
                fiber::yield_now();
                runtime::worker().unwrap()
            });
            assert_eq!(here, [0; 200]);
        }
    });
}

/// Fibers that began while a worker was busy do not keep it from its share.
#[test]
fn worker_that_was_busy_joins_in() {
    beside_busy_worker(|is_over| {
        let (begun, both) = (AtomicUsize::new(0), AtomicBool::new(false));
        // Until a call runs on the other worker, which takes far fewer.
        let items = std::iter::repeat_n((), 300_000).take_while(|()| !both.load(SeqCst));
        fiber::par_for_each_workers(items, 8, |()| {
            if begun.fetch_add(1, SeqCst) == 100 {
                is_over.store(true, SeqCst);
            }
            time::sleep(Duration::from_micros(10)).unwrap();
            both.fetch_or(runtime::worker() == Some(1), SeqCst);
        });
        assert!(both.load(SeqCst));
    });
}

#[test]
fn items_are_taken_only_ahead_of_free_fibers() {
    on_some_workers(|| {
        let (taken, done) = (Cell::new(0), AtomicUsize::new(0));
        let items = (0..500).inspect(|_| {
            taken.set(taken.get() + 1);
            // One runs on each fiber, and eight are queued for it.
            assert!(taken.get() - done.load(SeqCst) <= (1 + 8) * 4);
        });
        fiber::par_for_each_workers(items, 4, |_| {
            fiber::yield_now();
            done.fetch_add(1, SeqCst);
        });
        assert_eq!((taken.get(), done.into_inner()), (500, 500));
    });
}

#[test]
fn iterator_on_the_caller_can_wait() {
    on_some_workers(|| {
        let place = runtime::worker();
        let local = Rc::new(Cell::new(0));
        let items = (0..50).inspect(|_| {
            fiber::yield_now();
            assert_eq!(runtime::worker(), place);
            local.set(local.get() + 1);
        });
        let squares = fiber::par_map_workers(items, 3, |n| {
            fiber::yield_now();
            n * n
        });
        assert_eq!(squares, (0..50).map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(local.get(), 50);
    });
}

#[test]
fn million_items_share_the_fibers_of_all_workers() {
    on_workers(2, || {
        let sum = AtomicUsize::new(0);
        fiber::par_for_each_workers(0..1_000_000, 6, |n| {
            if n % 1000 == 0 {
                fiber::yield_now();
            }
            sum.fetch_add(n, SeqCst);
        });
        assert_eq!(sum.into_inner(), 499_999_500_000);
    });
}

/// A yield is no wait: the other calls of the worker would only take turns with this one.
#[test]
fn calls_that_do_not_wait_use_few_fibers() {
    on_workers(1, || {
        let running = Running::default();
        fiber::par_for_each_workers(0..1000, 64, |_| running.during(fiber::yield_now));
        assert!(running.max.into_inner() <= 4);
    });
}

/// The iterator pauses after 100 items, so that the queue is empty then.
#[test]
fn fibers_of_swift_calls_do_not_gather_at_an_empty_queue() {
    on_workers(1, || {
        let most = Cell::new(0);
        let items = (0..10_000).inspect(|n| {
            if n % 100 == 0 {
                yield_times(200);
            }
            let all = runtime::stats().expect("a runtime").total();
            most.set(most.get().max(all.started - all.ended));
        });
        fiber::par_for_each_workers(items, 64, |_| fiber::yield_now());
        assert!(most.get() <= 6, "{} fibers", most.get());
    });
}

/// The iterator does not wait, and the queue has room for all its items.
#[test]
fn feeding_lets_other_fibers_run() {
    on_workers(1, || {
        let (taken, taken_before_other) = (Cell::new(0), Cell::new(0));
        fiber::scope(|s| {
            s.spawn_local(|| taken_before_other.set(taken.get()));
            let items = (0..1000).inspect(|_| taken.set(taken.get() + 1));
            fiber::par_for_each_workers(items, 2000, drop);
        });
        assert!(taken_before_other.get() <= 128, "{} items", taken_before_other.get());
    });
}

#[test]
fn try_par_map_workers_error_is_returned_after_all_end() {
    on_some_workers(|| {
        let running = Running::default();
        let result = fiber::try_par_map_workers(0.., 4, |n| {
            running.during(|| match n {
                5 => Err(io::Error::from(ErrorKind::NotFound)),
                1..=3 => time::sleep(FOREVER).map(|()| n),
                _ => fiber::yield_now_cancellable().map(|()| n),
            })
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(running.now(), 0, "all calls have ended");
        let yields = |n| fiber::yield_now_cancellable().map(|()| n);
        let fine = fiber::try_par_map_workers(0..100, 4, yields);
        assert_eq!(fine.unwrap(), (0..100).collect::<Vec<_>>());
        let fails = |_| Err(ErrorKind::NotFound.into());
        let ends: io::Error = fiber::try_par_for_each_workers(0.., 4, fails).unwrap_err();
        assert_eq!(ends.kind(), ErrorKind::NotFound);
        fiber::try_par_for_each_workers(0..9, 4, |n| yields(n).map(drop)).unwrap();
    });
}

#[test]
fn no_result_or_item_is_lost_after_an_error() {
    on_some_workers(|| {
        let alive = Arc::new(());
        let items = || std::iter::repeat_with(|| Arc::clone(&alive)).enumerate();
        let fail_late = |(n, item): (usize, Arc<()>)| {
            fiber::yield_now_cancellable()?;
            if n == 500 { Err(io::Error::other("late")) } else { Ok(item) }
        };
        let error = fiber::try_par_map_workers(items(), 7, fail_late).unwrap_err();
        assert_eq!(error.to_string(), "late");
        assert_eq!(Arc::strong_count(&alive), 1);
        let kept = fiber::try_par_map_workers(items().take(300), 7, fail_late).unwrap();
        assert_eq!(Arc::strong_count(&alive), 301);
        drop(kept);
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

#[test]
fn panic_on_any_worker_cancels_the_other_calls() {
    on_some_workers(|| {
        let running = Running::default();
        let map = || {
            fiber::par_map_workers(0.., 4, |n| {
                running.during(|| match n {
                    2 => panic_any(2),
                    _ => fiber::sleep(FOREVER),
                });
            })
        };
        assert_eq!(panic_of(|| discard(map())), 2);
        assert_eq!(running.now(), 0);
        // A panic of the iterator, too.
        let items = (0..10).inspect(|&n| {
            if n == 3 {
                panic_any(3)
            }
        });
        let map = || fiber::par_for_each_workers(items, 2, |_| running.during(fiber::yield_now));
        assert_eq!(panic_of(map), 3);
        assert_eq!(running.now(), 0);
    });
}

/// Returns the result of `f`, whose fiber is cancelled when `begun` is 5.
fn cancelled<T>(begun: &AtomicUsize, f: impl FnOnce() -> T) -> fiber::Result<T> {
    begun.store(0, SeqCst);
    fiber::scope(|s| {
        let handle = s.spawn_local(f);
        while begun.load(SeqCst) < 5 {
            fiber::yield_now();
        }
        s.cancel();
        handle.join()
    })
}

#[test]
fn cancel_reaches_calls_on_all_workers() {
    on_some_workers(|| {
        let (pipe, _writer) = silent_pipe();
        let (begun, ended) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let read = |n: usize| {
            begun.fetch_add(1, SeqCst);
            let result = (&pipe).read(&mut [0]);
            ended.lock().unwrap().push(n);
            result
        };
        let all_ended = || {
            let mut ended = std::mem::take(&mut *ended.lock().unwrap());
            ended.sort_unstable();
            ended == [0, 1, 2, 3, 4]
        };
        let map = || fiber::try_par_map_workers(0.., 5, read).unwrap_err();
        assert!(is_cancel(&cancelled(&begun, map).unwrap()));
        assert!(all_ended(), "the running calls have ended, and no others started");

        // `par_map_workers` has no error to return: it unwinds, because items are left.
        let map = || fiber::par_map_workers(0.., 5, read).len();
        let payload = cancelled(&begun, map).unwrap_err();
        assert!(payload.is::<Cancelled>() && all_ended());

        // If no items are left, the results of the running calls are returned.
        let results = cancelled(&begun, || fiber::par_map_workers(0..5, 5, read)).unwrap();
        assert!(results.into_iter().all(|result| is_cancel(&result.unwrap_err())) && all_ended());

        // Unwound calls have no results.
        let sleep = |_| {
            begun.fetch_add(1, SeqCst);
            fiber::sleep(FOREVER);
        };
        let for_each = || fiber::par_for_each_workers(0..5, 5, sleep);
        assert!(cancelled(&begun, for_each).unwrap_err().is::<Cancelled>());
        let try_sleep = |n| -> io::Result<()> {
            sleep(n);
            Ok(())
        };
        let for_each = || fiber::try_par_for_each_workers(0..5, 5, try_sleep).unwrap_err();
        assert!(is_cancel(&cancelled(&begun, for_each).unwrap()));

        // A deadline returns its own error.
        let limit = Duration::from_millis(1);
        let late = time::timeout(limit, || Ok(fiber::par_map_workers(0.., 5, read).len()));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        let late = time::timeout(limit, || fiber::try_par_map_workers(0.., 5, read));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn cancelled_caller_starts_no_item_on_any_worker() {
    on_some_workers(|| {
        fiber::scope(|s| {
            s.cancel();
            let fail = |_| -> io::Result<()> { panic!("begun") };
            let error = fiber::try_par_map_workers(0..3, 2, fail);
            assert!(is_cancel(&error.unwrap_err()));
            assert!(is_unwound(|| fiber::par_for_each_workers(0..3, 2, |_| panic!("begun"))));
            // A protected call is not cancelled, and an empty one needs no check.
            let same = |n: i32| n;
            fiber::protect(|| assert_eq!(fiber::par_map_workers(0..3, 2, same), [0, 1, 2]));
            assert!(fiber::par_map_workers(0..0, 2, same).is_empty());
        });
    });
}

/// A fiber that unwinds is not cancelled, so a failure must end its waits in another way.
#[test]
fn destructor_of_a_panic_uses_all_workers() {
    on_some_workers(|| {
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _in_destructor = OnDrop(|| {
                let sum: i32 = fiber::par_map_workers(0..100, 5, |n| n).into_iter().sum();
                assert_eq!(sum, 4950);
                let fail = |n| if n == 50 { Err(io::Error::other("50")) } else { Ok(()) };
                assert!(fiber::try_par_for_each_workers(0.., 5, fail).is_err());
            });
            panic_any(7);
        }));
        assert_eq!(*unwound.unwrap_err().downcast::<i32>().unwrap(), 7);
    });
}

#[test]
fn calls_nest_on_all_workers() {
    on_some_workers(|| {
        let sum = |n: u64| fiber::par_map_workers(0..n, 3, |n| n).into_iter().sum::<u64>();
        let sums = fiber::par_map_workers(0..40, 5, sum);
        assert!(sums.into_iter().eq((0..40).map(|n: u64| n * n.saturating_sub(1) / 2)));
        assert!(cancel::check().is_ok());
    });
}

#[test]
#[should_panic(expected = "a limit of 0 allows no work")]
fn limit_of_zero_on_all_workers_panics() {
    on_workers(2, || fiber::par_for_each_workers(0..3, 0, drop));
}

#[test]
fn par_map_workers_outside_of_run_panics_with_the_remedy() {
    let payload = catch_unwind(|| fiber::par_map_workers(0..3, 2, |n| n)).unwrap_err();
    assert!(message(payload).contains("cringle::run"));
}
