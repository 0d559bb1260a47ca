//! Ticks keep their times, and deadlines and cancels reach fibers that compute.

use cringle::io::{Interest, ready};
use cringle::{Builder, cancel, fiber, time};
use cringle_testing::child;
use cringle_testing::tools::*;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

// ----- intervals -----

#[test]
fn ticks_are_a_period_apart_from_the_start() {
    const PERIOD: Duration = Duration::from_millis(3);
    on_one_worker(|| {
        let start = Instant::now();
        let mut interval = time::interval(PERIOD);
        let first = interval.tick().unwrap();
        assert!(first >= start && first <= Instant::now());
        for n in 1..5 {
            assert_eq!(interval.tick().unwrap(), first + PERIOD * n);
            assert!(Instant::now() >= first + PERIOD * n, "a tick was early");
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

/// In virtual time, so that the timeout expires before the tick is due even on a busy machine.
#[cfg(feature = "sim")]
#[test]
fn cancelled_tick_is_not_lost() {
    let program = || {
        let at = time::now() + Duration::from_millis(500);
        let mut interval = time::interval_at(at, Duration::from_secs(3600));
        let error = time::timeout(Duration::from_millis(1), || interval.tick()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(interval.tick().unwrap(), at);
    };
    cringle::sim::run(1, &cringle::sim::Options::new(), program).unwrap();
}

#[test]
fn endless_wait_for_a_tick_can_time_out() {
    on_one_worker(|| {
        let mut interval = time::interval(Duration::MAX);
        interval.tick().unwrap();
        let error = time::timeout(Duration::from_millis(1), || interval.tick()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
#[should_panic(expected = "the period of an interval must not be zero")]
fn zero_period_panics() {
    time::interval(Duration::ZERO);
}

// ----- deadlines -----

/// The loop calls only `check`, so the worker processes neither timers nor messages by itself.
#[test]
fn deadline_reaches_a_computing_loop_by_check() {
    on_one_worker(|| {
        let result = time::timeout(Duration::from_millis(5), || {
            loop {
                cancel::check()?;
            }
            #[allow(unreachable_code, reason = "the type of the result")]
            Ok(())
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn remote_cancel_reaches_a_computing_loop_by_check() {
    let run = || {
        fiber::scope(|s| {
            let computes = fiber::Builder::new()
                .worker(1)
                .spawn_scoped(s, move || while cancel::check().is_ok() {});
            fiber::sleep(Duration::from_millis(2));
            s.cancel();
            computes.unwrap().join().unwrap();
        });
    };
    Builder::new().workers(2).run(run).unwrap();
}

/// The library reports an op that outlasts its cancel for five seconds. A wait that begins after
/// the deadline is not such an op.
#[test]
fn later_wait_is_not_reported_as_stubborn() {
    let name = "later_wait_is_not_reported_as_stubborn";
    let Some(output) = child::run(name) else {
        return on_one_worker(|| {
            let (reader, _writer) = std::io::pipe().unwrap();
            let wait = |limit: Duration| {
                let result = time::timeout(limit, || ready(&reader, Interest::READABLE));
                assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
            };
            wait(Duration::from_millis(1));
            // Longer than the five seconds.
            wait(Duration::from_millis(5500));
        });
    };
    assert!(output.status.success(), "{}", child::transcript(&output));
    assert!(!child::transcript(&output).contains("still waits"), "{}", child::transcript(&output));
}

#[test]
fn deadline_becomes_error_of_closure() {
    const SHORT: Duration = Duration::from_millis(2);
    #[derive(Debug)]
    enum Failure {
        Own,
        Io(io::Error),
    }
    impl From<io::Error> for Failure {
        fn from(error: io::Error) -> Failure {
            Failure::Io(error)
        }
    }
    let elapsed = |failure| match failure {
        Failure::Io(error) => assert_elapsed(&error, SHORT),
        Failure::Own => panic!("the closure has not failed"),
    };
    on_one_worker(|| {
        let fails = time::try_timeout(Duration::from_secs(3600), || Err::<(), _>(Failure::Own));
        assert!(matches!(fails, Err(Failure::Own)));
        elapsed(time::try_timeout(SHORT, || Ok(time::sleep(Duration::MAX)?)).unwrap_err());
        // A wait without an error unwinds to the call.
        elapsed(
            time::try_timeout(SHORT, || {
                fiber::sleep(Duration::MAX);
                Ok(())
            })
            .unwrap_err(),
        );
        let past = Instant::now();
        let late = time::try_timeout_at(past, || Ok::<_, Failure>(time::sleep(Duration::MAX)?));
        assert!(matches!(late, Err(Failure::Io(e)) if e.kind() == ErrorKind::TimedOut));
        assert_eq!(time::try_timeout(Duration::MAX, || Ok::<_, Failure>(7)).unwrap(), 7);
    });
}
