//! Ticks come when they should, and deadlines reach whoever they bound.

use crate::child;
use cringle::io::{Interest, ready};
use cringle::{Builder, cancel, fiber, time};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(1).run(f).unwrap()
}

// ----- intervals -----

#[test]
fn the_first_tick_comes_at_once_and_the_others_a_period_apart() {
    const PERIOD: Duration = Duration::from_millis(3);
    on_one_worker(|| {
        let start = Instant::now();
        let mut interval = time::interval(PERIOD);
        let first = interval.tick().unwrap();
        assert!(first >= start && first <= Instant::now());
        for n in 1..5 {
            assert_eq!(interval.tick().unwrap(), first + PERIOD * n);
            assert!(Instant::now() >= first + PERIOD * n, "a tick came too early");
        }
        assert_eq!(interval.period(), PERIOD);
    });
}

#[test]
fn ticks_work_outside_of_a_runtime() {
    let mut interval = time::interval(Duration::from_millis(2));
    let first = interval.tick().unwrap();
    assert_eq!(interval.tick().unwrap() - first, Duration::from_millis(2));
}

#[test]
fn a_cancelled_tick_is_still_to_come() {
    on_one_worker(|| {
        let at = Instant::now() + Duration::from_millis(500);
        let mut interval = time::interval_at(at, Duration::from_secs(3600));
        let error = time::timeout(Duration::from_millis(1), || interval.tick()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(interval.tick().unwrap(), at);
        // And one that is for ever, too, can be given up.
        let mut never = time::interval(Duration::MAX);
        never.tick().unwrap();
        let error = time::timeout(Duration::from_millis(1), || never.tick()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
#[should_panic(expected = "the period of an interval must not be zero")]
fn a_period_of_zero_is_refused() {
    time::interval(Duration::ZERO);
}

// ----- deadlines -----

/// Nothing but `check` is called: neither the timers nor the messages of the worker are looked at
/// otherwise.
#[test]
fn a_deadline_reaches_a_loop_that_computes_and_checks() {
    let start = Instant::now();
    on_one_worker(|| {
        let result = time::timeout(Duration::from_millis(5), || {
            loop {
                cancel::check()?;
                assert!(start.elapsed() < Duration::from_secs(20), "the deadline is not seen");
            }
            #[allow(unreachable_code, reason = "the type of the result")]
            Ok(())
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_cancel_by_another_worker_reaches_a_loop_that_computes_and_checks() {
    let start = Instant::now();
    let run = || {
        fiber::scope(|s| {
            let computes = fiber::Builder::new().worker(1).spawn_scoped(s, move || {
                while cancel::check().is_ok() {
                    assert!(start.elapsed() < Duration::from_secs(20), "the cancel is not seen");
                }
            });
            fiber::sleep(Duration::from_millis(2));
            s.cancel();
            computes.unwrap().join().unwrap();
        });
    };
    Builder::new().workers(2).run(run).unwrap();
}

/// The report of operations that outlast their cancel is about those, not about what the fiber does
/// when the deadline is behind it.
#[test]
fn a_fiber_that_goes_on_after_a_deadline_is_not_reported_as_stubborn() {
    let name = "a_fiber_that_goes_on_after_a_deadline_is_not_reported_as_stubborn";
    let Some(output) = child::run(name) else {
        return on_one_worker(|| {
            let (reader, _writer) = std::io::pipe().unwrap();
            let wait = |limit: Duration| {
                let result = time::timeout(limit, || ready(&reader, Interest::READABLE));
                assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
            };
            wait(Duration::from_millis(1));
            // Longer than the five seconds after which it is reported.
            wait(Duration::from_millis(5500));
        });
    };
    assert!(output.status.success(), "{}", child::transcript(&output));
    assert!(!child::transcript(&output).contains("still waits"), "{}", child::transcript(&output));
}
