//! A cancel is sticky, and stops at protected calls.

use super::{FOREVER, LEAVES, LEVELS, grow};
use cringle::{cancel, fiber, time};
use cringle_testing::tools::*;
use std::cell::Cell;
use std::io::{self, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

// ----- a cancel is sticky -----

#[test]
fn fibers_spawned_after_a_cancel_start_cancelled() {
    on_two_workers(|| {
        fiber::scope(|s| {
            s.cancel();
            s.cancel();
            assert!(s.is_cancelled());
            let check = || assert_cancelled(&cancel::check().unwrap_err());
            check();
            // In the scope, in a scope below it, and in a scope that its fiber opens.
            for worker in [0, 1] {
                spawn_on(worker, s, check).join().unwrap();
                fiber::scope(|t| {
                    assert!(t.is_cancelled());
                    spawn_on(worker, t, check);
                    spawn_on(worker, t, || fiber::scope(|u| drop(u.spawn_local(check))));
                });
            }
            // A deadline neither lifts nor hides the cancel.
            let error = time::timeout(Duration::from_secs(3600), || time::sleep(FOREVER));
            assert_cancelled(&error.unwrap_err());
            // Detached fibers do not belong to the scope.
            fiber::protect(|| fiber::spawn(|| cancel::check().unwrap()).join().unwrap());
        });
        cancel::check().unwrap();
    });
}

#[test]
fn cancel_of_an_ended_scope_cancels_nothing() {
    on_two_workers(|| {
        for _ in 0..100 {
            fiber::scope(|s| {
                let late = s.spawn(|| {
                    fiber::scope(|t| {
                        // The message may arrive when the owner is in another scope or has ended.
                        fiber::unblock(|| t.cancel());
                    });
                    cancel::check().unwrap();
                    fiber::scope(|t| {
                        t.spawn(|| cancel::check().unwrap());
                        fiber::yield_now();
                    });
                });
                late.join().unwrap();
                fiber::yield_now();
                cancel::check().unwrap();
            });
        }
    });
}

// ----- protected calls -----

#[test]
fn protected_call_and_its_scopes_are_not_cancelled() {
    on_two_workers(|| {
        let (go, all) = (AtomicBool::new(false), AtomicUsize::new(0));
        let runs = |_: usize| {
            while !go.load(Ordering::SeqCst) {
                time::sleep(Duration::from_micros(100)).unwrap();
            }
            cancel::check().unwrap();
            all.fetch_add(1, Ordering::SeqCst);
        };
        fiber::scope(|s| {
            let protected = s.spawn_local(|| {
                fiber::protect(|| {
                    // The cancel arrives while the first scope is open and before the second is.
                    fiber::scope(|t| grow(t, LEVELS, 0, &runs));
                    fiber::scope(|t| grow(t, LEVELS, 0, &runs));
                    cancel::check().unwrap();
                });
                assert_cancelled(&cancel::check().unwrap_err());
                time::sleep(FOREVER)
            });
            let_others_wait();
            s.cancel();
            fiber::protect(|| {
                let_others_wait();
                go.store(true, Ordering::SeqCst);
            });
            assert_cancelled(&protected.join().unwrap().unwrap_err());
        });
        assert_eq!(all.into_inner(), 2 * LEAVES);
    });
}

#[test]
fn deadline_and_scope_in_protected_call_still_cancel() {
    const LIMIT: Duration = Duration::from_millis(2);
    on_two_workers(|| {
        fiber::scope(|s| {
            s.cancel();
            fiber::protect(|| {
                let errors = Mutex::new(Vec::new());
                let waits = |_: usize| {
                    let error = time::sleep(FOREVER).unwrap_err();
                    errors.lock().unwrap().push(error);
                };
                let result = time::timeout(LIMIT, || {
                    fiber::scope(|t| grow(t, LEVELS, 0, &waits));
                    time::sleep(FOREVER)
                });
                assert_elapsed(&result.unwrap_err(), LIMIT);
                let errors = errors.into_inner().unwrap();
                assert_eq!(errors.len(), LEAVES);
                errors.iter().for_each(|error| assert_elapsed(error, LIMIT));
                fiber::scope(|t| {
                    let sleeper = t.spawn(|| time::sleep(FOREVER));
                    t.cancel();
                    assert_cancelled(&sleeper.join().unwrap().unwrap_err());
                });
                // Both have ended, and the cancel outside does not reach here.
                cancel::check().unwrap();
                // A protected call inside of a deadline.
                let waited = time::timeout(LIMIT, || {
                    fiber::protect(|| time::sleep(2 * LIMIT)).unwrap();
                    cancel::check()
                });
                assert_elapsed(&waited.unwrap_err(), LIMIT);
            });
            assert_cancelled(&cancel::check().unwrap_err());
        });
    });
}

/// An acceptor's loop that logs each error in a protected call with a deadline, and retries.
#[test]
fn loop_with_protected_logging_is_unwound_too() {
    on_one_worker(|| {
        let (reader, _writer) = pipe();
        let refusals = Cell::new(0);
        fiber::scope(|s| {
            let handle = s.spawn_local(|| {
                loop {
                    if (&reader).read(&mut [0]).is_err() {
                        refusals.set(refusals.get() + 1);
                        fiber::protect(|| {
                            time::timeout(Duration::from_secs(3600), || time::sleep(Duration::ZERO))
                        })
                        .unwrap();
                    }
                }
            });
            let_others_wait();
            s.cancel();
            assert_unwound(handle.join());
            assert_eq!(refusals.get(), 1 + 1000, "one cancelled read, then the refusals");
        });
    });
}

/// Each deadline has its own count, so a fiber that survives many deadlines is not unwound.
#[test]
fn count_of_refusals_ends_with_the_deadline() {
    on_one_worker(|| {
        for _ in 0..3 {
            let result: io::Result<()> = time::timeout(Duration::ZERO, || {
                (0..900).for_each(|_| drop(cancel::check()));
                Ok(())
            });
            result.unwrap();
        }
    });
}
