//! Scopes of another runtime.

use super::FOREVER;
use cringle::{cancel, fiber, time};
use cringle_testing::tools::*;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A scope may be opened outside of `run`. A fiber that is spawned into it inside of `run` is still
/// cancelled when the closure of `run` returns.
#[test]
fn end_of_run_cancels_fibers_of_outer_scopes() {
    fiber::scope(|s| {
        on_two_workers(|| {
            for worker in [0, 1] {
                spawn_on(worker, s, || assert_cancelled(&time::sleep(FOREVER).unwrap_err()));
            }
        });
        // A fiber that has not started when the closure returns.
        on_two_workers(|| drop(s.spawn(|| assert_cancelled(&time::sleep(FOREVER).unwrap_err()))));
    });
    on_one_worker(|| {
        fiber::scope(|s| {
            fiber::unblock(|| {
                on_one_worker(|| {
                    s.spawn(|| assert_cancelled(&time::sleep(FOREVER).unwrap_err()));
                    s.spawn_local(|| assert_cancelled(&time::sleep(FOREVER).unwrap_err()));
                });
            });
            cancel::check().unwrap();
        });
    });
}

/// The scope's thread would otherwise call a closure that is not `Send`.
#[test]
fn local_exit_is_refused_from_another_runtime() {
    let assert_refused = |register: &(dyn Fn() + Sync)| {
        let payload = catch_unwind(AssertUnwindSafe(register)).unwrap_err();
        let text = message(payload);
        assert!(text.contains("another `cringle::run`"), "{text}");
    };
    let ran = AtomicUsize::new(0);
    let count = || {
        ran.fetch_add(1, Ordering::SeqCst);
    };
    on_one_worker(|| {
        fiber::scope(|s| {
            s.on_exit_local(count);
            fiber::unblock(|| {
                on_one_worker(|| {
                    assert_refused(&|| s.on_exit_local(count));
                    s.on_exit(count);
                });
            });
        });
        let tried: Result<(), io::Error> = fiber::try_scope(|s| {
            fiber::unblock(|| on_one_worker(|| assert_refused(&|| s.on_exit_local(count))));
            s.on_exit_local(count);
            Ok(())
        });
        tried.unwrap();
    });
    fiber::scope(|s| on_one_worker(|| assert_refused(&|| s.on_exit_local(count))));
    assert_eq!(ran.into_inner(), 3);
}
