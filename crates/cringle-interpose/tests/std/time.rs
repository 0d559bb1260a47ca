//! Sleeping.

use crate::common::on_both_drivers;
use cringle::fiber;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn std_sleep_lets_other_fibers_run() {
    on_both_drivers(|| {
        let begun = Instant::now();
        fiber::scope(|s| {
            for _ in 0..100 {
                s.spawn(|| {
                    let begun = Instant::now();
                    thread::sleep(Duration::from_millis(100));
                    assert!(begun.elapsed() >= Duration::from_millis(100));
                });
            }
        });
        // One after the other they would take ten seconds.
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    });
}

#[test]
fn cancelled_std_sleep_ends_early() {
    on_both_drivers(|| {
        fiber::scope(|s| {
            s.spawn(|| {
                thread::sleep(Duration::from_secs(3600));
                let error = fiber::sleep_cancellable(Duration::from_secs(3600)).unwrap_err();
                assert!(cringle::cancel::reason(&error).is_some());
            });
            fiber::sleep(Duration::from_millis(1));
            s.cancel();
        });
    });
}
