//! Closures beside each other: all of them, the first of them, so many at once.

use cringle::fs::File;
use cringle::{Builder, Cancelled, cancel, fiber, time};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(1).run(f).unwrap()
}

/// A pipe to which nobody writes; the writing end is to be kept.
fn silent_pipe() -> (File, io::PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    (OwnedFd::from(reader).into(), writer)
}

fn is_cancel(error: &io::Error) -> bool {
    cancel::reason(error).is_some()
}

/// What `f` panics with, as the number that it is in these tests.
fn panic_of(f: impl FnOnce()) -> i32 {
    *catch_unwind(AssertUnwindSafe(f)).unwrap_err().downcast().expect("a number")
}

/// For a result of any type.
fn discard<T>(_: T) {}

fn is_unwound(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err_and(|payload| payload.is::<Cancelled>())
}

const FOREVER: Duration = Duration::from_secs(3600);

// ----- join -----

#[test]
fn join_runs_both_at_once_and_they_may_borrow_what_is_not_sync() {
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
fn a_panic_of_one_side_of_join_is_raised_when_the_other_has_been_cancelled() {
    on_one_worker(|| {
        let ended = Cell::new(false);
        let waits = || {
            fiber::sleep_cancellable(FOREVER).unwrap_err();
            fiber::protect(|| (0..3).for_each(|_| fiber::yield_now()));
            ended.set(true);
        };
        let panics = || -> () {
            fiber::yield_now();
            panic_any(7)
        };
        assert_eq!(panic_of(|| discard(fiber::join(panics, waits))), 7);
        assert!(ended.replace(false), "the other side has ended first");
        assert_eq!(panic_of(|| discard(fiber::join(waits, panics))), 7);
        assert!(ended.get());
        // One that is unwound by the cancel is no second panic.
        assert_eq!(panic_of(|| discard(fiber::join(panics, || fiber::sleep(FOREVER)))), 7);
        assert_eq!(panic_of(|| discard(fiber::join(|| fiber::sleep(FOREVER), panics))), 7);
    });
}

#[test]
fn of_two_panics_the_first_is_raised() {
    on_one_worker(|| {
        struct PanicsLate;
        let both = || {
            fiber::join(
                || catch_unwind(|| fiber::sleep(FOREVER)).map_err(|_| panic_any(2)).unwrap(),
                || -> PanicsLate { resume_unwind(Box::new(1)) },
            )
        };
        assert_eq!(panic_of(|| discard(both())), 1);
    });
}

#[test]
fn a_side_that_was_not_begun_when_the_other_panicked_is_not_begun() {
    on_one_worker(|| {
        let begun = Cell::new(false);
        assert_eq!(panic_of(|| discard(fiber::join(|| panic_any(1), || begun.set(true)))), 1);
        assert!(!begun.get());
    });
}

#[test]
fn a_cancelled_join_returns_what_both_returned_or_unwinds() {
    on_one_worker(|| {
        let (pipe, _writer) = silent_pipe();
        fiber::scope(|s| {
            let returns = s.spawn_local(|| {
                let read = || (&pipe).read(&mut [0]);
                fiber::join(read, || time::sleep(FOREVER))
            });
            let unwinds = s.spawn_local(|| fiber::join(|| 1, || fiber::sleep(FOREVER)));
            (0..3).for_each(|_| fiber::yield_now());
            s.cancel();
            let (read, slept) = returns.join().unwrap();
            assert!(is_cancel(&read.unwrap_err()) && is_cancel(&slept.unwrap_err()));
            assert!(unwinds.join().unwrap_err().is::<Cancelled>());
        });
    });
}

#[test]
fn join_all_keeps_the_order_and_begins_in_it() {
    on_one_worker(|| {
        let begun = RefCell::new(Vec::new());
        let closures = [5, 1, 3].map(|n| {
            let begun = &begun;
            move || {
                begun.borrow_mut().push(n);
                (0..n).for_each(|_| fiber::yield_now());
                n
            }
        });
        assert_eq!(fiber::join_all(closures), [5, 1, 3]);
        assert_eq!(begun.into_inner(), [5, 1, 3]);
        assert!(fiber::join_all(<[fn(); 0]>::default()).is_empty());
    });
}

#[test]
fn a_panic_in_join_all_ends_the_others() {
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
fn the_loser_of_a_race_is_cancelled_in_a_read_that_never_comes() {
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
        assert_eq!(error.take(), Some(true), "the calling fiber's side is cancelled as well");
        // The race is over: the caller is not cancelled by it.
        assert!(cancel::check().is_ok());
    });
}

#[test]
fn a_loser_in_a_wait_without_room_for_an_error_is_unwound_and_swallowed() {
    on_one_worker(|| {
        let sleeps = || -> io::Result<i32> {
            fiber::sleep(FOREVER);
            unreachable!("it was to be cancelled");
        };
        let wins = || fiber::yield_now_cancellable().map(|()| 1);
        assert_eq!(fiber::race(sleeps, wins).unwrap(), 1);
        assert_eq!(fiber::race(wins, sleeps).unwrap(), 1);
        // Deep in a scope of its own, and in fibers of fibers.
        let nested =
            || fiber::race(sleeps, || fiber::scope(|s| s.spawn_local(sleeps).join().unwrap()));
        assert_eq!(fiber::race(nested, wins).unwrap(), 1);
    });
}

#[test]
fn two_winners_are_combined_the_first_one_first() {
    on_one_worker(|| {
        // It has its value already when it is cancelled: what was done wins.
        let done = |turns, value| {
            move || {
                (0..turns).for_each(|_| drop(fiber::yield_now_cancellable()));
                Ok::<_, io::Error>(vec![value])
            }
        };
        let both = |first, second| [first, second].concat();
        assert_eq!(fiber::race_with(done(1, 'a'), done(3, 'b'), both).unwrap(), ['a', 'b']);
        assert_eq!(fiber::race_with(done(3, 'a'), done(1, 'b'), both).unwrap(), ['b', 'a']);
        // One that was cancelled has no value.
        let waits = || time::sleep(FOREVER).map(|()| vec!['c']);
        assert_eq!(fiber::race_with(done(1, 'a'), waits, both).unwrap(), ['a']);
        assert_eq!(fiber::race_with(waits, done(1, 'a'), both).unwrap(), ['a']);
    });
}

/// Whatever the moment at which the cancel comes: a byte is returned, or still in its pipe.
#[test]
fn no_byte_is_lost_between_two_reads_that_race() {
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
                    (0..turns % 3).for_each(|_| fiber::yield_now());
                    io::Write::write_all(&mut &pipes[0].1, &[1]).unwrap();
                    (0..turns / 3).for_each(|_| fiber::yield_now());
                    io::Write::write_all(&mut &pipes[1].1, &[2]).unwrap();
                });
                let taken = fiber::race_with(left, right, |first, second| first + second);
                let taken = taken.unwrap();
                let rest = time::timeout(Duration::from_secs(20), || match taken {
                    1 => right(),
                    2 => left(),
                    _ => Ok(0),
                });
                let rest = rest.expect("the other byte is still in its pipe");
                assert_eq!(taken + rest, 3);
            });
        }
    });
}

#[test]
fn the_first_to_return_decides_also_by_failing() {
    on_one_worker(|| {
        let fails = || Err(io::Error::from(ErrorKind::NotFound));
        let waits = || time::sleep(FOREVER);
        assert_eq!(fiber::race(waits, fails).unwrap_err().kind(), ErrorKind::NotFound);
        // It did not wait: the other one was not begun.
        let never = || panic!("it was begun");
        assert_eq!(fiber::race(fails, never).unwrap_err().kind(), ErrorKind::NotFound);
        // A deadline of one side's own is a failure like any other.
        let late = || time::timeout(Duration::from_millis(1), waits);
        assert_eq!(fiber::race(waits, late).unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_panic_in_a_race_is_raised_the_losers_too() {
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
fn a_cancel_from_outside_reaches_both_sides_of_a_race() {
    on_one_worker(|| {
        let waits = || time::sleep(FOREVER);
        let sleeps = || -> io::Result<()> {
            fiber::sleep(FOREVER);
            unreachable!("it was to be cancelled");
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
fn any_returns_the_first_success_and_ends_the_others() {
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
fn if_all_fail_any_returns_the_error_that_came_last() {
    on_one_worker(|| {
        let kinds = [(3, ErrorKind::AddrInUse), (1, ErrorKind::NotFound)];
        let attempts = kinds.map(|(turns, kind)| {
            move || {
                (0..turns).for_each(|_| fiber::yield_now());
                Err::<(), _>(io::Error::from(kind))
            }
        });
        assert_eq!(fiber::any(attempts).unwrap_err().kind(), ErrorKind::AddrInUse);
        let none: [fn() -> io::Result<()>; 0] = [];
        assert_eq!(fiber::any(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_cancelled_any_fails_or_unwinds() {
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
fn a_panic_in_any_ends_the_others() {
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

/// How many are at it, and the most there were.
#[derive(Default)]
struct Alive {
    now: Cell<usize>,
    most: Cell<usize>,
}

impl Alive {
    fn during<T>(&self, f: impl FnOnce() -> T) -> T {
        self.now.set(self.now.get() + 1);
        self.most.set(self.most.get().max(self.now.get()));
        let result = f();
        self.now.set(self.now.get() - 1);
        result
    }
}

#[test]
fn par_map_keeps_the_order_and_the_limit_and_uses_it() {
    on_one_worker(|| {
        for (items, limit) in [(0, 1), (1, 7), (100, 1), (100, 7), (7, 7), (5, 1000)] {
            let (alive, begun) = (Alive::default(), RefCell::new(Vec::new()));
            let factor = std::hint::black_box(2);
            let double = |n: usize| {
                begun.borrow_mut().push(n);
                alive.during(|| (0..n % 5 + 20).for_each(|_| fiber::yield_now()));
                n * factor
            };
            // An iterator that knows how many there are, and one that does not.
            let known = fiber::par_map(0..items, limit, double);
            let unknown = fiber::par_map((0..items).filter(|_| true), limit, double);
            assert!(known == unknown && known.iter().copied().eq((0..items).map(|n| n * factor)));
            assert!(begun.into_inner().into_iter().eq((0..items).chain(0..items)));
            assert_eq!(alive.most.get(), limit.min(items));
        }
    });
}

/// Nothing is taken from the iterator before somebody is free for it.
#[test]
fn an_item_is_asked_for_only_when_somebody_is_free() {
    on_one_worker(|| {
        let (asked, done) = (Cell::new(0), Cell::new(0));
        let items = (0..50).inspect(|_| asked.set(asked.get() + 1));
        fiber::par_for_each(items, 4, |_| {
            assert!(asked.get() - done.get() <= 4);
            fiber::yield_now();
            done.set(done.get() + 1);
        });
        assert_eq!(done.get(), 50);
    });
}

#[test]
fn an_iterator_may_wait_while_others_work() {
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
fn a_million_items_need_no_more_fibers_than_the_limit() {
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
fn the_first_error_ends_try_par_map_when_all_have_ended() {
    on_one_worker(|| {
        let (alive, begun) = (Alive::default(), Cell::new(0));
        let result = fiber::try_par_map(0.., 4, |n| {
            begun.set(begun.get() + 1);
            alive.during(|| match n {
                5 => Err(io::Error::from(ErrorKind::NotFound)),
                1..=3 => time::sleep(FOREVER).map(|()| n),
                _ => fiber::yield_now_cancellable().map(|()| n),
            })
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(alive.now.get(), 0, "all have ended");
        assert_eq!(begun.get(), 6, "nothing is begun after the error");
        let fine = fiber::try_par_map(0..10, 4, |n| fiber::yield_now_cancellable().map(|()| n));
        assert_eq!(fine.unwrap(), (0..10).collect::<Vec<_>>());
        let ends = fiber::try_par_for_each(0..10, 4, |_| Err(ErrorKind::NotFound.into()));
        let ends: io::Error = ends.unwrap_err();
        assert_eq!(ends.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_panic_in_par_map_ends_the_others_and_begins_no_more() {
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
        // That of the iterator, too.
        let items = (0..10).inspect(|&n| assert_ne!(n, 3, "no more"));
        let map = || fiber::par_for_each(items, 2, |_| fiber::yield_now());
        assert!(catch_unwind(AssertUnwindSafe(map)).is_err());
    });
}

/// What comes of `f`, whose fiber is cancelled when all has begun.
fn cancelled<T>(f: impl FnOnce() -> T) -> fiber::Result<T> {
    fiber::scope(|s| {
        let handle = s.spawn_local(f);
        (0..5).for_each(|_| fiber::yield_now());
        s.cancel();
        handle.join()
    })
}

#[test]
fn a_cancel_from_outside_reaches_all_that_par_map_runs() {
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
        assert!(all_ended(), "those that ran have, and no others were begun");

        // Without room for an error it unwinds: there are items left.
        let payload = cancelled(|| fiber::par_map(0.., 5, read).len()).unwrap_err();
        assert!(payload.is::<Cancelled>() && all_ended());

        // If the last items are at work, what they return is returned.
        let results = cancelled(|| fiber::par_map(0..5, 5, read)).unwrap();
        assert!(results.into_iter().all(|result| is_cancel(&result.unwrap_err())) && all_ended());

        // Calls that are unwound have nothing to return.
        let sleep = |_| fiber::sleep(FOREVER);
        let payload = cancelled(|| fiber::par_for_each(0..5, 5, sleep)).unwrap_err();
        assert!(payload.is::<Cancelled>());
        let try_sleep = |n| -> io::Result<()> {
            sleep(n);
            Ok(())
        };
        let error = cancelled(|| fiber::try_par_for_each(0..5, 5, try_sleep).unwrap_err());
        assert!(is_cancel(&error.unwrap()));

        // A deadline is a cancel; its error says so.
        let limit = Duration::from_millis(1);
        let late = time::timeout(limit, || Ok(fiber::par_map(0.., 5, read).len()));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        let late = time::timeout(limit, || fiber::try_par_map(0.., 5, read));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_cancelled_caller_begins_no_item() {
    on_one_worker(|| {
        fiber::scope(|s| {
            s.cancel();
            let error = fiber::try_par_map(0..3, 2, |_| -> io::Result<()> { panic!("begun") });
            assert!(is_cancel(&error.unwrap_err()));
            assert!(is_unwound(|| fiber::par_for_each(0..3, 2, |_| panic!("begun"))));
            // Protected, it goes on; and nothing to do is done.
            fiber::protect(|| assert_eq!(fiber::par_map(0..3, 2, |n| n), [0, 1, 2]));
            assert!(fiber::par_map(0..0, 2, |n: i32| n).is_empty());
        });
    });
}

#[test]
#[should_panic(expected = "a limit of 0 allows no work")]
fn a_limit_of_zero_is_refused() {
    on_one_worker(|| fiber::par_for_each(0..3, 0, drop));
}

#[test]
fn outside_of_a_runtime_they_say_what_to_wrap() {
    let payload = catch_unwind(|| fiber::join(|| (), || ())).unwrap_err();
    assert!(payload.downcast_ref::<String>().map_or_else(
        || payload.downcast_ref::<&str>().unwrap().contains("cringle::run"),
        |text| text.contains("cringle::run")
    ));
}

/// The items wait for each other: with fewer at once, none would end.
#[test]
fn par_map_waits_for_all_at_once() {
    on_one_worker(|| {
        let all = cringle::sync::Barrier::new(32);
        fiber::par_for_each(0..32, 32, |_| {
            all.wait();
        });
    });
}

// ----- all together -----

/// A tree of combinators, scopes and deadlines in each other, as a number says.
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
        let (what, pick) = (seed >> 60, (seed >> 33) % 4);
        let child = |n: u64| self.grow(depth - 1, seed ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        if depth == 0 {
            return match what {
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
        match what {
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
                let elsewhere = s.spawn(|| child(1));
                s.spawn_local(|| drop(child(2)));
                fiber::yield_now_cancellable()?;
                s.cancel();
                elsewhere.join().unwrap_or(Ok(7))
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

/// Whatever is cancelled when, all of it ends, nothing outlives its frame, and nothing is unwound
/// that was not cancelled.
#[test]
fn trees_of_combinators_end_whenever_they_are_cancelled() {
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
