//! Functions that are called when a scope ends.

use super::{FOREVER, Log, current_thread};
use cringle::{cancel, fiber, time};
use cringle_testing::tools::*;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

/// How a scope ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Return,
    Panic,
    FiberPanics,
    Cancelled,
    CancelledFromOutside,
    Deadline,
}

#[test]
fn exits_run_in_reverse_order_however_scope_ends() {
    use Ending::*;
    for ending in [Return, Panic, FiberPanics, Cancelled, CancelledFromOutside, Deadline] {
        // A cancel or deadline may end the scope before every exit is registered.
        let (log, registered) = (Log::default(), Log::default());
        let ran = AssertUnwindSafe(|| {
            on_two_workers(|| {
                let body = || {
                    fiber::scope(|s| {
                        let (log, registered) = (&log, &registered);
                        let exit = move |name| {
                            registered.note(name);
                            move || {
                                // An exit is not cancelled, does not unwind, and can wait.
                                cancel::check().unwrap();
                                assert!(!fiber::panicking());
                                time::sleep(Duration::from_micros(100)).unwrap();
                                fiber::unblock(|| log.note(name));
                            }
                        };
                        s.on_exit(exit("first"));
                        s.on_exit_local(exit("second"));
                        spawn_on(1, s, move || {
                            s.on_exit_local(exit("third, on worker 1"));
                            s.on_exit(exit("fourth"));
                        })
                        .join()
                        .unwrap();
                        registered.note("a fiber");
                        s.spawn(move || {
                            drop(time::sleep(Duration::from_millis(1)));
                            log.note("a fiber");
                        });
                        match ending {
                            Return => {}
                            Panic => panic!("on purpose"),
                            FiberPanics => drop(s.spawn(|| panic!("on purpose"))),
                            Cancelled => s.cancel(),
                            CancelledFromOutside | Deadline => fiber::sleep(FOREVER),
                        }
                    });
                    Ok(())
                };
                match ending {
                    Deadline => time::timeout(Duration::from_millis(2), body),
                    CancelledFromOutside => fiber::scope(|s| {
                        let inner = s.spawn_local(body);
                        let_others_wait();
                        time::sleep(Duration::from_millis(1)).unwrap();
                        s.cancel();
                        assert_unwound(inner.join());
                        Ok(())
                    }),
                    _ => body(),
                }
            })
        });
        let result = catch_unwind(ran);
        match ending {
            Panic => assert_eq!(message(result.unwrap_err()), "on purpose"),
            FiberPanics => assert_eq!(message(result.unwrap_err()), "a scoped fiber panicked"),
            Deadline => {
                assert_elapsed(&result.unwrap().unwrap_err(), Duration::from_millis(2));
            }
            _ => result.unwrap().unwrap(),
        }
        let mut expected = registered.0.into_inner().unwrap();
        assert!(expected.len() == 5 || matches!(ending, CancelledFromOutside | Deadline));
        expected.reverse();
        assert_eq!(log.0.into_inner().unwrap(), expected, "{ending:?}");
    }
}

#[test]
fn local_exits_run_on_their_own_worker() {
    let calls = Mutex::new(Vec::new());
    on_two_workers(|| {
        for owner in [0, 1] {
            fiber::scope(|outer| {
                spawn_on(owner, outer, || {
                    fiber::scope(|s| {
                        for worker in [0, 1] {
                            spawn_on(worker, s, || {
                                let (local, registrant) = (Rc::new(Cell::new(1)), current_thread());
                                let clone = Rc::clone(&local);
                                let calls = &calls;
                                s.on_exit_local(move || {
                                    clone.set(clone.get() + 1);
                                    drop(clone);
                                    calls.lock().unwrap().push((registrant, current_thread()));
                                });
                                // The worker that registered the exit keeps using its `Rc`.
                                (0..5).for_each(|_| drop(Rc::clone(&local)));
                            });
                        }
                        // Exits run although the scope is cancelled.
                        s.cancel();
                    });
                });
            });
        }
    });
    let calls = calls.into_inner().unwrap();
    assert_eq!(calls.len(), 4);
    assert!(calls.iter().all(|(registrant, called)| registrant == called), "{calls:?}");
}

#[test]
fn panic_of_exit_is_resumed_after_other_exits() {
    let log = Log::default();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        on_two_workers(|| {
            fiber::scope(|s| {
                s.on_exit(|| log.note("last"));
                s.on_exit(|| resume_unwind(Box::new("second panic")));
                spawn_on(1, s, || s.on_exit_local(|| resume_unwind(Box::new("first panic"))));
                s.on_exit(|| log.note("first"));
                spawn_on(1, s, || ()).join().unwrap();
            });
        });
    }));
    // The exit of worker 1 may be registered before or after the last one of this worker.
    assert!(message(ran.unwrap_err()).ends_with("panic"));
    assert_eq!(log.0.into_inner().unwrap(), ["first", "last"]);
}

/// An exit can register an exit and spawn fibers; the next exit waits for these.
#[test]
fn exit_can_use_its_scope() {
    let log = Log::default();
    on_two_workers(|| {
        fiber::scope(|s| {
            s.on_exit(|| log.note("last"));
            s.on_exit(|| {
                log.note("exit");
                s.on_exit(|| log.note("an exit's exit"));
                s.spawn(|| {
                    time::sleep(Duration::from_millis(1)).unwrap();
                    log.note("an exit's fiber");
                });
            });
        });
    });
    let expected = ["exit", "an exit's fiber", "an exit's exit", "last"];
    assert_eq!(log.0.into_inner().unwrap(), expected);
}
