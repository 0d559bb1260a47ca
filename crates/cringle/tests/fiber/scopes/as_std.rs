//! std's behaviour, compared with std.

use super::Log;
use cringle::{fiber, time};
use cringle_testing::tools::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The value or panic of a scope, and the log of what ran in it.
type Outcome = (Result<i32, String>, Vec<&'static str>);

/// Runs one case in std's scope and in the library's, and compares the outcomes.
macro_rules! on_both {
    ($name:literal, |$s:ident, $log:ident| $body:expr) => {{
        let run = |scope: &dyn Fn(&Log) -> i32| -> Outcome {
            let log = Log::default();
            let result = catch_unwind(AssertUnwindSafe(|| scope(&log)));
            // The messages differ in one word.
            let text = |payload| match Box::<dyn std::any::Any + Send>::downcast::<i32>(payload) {
                Ok(number) => number.to_string(),
                Err(payload) => message(payload).replace("fiber", "thread"),
            };
            (result.map_err(text), log.0.into_inner().unwrap())
        };
        let std = run(&|$log| std::thread::scope(|$s| $body));
        for workers in [1, 2] {
            let builder = cringle::Builder::new().workers(workers);
            let cringle = run(&|$log| builder.clone().run(|| fiber::scope(|$s| $body)).unwrap());
            assert_eq!(cringle, std, "{}", $name);
        }
        println!("{}: {std:?}", $name);
    }};
}

/// Logs its drop.
struct Dropped<'a>(&'a Log, &'static str);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.note(self.1);
    }
}

fn fail(payload: i32) -> i32 {
    resume_unwind(Box::new(payload))
}

#[test]
fn scope_ends_as_stds_does() {
    on_both!("a value", |s, log| {
        let value = s.spawn(|| 7).join().unwrap();
        log.note("joined");
        value
    });
    on_both!("an unjoined fiber", |s, log| {
        s.spawn(|| log.note("it ran"));
        1
    });
    on_both!("a joined panic", |s, log| {
        let payload = s.spawn(|| fail(5)).join().unwrap_err();
        log.note("joined");
        *payload.downcast::<i32>().unwrap()
    });
    on_both!("an unjoined panic", |s, log| {
        s.spawn(|| fail(5));
        log.note("spawned");
        1
    });
    on_both!("a panic whose handle is dropped after the fiber ends", |s, log| {
        let handle = s.spawn(|| fail(5));
        while !handle.is_finished() {
            yield_both();
        }
        drop(handle);
        log.note("dropped");
        1
    });
    on_both!("two panics, one of them joined", |s, _log| {
        let joined = s.spawn(|| fail(5));
        s.spawn(|| fail(6));
        *joined.join().unwrap_err().downcast::<i32>().unwrap()
    });
    on_both!("a panic of the closure", |s, log| {
        s.spawn(|| log.note("it ran"));
        fail(9)
    });
    on_both!("a panic of the closure and one of a fiber", |s, log| {
        let joined = s.spawn(|| fail(5));
        drop(joined.join());
        s.spawn(|| fail(6));
        log.note("both");
        fail(9)
    });
    on_both!("a panic of a fiber that a fiber spawned", |s, log| {
        let inner = s.spawn(|| {
            s.spawn(|| {
                log.note("inner");
                fail(5)
            });
        });
        inner.join().unwrap();
        1
    });
    on_both!("a destructor run by a panic", |s, log| {
        let inner = s.spawn(|| {
            let _dropped = Dropped(log, "dropped");
            resume_unwind(Box::new(3))
        });
        let payload: Box<dyn std::any::Any + Send> = inner.join().unwrap_err();
        log.note("joined");
        *payload.downcast::<i32>().unwrap()
    });
    on_both!("an unclaimed result", |s, log| {
        s.spawn(|| Dropped(log, "dropped with its fiber"));
        1
    });
    on_both!("a joined result", |s, log| {
        let value = s.spawn(|| Dropped(log, "dropped by the joiner")).join().unwrap();
        log.note("joined");
        drop(value);
        1
    });
}

/// Yields the fiber and the thread.
fn yield_both() {
    fiber::yield_now();
    std::thread::yield_now();
}

#[test]
fn scope_waits_for_fibers_that_its_fibers_spawn() {
    on_two_workers(|| {
        let ended = AtomicUsize::new(0);
        fiber::scope(|s| {
            for worker in [0, 1] {
                spawn_on(worker, s, || {
                    for worker in [0, 1] {
                        spawn_on(worker, s, || {
                            time::sleep(Duration::from_millis(2)).unwrap();
                            ended.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert_eq!(ended.into_inner(), 4);
    });
}
