//! Concurrent closures: `join` and `join_all`, `race`, `any`, and `par_map` with its relatives.

use crate::tools::{message, on_one_worker, yield_times};
use cringle::fs::File;
use cringle::{Builder, Cancelled, cancel, fiber, time};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Returns a pipe that stays empty as long as its writing end is open.
fn silent_pipe() -> (File, io::PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    (OwnedFd::from(reader).into(), writer)
}

fn is_cancel(error: &io::Error) -> bool {
    cancel::reason(error).is_some()
}

/// Returns the payload of the panic of `f`, which is a number.
fn panic_of(f: impl FnOnce()) -> i32 {
    *catch_unwind(AssertUnwindSafe(f)).unwrap_err().downcast().expect("a number")
}

/// Drops a result of any type.
fn discard<T>(_: T) {}

fn is_unwound(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err_and(|payload| payload.is::<Cancelled>())
}

const FOREVER: Duration = Duration::from_secs(3600);

// ----- join -----

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

// ----- race -----

#[test]
fn race_cancels_the_read_of_its_loser() {
    on_one_worker(|| {
        let (pipe, _writer) = silent_pipe();
        let error = Cell::new(None);
        let reads = || {
            let result = (&pipe).read(&mut [0]);
            error.set(result.as_ref().err().map(is_cancel));
            result
        };
        let wins = || time::sleep(Duration::from_millis(1)).map(|()| 42);
        assert_eq!(fiber::race(wins, reads).unwrap(), 42);
        assert_eq!(error.take(), Some(true));
        assert_eq!(fiber::race(reads, wins).unwrap(), 42);
        assert_eq!(error.take(), Some(true), "the side on the calling fiber is cancelled, too");
        // The caller is not cancelled.
        assert!(cancel::check().is_ok());
    });
}

#[test]
fn race_unwinds_a_loser_that_cannot_fail() {
    on_one_worker(|| {
        let sleeps = || -> io::Result<i32> {
            fiber::sleep(FOREVER);
            unreachable!("a cancelled sleep does not return");
        };
        let wins = || fiber::yield_now_cancellable().map(|()| 1);
        assert_eq!(fiber::race(sleeps, wins).unwrap(), 1);
        assert_eq!(fiber::race(wins, sleeps).unwrap(), 1);
        // In a scope, on a fiber of a fiber.
        let nested =
            || fiber::race(sleeps, || fiber::scope(|s| s.spawn_local(sleeps).join().unwrap()));
        assert_eq!(fiber::race(nested, wins).unwrap(), 1);
    });
}

#[test]
fn race_with_combines_two_winners_in_order() {
    on_one_worker(|| {
        // A side that is cancelled may still return its value.
        let done = |turns, value| {
            move || {
                (0..turns).for_each(|_| drop(fiber::yield_now_cancellable()));
                Ok::<_, io::Error>(vec![value])
            }
        };
        let both = |first, second| [first, second].concat();
        assert_eq!(fiber::race_with(done(1, 'a'), done(3, 'b'), both).unwrap(), ['a', 'b']);
        assert_eq!(fiber::race_with(done(3, 'a'), done(1, 'b'), both).unwrap(), ['b', 'a']);
        // A cancelled side without a value is ignored.
        let waits = || time::sleep(FOREVER).map(|()| vec!['c']);
        assert_eq!(fiber::race_with(done(1, 'a'), waits, both).unwrap(), ['a']);
        assert_eq!(fiber::race_with(waits, done(1, 'a'), both).unwrap(), ['a']);
    });
}

/// Whenever the cancel arrives, a byte is either returned or still in its pipe.
#[test]
fn no_byte_is_lost_when_reads_race() {
    on_one_worker(|| {
        for turns in (0..6).cycle().take(300) {
            let pipes = [(); 2].map(|()| silent_pipe());
            let [left, right] = pipes.each_ref().map(|(reader, _)| {
                move || {
                    let mut byte = [0];
                    let mut reader = reader;
                    reader.read_exact(&mut byte).map(|()| u32::from(byte[0]))
                }
            });
            fiber::scope(|s| {
                s.spawn_local(|| {
                    yield_times(turns % 3);
                    io::Write::write_all(&mut &pipes[0].1, &[1]).unwrap();
                    yield_times(turns / 3);
                    io::Write::write_all(&mut &pipes[1].1, &[2]).unwrap();
                });
                let taken = fiber::race_with(left, right, |first, second| first + second);
                let taken = taken.unwrap();
                // If the other byte is lost, this read waits for ever.
                let rest = match taken {
                    1 => right().unwrap(),
                    2 => left().unwrap(),
                    _ => 0,
                };
                assert_eq!(taken + rest, 3);
            });
        }
    });
}

#[test]
fn race_returns_the_first_result_or_error() {
    on_one_worker(|| {
        let fails = || Err(io::Error::from(ErrorKind::NotFound));
        let waits = || time::sleep(FOREVER);
        assert_eq!(fiber::race(waits, fails).unwrap_err().kind(), ErrorKind::NotFound);
        // The first side did not wait, so the second does not start.
        let never = || panic!("the second side started");
        assert_eq!(fiber::race(fails, never).unwrap_err().kind(), ErrorKind::NotFound);
        // A side's own deadline counts as its error.
        let late = || time::timeout(Duration::from_millis(1), waits);
        assert_eq!(fiber::race(waits, late).unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn race_resumes_panics_of_winner_and_loser() {
    on_one_worker(|| {
        let waits = || time::sleep(FOREVER);
        let wins = || fiber::yield_now_cancellable();
        let panics = || panic_any(1);
        assert_eq!(panic_of(|| discard(fiber::race(waits, panics))), 1);
        let loser = || {
            time::sleep(FOREVER).unwrap_err();
            panic_any(2)
        };
        assert_eq!(panic_of(|| discard(fiber::race(wins, loser))), 2);
        assert_eq!(panic_of(|| discard(fiber::race(loser, wins))), 2);
    });
}

#[test]
fn cancel_from_outside_reaches_both_racing_sides() {
    on_one_worker(|| {
        let waits = || time::sleep(FOREVER);
        let sleeps = || -> io::Result<()> {
            fiber::sleep(FOREVER);
            unreachable!("a cancelled sleep does not return");
        };
        let limit = Duration::from_millis(1);
        for race in [
            &(|| fiber::race(waits, waits)) as &dyn Fn() -> io::Result<()>,
            &|| fiber::race(waits, sleeps),
            &|| fiber::race(sleeps, waits),
            &|| fiber::race(sleeps, sleeps),
        ] {
            assert_eq!(time::timeout(limit, race).unwrap_err().kind(), ErrorKind::TimedOut);
        }
        assert!(cancel::check().is_ok());
    });
}

// ----- any -----

#[test]
fn any_returns_first_success_and_cancels_others() {
    on_one_worker(|| {
        let attempts = [0, 3, 1, 2].map(|n: u64| {
            move || match n {
                0 => Err(io::Error::from(ErrorKind::NotFound)),
                3 => time::sleep(FOREVER).map(|()| 3),
                n => time::sleep(Duration::from_millis(n * 4)).map(|()| n),
            }
        });
        assert_eq!(fiber::any(attempts).unwrap(), 1);
    });
}

#[test]
fn any_returns_last_error_if_all_fail() {
    on_one_worker(|| {
        let kinds = [(3, ErrorKind::AddrInUse), (1, ErrorKind::NotFound)];
        let attempts = kinds.map(|(turns, kind)| {
            move || {
                yield_times(turns);
                Err::<(), _>(io::Error::from(kind))
            }
        });
        assert_eq!(fiber::any(attempts).unwrap_err().kind(), ErrorKind::AddrInUse);
        let none: [fn() -> io::Result<()>; 0] = [];
        assert_eq!(fiber::any(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn cancelled_any_fails_or_unwinds() {
    on_one_worker(|| {
        fiber::scope(|s| {
            s.spawn_local(|| {
                let attempts = [(); 3].map(|()| || time::sleep(FOREVER));
                assert!(is_cancel(&fiber::any(attempts).unwrap_err()));
                let sleeps = [(); 3].map(|()| {
                    || {
                        fiber::sleep(FOREVER);
                        Ok::<(), io::Error>(())
                    }
                });
                assert!(is_unwound(|| discard(fiber::any(sleeps))));
            });
            fiber::yield_now();
            fiber::yield_now();
            s.cancel();
        });
    });
}

#[test]
fn panic_in_any_cancels_the_others() {
    on_one_worker(|| {
        let attempts = (0..5).map(|n| {
            move || match n {
                2 => panic_any(2),
                _ => time::sleep(FOREVER),
            }
        });
        assert_eq!(panic_of(|| discard(fiber::any(attempts))), 2);
    });
}

// ----- par_map -----

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
fn par_map_takes_an_item_only_when_below_limit() {
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
fn try_par_map_returns_first_error_after_others_end() {
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
fn panic_in_par_map_cancels_others_and_starts_none() {
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

// ----- random combinations -----

/// A random tree of nested combinators, scopes and deadlines.
struct Tree<'a> {
    alive: &'a AtomicUsize,
    pipe: &'a File,
}

impl Tree<'_> {
    fn grow(&self, depth: u32, seed: u64) -> io::Result<u64> {
        self.alive.fetch_add(1, Ordering::Relaxed);
        let _ended = Ended(self.alive);
        let seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (kind, pick) = (seed >> 60, (seed >> 33) % 4);
        let child = |n: u64| self.grow(depth - 1, seed ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        if depth == 0 {
            return match kind {
                0 | 1 => (&*self.pipe).read(&mut [0]).map(|_| 0),
                2 | 3 => time::sleep(Duration::from_micros(pick * 300)).map(|()| 1),
                4 => time::sleep(FOREVER).map(|()| 2),
                5 => {
                    fiber::sleep(FOREVER);
                    Ok(3)
                }
                6 => Err(ErrorKind::NotFound.into()),
                7 => {
                    fiber::protect(|| fiber::sleep(Duration::from_micros(pick * 100)));
                    Ok(4)
                }
                8 => fiber::scope(|s| s.spawn(|| time::sleep(FOREVER).map(|()| 5)).join().unwrap()),
                _ => fiber::yield_now_cancellable().map(|()| 6),
            };
        }
        match kind {
            0..3 => fiber::race(|| child(1), || child(2)),
            3..5 => fiber::race_with(|| child(1), || child(2), u64::wrapping_add),
            5 | 6 => {
                let (a, b) = fiber::join(|| child(1), || child(2));
                Ok(a? + b?)
            }
            7 | 8 => fiber::any((0..pick + 1).map(|n| move || child(n))),
            9 | 10 => Ok(fiber::try_par_map(0..6, pick as usize + 1, child)?.len() as u64),
            11 => Ok(fiber::par_map(0..4, 2, child).len() as u64),
            12 | 13 => time::timeout(Duration::from_micros(pick * 500), || child(1)),
            14 => fiber::scope(|s| {
                let other = s.spawn(|| child(1));
                s.spawn_local(|| drop(child(2)));
                fiber::yield_now_cancellable()?;
                s.cancel();
                other.join().unwrap_or(Ok(7))
            }),
            _ => fiber::try_scope(|s| {
                s.spawn(|| child(1));
                s.spawn_local(|| child(2));
                child(3)
            }),
        }
    }
}

struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Every call of the tree ends before its frame, and no call unwinds that was not cancelled.
#[test]
fn random_trees_of_combinators_end_when_cancelled() {
    let alive = AtomicUsize::new(0);
    let (pipe, _writer) = silent_pipe();
    let tree = Tree { alive: &alive, pipe: &pipe };
    let run = || {
        for seed in 0..400 {
            let limit = Duration::from_micros(seed * 7919 % 3000);
            let result = time::timeout(limit, || tree.grow(3, seed << 20));
            if let Err(error) = result {
                assert!(is_cancel(&error) || error.kind() == ErrorKind::NotFound, "{error:?}");
            }
            assert_eq!(alive.load(Ordering::Relaxed), 0, "seed {seed}");
            assert!(cancel::check().is_ok(), "seed {seed}");
        }
    };
    for workers in [1, 2] {
        Builder::new().workers(workers).run(run).unwrap();
    }
}
