//! The effect of a cancel on every call that waits: while it waits, before it starts, by a
//! deadline, from another worker, and in a protected call.

mod calls;
mod fixture;

use calls::Effect::{Fails, Unwinds, Waits};
use calls::{CALLS, Call, calls, until_released};
use cringle::block::{AlignedBuf, Batch};
use cringle::fs::File;
use cringle::io;
use cringle::{Builder, fiber, time};
use cringle_testing::tools::*;
use fixture::Fixture;
use std::io::Read;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// The outcome of a call.
#[derive(Debug)]
enum End {
    Done,
    Failed(io::Error),
    Unwound,
}

fn end_of(joined: fiber::Result<io::Result<()>>) -> End {
    match joined {
        Ok(Ok(())) => End::Done,
        Ok(Err(error)) => End::Failed(error),
        Err(payload) if payload.is::<cringle::Cancelled>() => End::Unwound,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

fn assert_effect(call: Call, end: &End) {
    match (call.effect, end) {
        (Fails, End::Failed(error)) => assert_cancelled(error),
        (Unwinds, End::Unwound) | (Waits, End::Done) => {}
        _ => panic!("{}: {end:?}", call.name),
    }
}

/// Releases the fixture when the test ends, even if it fails.
struct Release<'a>(&'a Fixture);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Runs `f` beside fibers that make `call` wait, and ends them afterwards.
fn run_beside(call: Call, fixture: &Fixture, workers: usize, f: impl FnOnce()) {
    println!("{}", call.name);
    let builder = Builder::new().workers(workers);
    let builder = if call.crowded { builder.in_flight_limit(1) } else { builder };
    let run = builder.run(|| {
        fiber::scope(|s| {
            if call.crowded {
                // Each worker has its own limit, and another ready fiber, so that no op is
                // performed inline.
                for worker in 0..workers {
                    spawn_on(worker, s, || fixture.exhaust_limit());
                    spawn_on(worker, s, || until_released(fixture));
                    spawn_on(worker, s, let_others_wait).join().unwrap();
                }
                s.spawn_local(|| drop((&fixture.held).read(&mut AlignedBuf::new(4096)[..])));
                let_others_wait();
            }
            let _release = Release(fixture);
            f();
        });
    });
    run.unwrap();
}

#[test]
fn cancel_has_the_listed_effect_on_each_wait() {
    for call in calls() {
        let fixture = Fixture::new(HOUR);
        run_beside(call, &fixture, 1, || {
            fiber::scope(|s| {
                let waits = s.spawn_local(|| (call.wait)(&fixture));
                let_others_wait();
                assert!(!waits.is_finished(), "{} waits", call.name);
                s.cancel();
                if call.effect == Waits {
                    fiber::protect(let_others_wait);
                    assert!(!waits.is_finished(), "{} still waits", call.name);
                    fixture.release();
                }
                assert_effect(call, &end_of(waits.join()));
            });
        });
    }
}

#[test]
fn cancelled_fiber_is_refused_every_wait() {
    for call in calls() {
        let fixture = Fixture::new(HOUR);
        run_beside(call, &fixture, 1, || {
            fiber::scope(|s| {
                s.cancel();
                let waits = s.spawn_local(|| (call.wait)(&fixture));
                if call.effect == Waits {
                    fixture.release();
                }
                assert_effect(call, &end_of(waits.join()));
            });
        });
    }
}

/// The call has not started, starts, or waits already, depending on `turns`.
#[test]
fn cancel_from_another_worker_has_the_same_effect() {
    for call in calls() {
        for turns in [0, 1, 20] {
            let fixture = Fixture::new(HOUR);
            run_beside(call, &fixture, 2, || {
                fiber::scope(|s| {
                    let waits = spawn_on(1, s, || (call.wait)(&fixture));
                    (0..turns).for_each(|_| fiber::yield_now());
                    s.cancel();
                    if call.effect == Waits {
                        fixture.release();
                    }
                    assert_effect(call, &end_of(waits.join()));
                });
            });
        }
    }
}

#[test]
fn deadline_ends_each_wait_and_is_named() {
    const LIMIT: Duration = Duration::from_millis(2);
    for call in calls() {
        let fixture = Fixture::new(HOUR);
        run_beside(call, &fixture, 1, || {
            fiber::scope(|s| {
                let begin = Instant::now();
                if call.effect == Waits {
                    s.spawn_local(|| {
                        time::sleep(2 * LIMIT).unwrap();
                        fixture.release();
                    });
                }
                match time::timeout(LIMIT, || (call.wait)(&fixture)) {
                    Ok(()) => assert_eq!(call.effect, Waits, "{}", call.name),
                    Err(error) => {
                        assert_ne!(call.effect, Waits, "{}", call.name);
                        assert_elapsed(&error, LIMIT);
                    }
                }
                assert!(begin.elapsed() >= LIMIT);
                // After the call the fiber is not cancelled.
                cringle::cancel::check().unwrap();
            });
        });
    }
}

#[test]
fn protected_wait_is_not_cancelled() {
    for call in calls() {
        let fixture = Fixture::new(Duration::from_millis(3));
        run_beside(call, &fixture, 1, || {
            fiber::scope(|s| {
                let waits = s.spawn_local(|| {
                    let waited = fiber::protect(|| (call.wait)(&fixture));
                    assert_cancelled(&cringle::cancel::check().unwrap_err());
                    waited
                });
                fiber::yield_now();
                s.cancel();
                fiber::protect(let_others_wait);
                let _other_end = call.name.contains("FIFO").then(|| fixture.open_fifo());
                if !waits.is_finished() {
                    fixture.release();
                }
                assert!(matches!(end_of(waits.join()), End::Done), "{}", call.name);
            });
        });
    }
}

/// The fiber leaves the lock's queue before it unwinds; otherwise it would be handed the lock.
#[test]
fn unwound_fiber_leaves_the_queue_of_a_cursor() {
    let &call = CALLS.iter().find(|call| call.name == "a cursor's lock").unwrap();
    let fixture = Fixture::new(HOUR);
    run_beside(call, &fixture, 1, || {
        fiber::scope(|s| {
            s.cancel();
            let unwound = s.spawn_local(|| {
                // The number of refusals that a fiber may ignore.
                (0..1000).for_each(|_| drop(cringle::cancel::check().unwrap_err()));
                (call.wait)(&fixture)
            });
            assert!(matches!(end_of(unwound.join()), End::Unwound));
        });
        fiber::scope(|s| {
            let next = s.spawn_local(|| (call.wait)(&fixture));
            let_others_wait();
            assert!(!next.is_finished());
            fixture.release();
            next.join().unwrap().unwrap();
        });
    });
}

/// The file returns a part with each read. Depending on `turns`, the cancel arrives in the first
/// read, between two reads, or after the last.
#[test]
fn exact_read_of_batch_can_be_cancelled_midway() {
    const LEN: usize = 100_000;
    let (mut done, mut in_between) = (0, 0);
    for round in 0..6000usize {
        if round >= 60 && in_between > 0 {
            break;
        }
        let turns = (round % 60).pow(2);
        Builder::new()
            .workers(1)
            .run(|| {
                let file = File::open("/proc/kallsyms").unwrap();
                fiber::scope(|s| {
                    let reads = s.spawn_local(move || {
                        let mut text = vec![0; LEN];
                        let mut batch = Batch::new();
                        batch.read_exact(&file, &mut text, 0);
                        let result = batch.submit().into_iter().next().unwrap();
                        (result, text.iter().take_while(|&&byte| byte != 0).count())
                    });
                    (0..turns).for_each(|_| fiber::yield_now());
                    s.cancel();
                    match reads.join().unwrap() {
                        (Ok(count), filled) => {
                            assert_eq!((count, filled), (LEN, LEN));
                            done += 1;
                        }
                        (Err(error), filled) => {
                            assert_cancelled(&error);
                            assert!(filled < LEN);
                            in_between += u32::from(filled > 0);
                        }
                    }
                });
            })
            .unwrap();
    }
    println!("{done} reads completed, {in_between} were cancelled midway");
    assert!(in_between > 0);
}
