//! Tests of the scheduler that need a whole runtime.

use super::{Builder, InternalOptions, run};
use crate::trace;
use corosensei::{Coroutine, CoroutineResult};
use cringle_core::stack::StackPool;
use cringle_core::worker::Worker;
use cringle_std::{fiber, time};
use std::sync::mpsc;
use std::time::Duration;

/// Else all events take the slow path for good.
#[test]
fn worker_does_not_record_after_the_end_of_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    run(|| {
        let is_traced = || {
            // A turn begins, in which the worker sees the change.
            fiber::yield_now();
            Worker::here().unwrap().events().is_traced()
        };
        assert!(!is_traced());
        let trace = trace::start(dir.path().join("trace")).unwrap();
        assert!(is_traced());
        trace.finish().unwrap();
        assert!(!is_traced());
    });
}

/// Whether a cancelled fiber that still waits is to be reported.
fn is_watched(builder: Builder) -> bool {
    let ran = builder.workers(1).run(|| {
        let (release, released) = mpsc::channel::<()>();
        fiber::scope(|s| {
            s.spawn_local(|| fiber::unblock(move || released.recv().is_err()));
            fiber::yield_now();
            s.cancel();
            fiber::protect(fiber::yield_now);
            let worker = Worker::here().expect("inside of run");
            let is_watched = worker.stubborn.has_alarm();
            drop(release);
            is_watched
        })
    });
    ran.unwrap()
}

#[test]
fn quiet_runtime_reports_no_stubborn_fiber() {
    assert!(is_watched(Builder::new()));
    assert!(!is_watched(Builder::new().stubborn_reports(false)));
}

#[test]
fn a_region_may_lie_on_a_stack_of_the_program() {
    run(|| {
        let call = || {
            fiber::yield_now();
            Ok(7)
        };
        let mut pool = StackPool::with_reserve().unwrap();
        let stack = pool.take(256 << 10).unwrap();
        let mut coroutine = Coroutine::<(), (), _, _>::with_stack(stack, move |_, ()| {
            time::timeout(Duration::from_secs(3600), call).expect("there is time")
        });
        assert!(matches!(coroutine.resume(()), CoroutineResult::Return(7)));
        pool.give_back(coroutine.into_stack());
    });
}
