//! The clock by which the callers of timed waits go on a cancelled fiber.

use super::{HOUR, LIMIT, after_the_deadline, is_ahead, late};
use crate::common::on_both_drivers;
use cringle::{fiber, time};
use libc::poll;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::mpsc;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn callers_that_read_their_clock_converge() {
    on_both_drivers(|| {
        let (_sender, receiver) = mpsc::channel::<()>();
        let (nothing, never) = (Mutex::new(()), Condvar::new());
        let waits = Cell::new(0);
        for _ in 0..2 {
            assert_eq!(
                late(|| receiver.recv_timeout(HOUR)),
                [Err(mpsc::RecvTimeoutError::Timeout); 2]
            );
            let outlasts = || {
                let wait = never.wait_timeout_while(nothing.lock().unwrap(), HOUR, |()| true);
                wait.unwrap().1.timed_out()
            };
            assert_eq!(late(outlasts), [true; 2]);
            // As parking_lot waits.
            late(|| {
                let end = Instant::now() + HOUR;
                while let Some(left) = end.checked_duration_since(Instant::now()) {
                    thread::park_timeout(left);
                    waits.set(waits.get() + 1);
                }
            });
        }
        assert!(waits.get() <= 4 * 2, "{} waits", waits.get());
    });
}

#[test]
fn clock_is_right_once_the_caller_has_seen_the_end() {
    on_both_drivers(|| {
        let (_sender, receiver) = mpsc::channel::<()>();
        after_the_deadline(|| {
            for _ in 0..3 {
                receiver.recv_timeout(HOUR).unwrap_err();
                // As the due time of a job for another fiber.
                let due = Instant::now();
                assert!(due < time::now() + HOUR / 2, "it is {:?} ahead", due - time::now());
                thread::sleep(Duration::from_millis(3));
                time::sleep(LIMIT).unwrap_err();
            }
            // A caller that goes by the result needs no clock.
            let (nothing, never) = (Mutex::new(()), Condvar::new());
            drop(never.wait_timeout(nothing.lock().unwrap(), 2 * HOUR).unwrap());
            assert!(Instant::now() < time::now() + HOUR / 2);
        });
    });
}

/// As between the attempts to reach a server.
#[test]
fn waits_that_go_by_their_result_need_no_clock() {
    on_both_drivers(|| {
        after_the_deadline(|| {
            for _ in 0..5 {
                thread::sleep(HOUR);
            }
            assert_eq!([(); 3].map(|()| is_ahead()), [false; 3]);
            for _ in 0..5 {
                // SAFETY: no descriptors.
                assert_eq!(unsafe { poll(null_mut(), 0, 3_600_000) }, 0);
            }
            assert_eq!([(); 3].map(|()| is_ahead()), [false; 3]);
        });
    });
}

#[test]
fn destructors_of_a_late_fiber_see_the_right_time() {
    struct Look<'a>(&'a Cell<Option<[bool; 3]>>);
    impl Drop for Look<'_> {
        fn drop(&mut self) {
            let begun = time::now();
            let (_sender, receiver) = mpsc::channel::<()>();
            receiver.recv_timeout(LIMIT).unwrap_err();
            let waited = time::now() - begun >= LIMIT;
            self.0.set(Some([waited, is_ahead(), is_ahead()]));
        }
    }
    on_both_drivers(|| {
        for waits in [3, 100] {
            let seen = Cell::new(None);
            after_the_deadline(|| {
                let unwound = catch_unwind(AssertUnwindSafe(|| {
                    let _look = Look(&seen);
                    for _ in 0..waits {
                        let _ = Instant::now();
                        thread::sleep(HOUR);
                    }
                    resume_unwind(Box::new(()));
                }));
                unwound.unwrap_err();
            });
            assert_eq!(seen.get(), Some([true, false, false]), "after {waits} waits");
        }
    });
}

#[test]
fn region_within_a_shield_begins_with_the_right_clock() {
    on_both_drivers(|| {
        for waits in [3, 100] {
            after_the_deadline(|| {
                for _ in 0..waits {
                    let _ = Instant::now();
                    thread::sleep(HOUR);
                }
                fiber::protect(|| after_the_deadline(|| assert!(!is_ahead() && !is_ahead())));
            });
        }
    });
}

#[test]
fn loop_of_tiny_waits_ends_after_few() {
    on_both_drivers(|| {
        after_the_deadline(|| {
            let (begun, mut waits) = (Instant::now(), 0);
            while begun.elapsed() < HOUR / 2 {
                thread::sleep(Duration::from_millis(1));
                waits += 1;
            }
            assert!(waits < 200, "{waits} waits");
        });
    });
}

#[test]
fn wait_of_a_million_years_ends() {
    on_both_drivers(|| {
        let (_sender, receiver) = mpsc::channel::<()>();
        let forever = Duration::from_millis(u64::MAX);
        // The clock is a century ahead when the second part begins.
        for others in [0, 100] {
            after_the_deadline(|| {
                (0..others).for_each(|_| thread::sleep(forever));
                receiver.recv_timeout(forever).unwrap_err();
            });
        }
    });
}

#[test]
fn loop_of_short_waits_reaches_its_end() {
    on_both_drivers(|| {
        after_the_deadline(|| {
            let begun = Instant::now();
            while begun.elapsed() < HOUR {
                thread::sleep(Duration::from_secs(10));
            }
            assert!(time::now() < begun + HOUR, "it has waited");
        });
        // The region is left.
        assert!(Instant::now() < time::now() + HOUR / 2);
    });
}

#[test]
fn waits_without_end_overflow_no_clock() {
    on_both_drivers(|| {
        after_the_deadline(|| {
            for _ in 0..500 {
                thread::sleep(Duration::from_millis(u64::MAX));
                assert!(Instant::now() + HOUR > time::now());
            }
        });
    });
}
