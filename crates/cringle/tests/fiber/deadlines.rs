//! Deadlines: which one ends a wait, when it fires, which fibers it reaches, and what it costs.

use cringle::{cancel, fiber, time};
use cringle_testing::child;
use cringle_testing::tools::*;
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

const FOREVER: Duration = Duration::MAX;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
/// Longer than a machine usually pauses.
const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(2);
const LONGER: Duration = Duration::from_millis(6);

// ----- which deadline ends a wait -----

#[test]
fn tighter_of_nested_deadlines_ends_the_wait() {
    on_one_worker(|| {
        for (outer, inner) in [(SHORT, HOUR), (HOUR, SHORT), (SHORT, DAY), (DAY, SHORT)] {
            let begin = Instant::now();
            let tighter = outer.min(inner);
            for unwinds in [false, true] {
                let inner_limit = Cell::new(None);
                let result = time::timeout(outer, || {
                    let result = time::timeout(inner, || {
                        if !unwinds {
                            return time::sleep(FOREVER);
                        }
                        fiber::sleep(FOREVER);
                        Ok(())
                    });
                    inner_limit.set(Some(result.as_ref().map_err(limit_of).err().flatten()));
                    // The inner deadline ends with its closure.
                    assert_eq!(cancel::check().is_err(), outer == tighter);
                    result
                });
                let error = result.unwrap_err();
                assert_elapsed(&error, tighter);
                // If the outer deadline unwinds the closure, the inner `timeout` does not return.
                let inner_returns = !(unwinds && outer == tighter);
                assert_eq!(inner_limit.get(), inner_returns.then_some(Some(tighter)));
            }
            assert!(begin.elapsed() >= tighter);
            cancel::check().unwrap();
        }
    });
}

#[test]
fn outer_deadline_still_fires_after_inner_one() {
    on_one_worker(|| {
        let outer = Instant::now() + SECOND;
        let result = time::timeout_at(outer, || {
            let error = time::timeout(SHORT, || time::sleep(FOREVER)).unwrap_err();
            // On a busy machine, the outer deadline may have passed, too.
            if Instant::now() < outer {
                assert_elapsed(&error, SHORT);
            }
            time::sleep(FOREVER)
        });
        assert_eq!(deadline_of(&result.unwrap_err()), outer);
    });
}

#[test]
fn outermost_of_passed_deadlines_is_named() {
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
fn deadline_at_an_instant_has_no_limit() {
    on_one_worker(|| {
        let at = Instant::now() + SHORT;
        let error = time::timeout_at(at, || time::sleep(FOREVER)).unwrap_err();
        assert_eq!(deadline_of(&error), at);
        assert!(Instant::now() >= at);
    });
}

/// Returns the deadline that the error names; it has no limit.
fn deadline_of(error: &io::Error) -> Instant {
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    match cancel::reason(error) {
        Some(cancel::Reason::Elapsed(elapsed)) => {
            assert_eq!(elapsed.limit(), None);
            elapsed.deadline()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn deadline_differs_from_etimedout() {
    on_one_worker(|| {
        let result: io::Result<()> =
            time::timeout(HOUR, || Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)));
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(cancel::reason(&error), None);
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
        // A cancel differs from a deadline, too.
        fiber::scope(|s| {
            s.cancel();
            assert_cancelled(&time::timeout(HOUR, cancel::check).unwrap_err());
        });
    });
}

#[test]
fn value_computed_past_the_deadline_is_returned() {
    on_one_worker(|| {
        let value = time::timeout(SHORT, || {
            // The closure computes and does not wait.
            let begin = Instant::now();
            while begin.elapsed() < 2 * SHORT {}
            Ok(7)
        });
        assert_eq!(value.unwrap(), 7);
        cancel::check().unwrap();
    });
}

#[test]
fn passed_deadline_refuses_the_first_wait() {
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
        assert_eq!(ran.get(), 2, "the closure is called nevertheless");
        // A closure that does not wait succeeds.
        assert_eq!(time::timeout(Duration::ZERO, || Ok(3)).unwrap(), 3);
        cancel::check().unwrap();
    });
}

#[test]
fn endless_deadline_never_fires() {
    on_one_worker(|| {
        time::timeout(FOREVER, || time::sleep(SHORT)).unwrap();
        let error = time::timeout(SHORT, || time::timeout(FOREVER, || time::sleep(FOREVER)));
        assert_elapsed(&error.unwrap_err(), SHORT);
    });
}

/// The worker sleeps even if the deadline is beyond the kernel's clock.
#[test]
fn waiting_for_far_deadlines_uses_no_cpu() {
    let name = "waiting_for_far_deadlines_uses_no_cpu";
    child::must_succeed(name, || {
        let usual = processor_time_while_waiting(Duration::from_secs(3600));
        // 300 years do not fit into 63 bits of nanoseconds; the last is near the clock's end.
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

/// Returns the processor time of a run of 100 ms whose only timers have this limit.
fn processor_time_while_waiting(limit: Duration) -> Duration {
    let before = process_time();
    on_one_worker(|| {
        let waiting = fiber::spawn_local(move || time::sleep(limit));
        // Another thread sleeps: this worker must have no other timer.
        time::timeout(limit, || {
            fiber::unblock(|| std::thread::sleep(Duration::from_millis(100)));
            Ok(())
        })
        .unwrap();
        assert!(!waiting.is_finished());
    });
    process_time() - before
}

fn process_time() -> Duration {
    clock_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn thread_time() -> Duration {
    clock_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_time(clock: libc::clockid_t) -> Duration {
    // SAFETY: the pointer is to a structure that lives for the call; zeroes are valid in it.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        assert_eq!(libc::clock_gettime(clock, &mut time), 0);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

// ----- when it fires -----

#[test]
fn deadline_of_busy_worker_fires_within_a_turn() {
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
        // The deadline passes before the fiber resumes, and the worker looks at the clock after
        // that turn.
        assert!(most.get() <= 2, "{} turns", most.get());
    });
}

#[test]
fn timers_fire_in_order_of_their_deadlines() {
    on_one_worker(|| {
        let (order, early) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        // All fibers should wait before the first deadline. On a busy machine some start later, and
        // their order is not checked.
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
        // The last early fiber may have been delayed between its look at the clock and its sleep.
        early.borrow_mut().pop();
        order.borrow_mut().retain(|at| early.borrow().contains(at));
        assert!(order.borrow().is_sorted());
    });
}

#[test]
fn deadline_cancels_op_in_the_kernel() {
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

// ----- which fibers it reaches -----

#[test]
fn deadline_reaches_only_fibers_of_its_scopes() {
    on_two_workers(|| {
        fiber::scope(|s| {
            let detached = fiber::spawn(|| time::sleep(2 * LONGER));
            let result = time::timeout(SHORT, || {
                // This fiber belongs to an outer scope, so the deadline does not reach it.
                s.spawn(|| time::sleep(2 * LONGER).unwrap());
                fiber::scope(|t| {
                    for worker in [0, 1, 0, 1] {
                        spawn_on(worker, t, move || {
                            assert_elapsed(&time::sleep(FOREVER).unwrap_err(), SHORT);
                            // It reaches fibers that are spawned later, in scopes further below.
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
fn panic_passes_through_a_timeout() {
    on_one_worker(|| {
        for limit in [Duration::ZERO, HOUR] {
            let panics = AssertUnwindSafe(|| {
                time::timeout(limit, || -> io::Result<()> { resume_unwind(Box::new(17)) })
            });
            assert_eq!(*catch_unwind(panics).unwrap_err().downcast::<i32>().unwrap(), 17);
            cancel::check().unwrap();
            assert!(!fiber::panicking());
            // The timer was removed: it must not fire into a reused frame.
            (0..3).for_each(|_| time::sleep(Duration::from_micros(100)).unwrap());
        }
        // A caught panic in a destructor, while the deadline unwinds.
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

/// A scope is cancelled, and then an outer deadline passes.
#[test]
fn first_reason_of_a_fiber_stays() {
    on_one_worker(|| {
        let deadline = Instant::now() + SECOND;
        let result: io::Result<()> = time::timeout_at(deadline, || {
            fiber::scope(|s| {
                let child = s.spawn_local(|| {
                    let first = time::sleep(FOREVER).unwrap_err();
                    fiber::protect(|| time::sleep_until(deadline)).unwrap();
                    (first, cancel::check().unwrap_err())
                });
                let_others_wait();
                s.cancel();
                // On a busy machine, the deadline may have passed first.
                let is_first = Instant::now() < deadline;
                let (first, later) = child.join().unwrap();
                if is_first {
                    assert_cancelled(&first);
                    assert_cancelled(&later);
                }
            });
            cancel::check()
        });
        // The deadline has passed by now.
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn deadline_has_no_effect_outside_of_fibers() {
    let begin = Instant::now();
    time::timeout(Duration::ZERO, || time::sleep(SHORT)).unwrap();
    time::timeout_at(begin, cancel::check).unwrap();
    assert!(begin.elapsed() >= SHORT);
}

// ----- what it costs -----

/// Returns the least processor time, of several tries, to set and remove one deadline while each of
/// `fibers` fibers has `deadlines_each` pending.
fn cost_with(fibers: usize, deadlines_each: usize) -> Duration {
    fn nest(levels: usize, number: usize) -> io::Result<()> {
        if levels == 0 {
            fiber::park();
            return Ok(());
        }
        // Spread over a day, so that the new deadlines fall between them.
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
                let begin = thread_time();
                for n in 0..u64::from(CALLS) {
                    let limit = Duration::from_secs(3600 + (n * 7907 + round) % 60_000);
                    time::timeout(limit, || Ok(())).unwrap();
                }
                (thread_time() - begin) / CALLS
            });
            let cost = cost.min().unwrap();
            pending.iter().for_each(|handle| handle.thread().unpark());
            cost
        })
    })
}

/// The timers are a heap or a tree, not a list.
#[test]
fn cost_of_deadline_is_sublinear_in_pending_ones() {
    child::must_succeed("cost_of_deadline_is_sublinear_in_pending_ones", || {
        let few = cost_with(20, 50);
        let fibers = child::scaled(4000, 20_000);
        let many = cost_with(fibers, 50);
        let costs = format!("{few:?} with 1,000 pending, {many:?} with {}", fibers * 50);
        // A linear search would take hundreds of times as long. (They do not fit into the cache.)
        assert!(many < few * 20, "{costs}");
    });
}

/// How nested deadlines end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// A cancel from outside unwinds through all of them.
    Cancel,
    /// All of them pass, and each returns the error.
    Pass,
}

/// Returns the least processor time, of several tries, to open and end this number of nested
/// deadlines.
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
                // The worker is blocked, so it finds all of them passed at once.
                std::thread::sleep(SHORT * 2);
                cancel::check()
            }
            _ => time::timeout(limit, || nest(levels - 1, ending)),
        }
    }
    let once = |_| {
        let begin = thread_time();
        fiber::scope(|s| {
            let deep = || {
                let result = catch_unwind(AssertUnwindSafe(|| nest(levels, ending)));
                assert!(!matches!(result, Ok(Ok(()))));
            };
            let deep = fiber::Builder::new().stack_size(1 << 30).spawn_scoped_local(s, deep);
            fiber::yield_now();
            s.cancel();
            deep.unwrap().join().unwrap();
        });
        thread_time() - begin
    };
    on_one_worker(|| (0..3).map(once).min().unwrap())
}

/// Each level is cancelled once, whatever the depth.
#[test]
fn nested_deadlines_end_in_linear_time() {
    for ending in [Ending::Cancel, Ending::Pass] {
        let few = cost_of_ending(1000, ending);
        let many = cost_of_ending(16_000, ending);
        println!("{ending:?}: {few:?} for 1,000 levels, {many:?} for 16,000");
        // Linear is a factor of 16; quadratic would be 256.
        assert!(many < few * 48, "{ending:?}: {few:?} for 1,000 levels, {many:?} for 16,000");
    }
}
