//! Daemons are cancelled when all other fibers have ended.

use super::{FOREVER, Log};
use cringle::{cancel, fiber, time};
use cringle_testing::tools::*;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn scope_cancels_daemons_after_others_end() {
    on_two_workers(|| {
        let (served, log) = (AtomicUsize::new(0), Log::default());
        fiber::scope(|s| {
            for worker in [0, 1] {
                spawn_on(worker, s, || {
                    s.spawn_daemon_local(|| {
                        let error = loop {
                            if let Err(error) = time::sleep(Duration::from_micros(100)) {
                                break error;
                            }
                            served.fetch_add(1, Ordering::SeqCst);
                        };
                        assert_cancelled(&error);
                        fiber::protect(|| time::sleep(Duration::from_millis(1))).unwrap();
                        log.note("daemon");
                    });
                    while served.load(Ordering::SeqCst) < 5 {
                        fiber::yield_now();
                    }
                    cancel::check().unwrap();
                    log.note("fiber");
                });
            }
            s.spawn_daemon(fiber::park);
        });
        log.note("scope");
        // The caller is not cancelled.
        cancel::check().unwrap();
        assert_eq!(log.0.into_inner().unwrap(), ["fiber", "fiber", "daemon", "daemon", "scope"]);
    });
}

#[test]
fn scope_of_only_daemons_ends_at_once() {
    on_two_workers(|| {
        fiber::scope(|s| {
            s.spawn_daemon(|| fiber::sleep(FOREVER));
            s.spawn_daemon_local(|| {
                // A daemon that is spawned by a cancelled daemon starts cancelled.
                assert_cancelled(&time::sleep(FOREVER).unwrap_err());
                s.spawn_daemon(|| assert_cancelled(&cancel::check().unwrap_err()));
                // The scope waits for a fiber that is no daemon, and does not cancel it.
                s.spawn(|| time::sleep(Duration::from_millis(1)).unwrap());
            });
            assert!(!s.is_cancelled());
        });
    });
}

#[test]
fn panic_of_daemon_makes_scope_panic() {
    let payload = catch_unwind(|| {
        on_one_worker(|| fiber::scope(|s| s.spawn_daemon(|| resume_unwind(Box::new(1)))));
    });
    assert_eq!(message(payload.unwrap_err()), "a scoped fiber panicked");
}
