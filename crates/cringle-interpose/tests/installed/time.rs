//! Sleeping.

use crate::common::{AtOnce, on_both_drivers};
use cringle::fiber;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn std_sleep_lets_other_fibers_run() {
    on_both_drivers(|| {
        let sleepers = AtOnce::default();
        fiber::scope(|s| {
            for _ in 0..100 {
                s.spawn(|| {
                    let begun = Instant::now();
                    sleepers.count(|| {
                        thread::sleep(Duration::from_millis(100));
                        assert!(begun.elapsed() >= Duration::from_millis(100));
                        // Fibers that block their worker sleep alone, and would do so for ever.
                        while sleepers.most() == 1 {
                            thread::sleep(Duration::from_millis(1));
                        }
                    });
                });
            }
        });
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
