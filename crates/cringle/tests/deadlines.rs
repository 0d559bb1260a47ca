//! Deadlines: which of them counts, when, for whom, and what the timers below cost.

mod child;
mod tools;

use cringle::{cancel, fiber, time};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};
use tools::*;

const FOREVER: Duration = Duration::MAX;
const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
/// Long enough that the machine may pause in between.
const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(2);
const LONGER: Duration = Duration::from_millis(6);

// ----- which one counts -----

#[test]
fn of_nested_deadlines_the_tighter_one_ends_the_wait_and_names_itself() {
    on_one_worker(|| {
        for (outer, inner) in [(SHORT, HOUR), (HOUR, SHORT), (SHORT, MINUTE), (MINUTE, SHORT)] {
            let begin = Instant::now();
            let tighter = outer.min(inner);
            for unwinds in [false, true] {
                let seen = Cell::new(None);
                let result = time::timeout(outer, || {
                    let result = time::timeout(inner, || match unwinds {
                        false => time::sleep(FOREVER),
                        true => {
                            fiber::sleep(FOREVER);
                            Ok(())
                        }
                    });
                    seen.set(Some(result.as_ref().map_err(limit_of).err().flatten()));
                    // The inner one is over with what it was for.
                    assert_eq!(cancel::check().is_err(), outer == tighter);
                    result
                });
                let error = result.unwrap_err();
                assert_elapsed(&error, tighter);
                // Unwound by the outer one, it passes the inner one by.
                let passed_by = unwinds && outer == tighter;
                assert_eq!(seen.get(), (!passed_by).then_some(Some(tighter)));
            }
            assert!(begin.elapsed() >= tighter);
            cancel::check().unwrap();
        }
    });
}

#[test]
fn after_an_inner_deadline_the_outer_one_still_counts() {
    on_one_worker(|| {
        let result = time::timeout(SECOND, || {
            let error = time::timeout(SHORT, || time::sleep(FOREVER)).unwrap_err();
            assert_elapsed(&error, SHORT);
            time::sleep(FOREVER)
        });
        assert_elapsed(&result.unwrap_err(), SECOND);
    });
}

#[test]
fn where_several_have_passed_the_outermost_is_named() {
    on_one_worker(|| {
        let result = time::timeout(LONGER, || {
            time::timeout(SHORT, || {
                fiber::protect(|| time::sleep(LONGER)).unwrap();
                cancel::check()
            })
        });
        assert_elapsed(&result.unwrap_err(), LONGER);
    });
}

#[test]
fn a_deadline_as_an_instant_has_no_limit_and_tells_its_time() {
    on_one_worker(|| {
        let at = Instant::now() + SHORT;
        let error = time::timeout_at(at, || time::sleep(FOREVER)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        match cancel::reason(&error) {
            Some(cancel::Reason::Elapsed(elapsed)) => {
                assert_eq!((elapsed.deadline(), elapsed.limit()), (at, None));
            }
            other => panic!("{other:?}"),
        }
        assert!(Instant::now() >= at);
    });
}

#[test]
fn a_deadline_is_told_from_the_kernels_timeout() {
    on_one_worker(|| {
        let result: io::Result<()> =
            time::timeout(HOUR, || Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)));
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(cancel::reason(&error), None);
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
        // And a plain cancel, from a deadline.
        fiber::scope(|s| {
            s.cancel();
            assert_cancelled(&time::timeout(HOUR, cancel::check).unwrap_err());
        });
    });
}

#[test]
fn what_came_in_time_is_returned_though_the_time_is_over() {
    on_one_worker(|| {
        let value = time::timeout(SHORT, || {
            // It computes; nothing in it fails.
            let begin = Instant::now();
            while begin.elapsed() < 2 * SHORT {}
            Ok(7)
        });
        assert_eq!(value.unwrap(), 7);
        cancel::check().unwrap();
    });
}

#[test]
fn no_time_at_all_and_a_time_that_is_past_refuse_the_first_wait() {
    on_one_worker(|| {
        let past = Instant::now();
        let ran = Cell::new(0);
        let body = || {
            ran.set(ran.get() + 1);
            assert!(cancel::check().is_err());
            time::sleep(Duration::ZERO)
        };
        assert_elapsed(&time::timeout(Duration::ZERO, body).unwrap_err(), Duration::ZERO);
        assert_eq!(time::timeout_at(past, body).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(ran.get(), 2, "it is called all the same");
        // What waits for nothing succeeds.
        assert_eq!(time::timeout(Duration::ZERO, || Ok(3)).unwrap(), 3);
        cancel::check().unwrap();
    });
}

#[test]
fn a_time_without_end_bounds_nothing() {
    on_one_worker(|| {
        time::timeout(FOREVER, || time::sleep(SHORT)).unwrap();
        let error = time::timeout(SHORT, || time::timeout(FOREVER, || time::sleep(FOREVER)));
        assert_elapsed(&error.unwrap_err(), SHORT);
    });
}

/// Times that are beyond the kernel's clock are waited for asleep.
#[test]
fn the_longest_times_cost_nothing_to_wait_for() {
    let name = "the_longest_times_cost_nothing_to_wait_for";
    child::must_succeed(name, || {
        let usual = processor_time_while_waiting(Duration::from_secs(3600));
        // 100 years; 300, which are too many nanoseconds for 63 bits; as many as the clock can
        // show.
        for years in [100, 300, 100_000_000_000] {
            let limit = Duration::from_secs(years * 31_557_600);
            assert!(Instant::now().checked_add(limit).is_some());
            let spent = processor_time_while_waiting(limit);
            assert!(
                spent < 2 * usual + Duration::from_millis(50),
                "{years} years: {spent:?} of processor, and for an hour {usual:?}"
            );
        }
    });
}

/// What a tenth of a second costs of which nothing but this limit could be the end.
fn processor_time_while_waiting(limit: Duration) -> Duration {
    let before = processor_time();
    on_one_worker(|| {
        let waiting = fiber::spawn_local(move || time::sleep(limit));
        // A thread of its own ends the wait: this worker has no other timer meanwhile.
        time::timeout(limit, || {
            fiber::unblock(|| std::thread::sleep(Duration::from_millis(100)));
            Ok(())
        })
        .unwrap();
        assert!(!waiting.is_finished());
    });
    processor_time() - before
}

/// What this process has used of the processor.
fn processor_time() -> Duration {
    // SAFETY: the structure is written by the call.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        assert_eq!(libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time), 0);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

// ----- when -----

/// However busy the worker is.
#[test]
fn a_deadline_fires_within_a_turn_of_its_time() {
    on_one_worker(|| {
        let (over, most) = (Cell::new(false), Cell::new(0));
        fiber::scope(|s| {
            for _ in 0..50 {
                s.spawn_local(|| {
                    while !over.get() {
                        fiber::yield_now();
                    }
                });
            }
            for _ in 0..20 {
                let deadline = Instant::now() + Duration::from_micros(500);
                let turns_late = Cell::new(0);
                let result = time::timeout_at(deadline, || {
                    loop {
                        fiber::yield_now_cancellable()?;
                        turns_late.set(turns_late.get() + u32::from(Instant::now() >= deadline));
                    }
                });
                assert_eq!(
                    io::Result::<()>::map_err(result, |e| e.kind()),
                    Err(ErrorKind::TimedOut)
                );
                most.set(most.get().max(turns_late.get()));
            }
            over.set(true);
        });
        // Once because it had passed when the fiber had its turn, once more because that turn ended
        // with the look that saw it.
        assert!(most.get() <= 2, "{} turns", most.get());
    });
}

#[test]
fn timers_fire_in_the_order_of_their_times() {
    on_one_worker(|| {
        let (order, early) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        // They are to wait before the first is due. On a busy machine some do not.
        let begin = Instant::now() + Duration::from_millis(200);
        fiber::scope(|s| {
            for n in 0..500u64 {
                let at = begin + Duration::from_micros(n * 7919 % 500 * 20);
                let (order, early) = (&order, &early);
                s.spawn_local(move || {
                    if Instant::now() < begin {
                        early.borrow_mut().push(at);
                    }
                    time::sleep_until(at).unwrap();
                    assert!(Instant::now() >= at);
                    order.borrow_mut().push(at);
                });
            }
        });
        assert_eq!(order.borrow().len(), 500);
        // The last of the early ones may have been late after it had looked at the clock.
        early.borrow_mut().pop();
        order.borrow_mut().retain(|at| early.borrow().contains(at));
        assert!(order.borrow().is_sorted());
    });
}

#[test]
fn a_deadline_ends_what_is_in_the_kernel_and_waits_for_it() {
    on_two_workers(|| {
        for _ in 0..50 {
            let (reader, _writer) = pipe();
            let mut buf = [0; 64];
            let limit = Duration::from_micros(200);
            let error = time::timeout(limit, || (&reader).read(&mut buf)).unwrap_err();
            assert_elapsed(&error, limit);
        }
    });
}

// ----- for whom -----

#[test]
fn a_deadline_reaches_the_fibers_of_its_scopes_on_every_worker_and_no_others() {
    on_two_workers(|| {
        fiber::scope(|s| {
            let detached = fiber::spawn(|| time::sleep(2 * LONGER));
            let result = time::timeout(SHORT, || {
                // Not below the deadline: it belongs to a scope from further out.
                s.spawn(|| time::sleep(2 * LONGER).unwrap());
                fiber::scope(|t| {
                    for worker in [0, 1, 0, 1] {
                        spawn_on(worker, t, move || {
                            assert_elapsed(&time::sleep(FOREVER).unwrap_err(), SHORT);
                            // Also what comes later, and further below.
                            fiber::scope(|u| {
                                let late = spawn_on(1 - worker, u, cancel::check);
                                drop(late);
                            });
                            assert_elapsed(&cancel::check().unwrap_err(), SHORT);
                        });
                    }
                });
                cancel::check()
            });
            assert_elapsed(&result.unwrap_err(), SHORT);
            detached.join().unwrap().unwrap();
        });
    });
}

#[test]
fn the_payload_of_a_panic_passes_a_deadline_by() {
    on_one_worker(|| {
        for limit in [Duration::ZERO, HOUR] {
            let panics = AssertUnwindSafe(|| {
                time::timeout(limit, || -> io::Result<()> { resume_unwind(Box::new(17)) })
            });
            assert_eq!(*catch_unwind(panics).unwrap_err().downcast::<i32>().unwrap(), 17);
            cancel::check().unwrap();
            assert!(!fiber::panicking());
            // Its timer is gone with it: nothing fires into a frame that is others'.
            (0..3).for_each(|_| time::sleep(Duration::from_micros(100)).unwrap());
        }
        // A panic in a destructor on the way out of a wait that the deadline unwound.
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                let caught = catch_unwind(|| panic!("in the destructor"));
                assert!(caught.is_err());
            }
        }
        let result = time::timeout(SHORT, || {
            let _panics = Panics;
            fiber::sleep(FOREVER);
            Ok(())
        });
        assert_elapsed(&result.unwrap_err(), SHORT);
        assert!(!fiber::panicking());
    });
}

/// A scope that is cancelled within a deadline that has passed, and the other way round.
#[test]
fn the_first_reason_of_a_fiber_stands() {
    on_one_worker(|| {
        let result: io::Result<()> = time::timeout(SHORT, || {
            fiber::scope(|s| {
                let child = s.spawn_local(|| {
                    let first = time::sleep(FOREVER).unwrap_err();
                    fiber::protect(|| time::sleep(2 * LONGER)).unwrap();
                    (first, cancel::check().unwrap_err())
                });
                let_others_wait();
                s.cancel();
                let (first, later) = child.join().unwrap();
                assert_cancelled(&first);
                assert_cancelled(&later);
            });
            cancel::check()
        });
        // Its time has passed meanwhile.
        assert_elapsed(&result.unwrap_err(), SHORT);
    });
}

#[test]
fn outside_of_a_fiber_a_deadline_bounds_nothing() {
    let begin = Instant::now();
    time::timeout(Duration::ZERO, || time::sleep(SHORT)).unwrap();
    time::timeout_at(begin, cancel::check).unwrap();
    assert!(begin.elapsed() >= SHORT);
}

// ----- what it costs -----

/// With so many deadlines pending, the shortest time for setting one and taking it back, of several
/// tries.
fn cost_with(fibers: usize, deadlines_each: usize) -> Duration {
    fn nest(levels: usize, number: usize) -> io::Result<()> {
        if levels == 0 {
            fiber::park();
            return Ok(());
        }
        // Spread over a day, so that the new ones are amidst them.
        let limit = Duration::from_secs(1800 + (number * 7919 + levels * 104_729) as u64 % 86_400);
        time::timeout(limit, || nest(levels - 1, number))
    }
    const CALLS: u32 = 2000;
    on_one_worker(|| {
        fiber::scope(|s| {
            let pending: Vec<_> =
                (0..fibers).map(|n| s.spawn_local(move || nest(deadlines_each, n))).collect();
            fiber::yield_now();
            let cost = (0..10u64).map(|round| {
                let begin = Instant::now();
                for n in 0..u64::from(CALLS) {
                    let limit = Duration::from_secs(3600 + (n * 7907 + round) % 60_000);
                    time::timeout(limit, || Ok(())).unwrap();
                }
                begin.elapsed() / CALLS
            });
            let cost = cost.min().unwrap();
            pending.iter().for_each(|handle| handle.thread().unpark());
            cost
        })
    })
}

/// A heap or a tree: not a list.
#[test]
fn a_million_pending_deadlines_make_one_more_hardly_dearer() {
    child::must_succeed("a_million_pending_deadlines_make_one_more_hardly_dearer", || {
        let few = cost_with(20, 50);
        let many = cost_with(20_000, 50);
        println!("{few:?} with 1,000 pending, {many:?} with 1,000,000");
        // A walk along them would be a thousand times as long. (Memory is slower than the cache.)
        assert!(many < few * 20, "{few:?} with 1,000 pending, {many:?} with 1,000,000");
    });
}

/// How deadlines that are nested are ended.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// A cancel from outside, and the wait unwinds through all of them.
    Cancel,
    /// All of them pass while the fiber waits, and the error is returned through all.
    Pass,
}

/// The shortest time, of several tries, in which deadlines nested this deep are ended.
fn cost_of_ending(levels: usize, ending: Ending) -> Duration {
    fn nest(levels: usize, ending: Ending) -> io::Result<()> {
        let limit = match ending {
            Ending::Cancel => HOUR,
            Ending::Pass => SHORT,
        };
        match (levels, ending) {
            (0, Ending::Cancel) => {
                fiber::park();
                Ok(())
            }
            (0, Ending::Pass) => {
                // The worker sees that all have passed at once.
                std::thread::sleep(SHORT * 2);
                cancel::check()
            }
            _ => time::timeout(limit, || nest(levels - 1, ending)),
        }
    }
    let once = |_| {
        let ended = Cell::new(None);
        fiber::scope(|s| {
            let deep = || {
                let begun = Instant::now();
                let result = catch_unwind(AssertUnwindSafe(|| nest(levels, ending)));
                assert!(!matches!(result, Ok(Ok(()))));
                ended.set(Some(begun.elapsed()));
            };
            let deep = fiber::Builder::new().stack_size(1 << 30).spawn_scoped_local(s, deep);
            fiber::yield_now();
            s.cancel();
            deep.unwrap().join().unwrap();
        });
        ended.take().unwrap()
    };
    on_one_worker(|| (0..3).map(once).min().unwrap())
}

/// Each level is told once, however many there are.
#[test]
fn nested_deadlines_end_in_linear_time() {
    for ending in [Ending::Cancel, Ending::Pass] {
        let few = cost_of_ending(1000, ending);
        let many = cost_of_ending(16_000, ending);
        println!("{ending:?}: {few:?} for 1,000 levels, {many:?} for 16,000");
        // Linear is 16, and a walk along the others at each level would be 256.
        assert!(many < few * 80, "{ending:?}: {few:?} for 1,000 levels, {many:?} for 16,000");
    }
}
