//! Scopes: std's behaviour, daemons, exits, and `try_scope`, which the first failure cancels.

use crate::tools::*;
use cringle::{cancel, fiber, time};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

const FOREVER: Duration = Duration::MAX;

fn current_thread() -> ThreadId {
    std::thread::current().id()
}

// ----- std's behaviour -----

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

#[derive(Default)]
struct Log(Mutex<Vec<&'static str>>);

impl Log {
    fn note(&self, event: &'static str) {
        self.0.lock().unwrap().push(event);
    }
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

// ----- use by foreign threads -----

#[test]
fn foreign_thread_can_spawn_but_not_spawn_local() {
    on_two_workers(|| {
        let worker = fiber::Builder::new().worker(1);
        let on_one = worker.spawn(|| {
            let home = current_thread();
            fiber::scope(|s| {
                fiber::unblock(|| {
                    assert_eq!(cringle::runtime::worker(), None);
                    let local = catch_unwind(AssertUnwindSafe(|| drop(s.spawn_local(|| ()))));
                    let text = message(local.unwrap_err());
                    assert!(text.contains("inside of `cringle::run`"), "{text}");
                    let exit = catch_unwind(AssertUnwindSafe(|| s.on_exit_local(|| ())));
                    assert!(exit.is_err());
                    // The scope's worker starts it, and this thread can join it.
                    assert_eq!(s.spawn(current_thread).join().unwrap(), home);
                    let placed =
                        fiber::Builder::new().worker(0).spawn_scoped(s, current_thread).unwrap();
                    assert_ne!(placed.join().unwrap(), home);
                    let nowhere = fiber::Builder::new().worker(2).spawn_scoped(s, current_thread);
                    assert_eq!(nowhere.unwrap_err().kind(), ErrorKind::InvalidInput);
                    s.spawn_daemon(|| fiber::sleep(FOREVER));
                    s.spawn(|| s.spawn(|| ()));
                });
            });
        });
        on_one.unwrap().join().unwrap();
    });
}

// ----- unclaimed results -----

/// Records the threads that created and dropped it. It is not `Send`, so they must be the same.
struct Homing<'a>(&'a Mutex<Vec<(ThreadId, ThreadId)>>, ThreadId, PhantomData<Rc<()>>);

impl<'a> Homing<'a> {
    fn new(drops: &'a Mutex<Vec<(ThreadId, ThreadId)>>) -> Homing<'a> {
        Homing(drops, current_thread(), PhantomData)
    }
}

impl Drop for Homing<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().push((self.1, current_thread()));
    }
}

#[test]
fn unclaimed_values_drop_on_the_worker_that_made_them() {
    let drops = Mutex::new(Vec::new());
    on_two_workers(|| {
        fiber::scope(|s| {
            for worker in [0, 1] {
                spawn_on(worker, s, || {
                    // The handle is dropped before the fiber ends, after it, or never.
                    drop(s.spawn_local(|| Homing::new(&drops)));
                    let handle = s.spawn_local(|| Homing::new(&drops));
                    while !handle.is_finished() {
                        fiber::yield_now();
                    }
                    drop(handle);
                    std::mem::forget(s.spawn_local(|| ()));
                    // Results of a failed scope, whose `Ok` is not `Send`.
                    let failed: Result<(), io::Error> = fiber::try_scope(|t| {
                        t.spawn_local(|| Ok(Homing::new(&drops)));
                        let fails = || -> Result<Homing<'_>, io::Error> {
                            let _homing = Homing::new(&drops);
                            fiber::yield_now();
                            Err(ErrorKind::NotFound.into())
                        };
                        t.spawn_local(fails);
                        t.spawn_local(|| {
                            let homing = Homing::new(&drops);
                            drop(time::sleep(FOREVER));
                            Ok(homing)
                        });
                        Ok(())
                    });
                    assert_eq!(failed.unwrap_err().kind(), ErrorKind::NotFound);
                    // A capture of an exit.
                    let homing = Homing::new(&drops);
                    s.on_exit_local(move || drop(homing));
                });
            }
        });
    });
    let drops = drops.into_inner().unwrap();
    assert_eq!(drops.len(), 2 * 6);
    assert!(drops.iter().all(|(made, dropped)| made == dropped), "{drops:?}");
}

// ----- daemons -----

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

// ----- exits -----

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

// ----- try_scope -----

type Tried = Result<(), io::Error>;

fn not_found() -> Tried {
    Err(ErrorKind::NotFound.into())
}

/// Sleeps until it is cancelled, and logs that.
fn sleep_until_cancelled(log: &Log) -> Tried {
    let result = time::sleep(FOREVER);
    log.note("cancelled");
    result
}

#[test]
fn first_failure_cancels_siblings_and_is_returned() {
    for worker in [0, 1] {
        let log = Log::default();
        let result: Tried = on_two_workers(|| {
            fiber::try_scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| sleep_until_cancelled(&log));
                    s.spawn_local(|| sleep_until_cancelled(&log));
                }
                s.spawn_daemon(|| sleep_until_cancelled(&log));
                s.spawn_local(|| fiber::scope(|t| spawn_on(worker, t, not_found).join().unwrap()));
                // The closure's wait is cancelled too; its error is not the first.
                sleep_until_cancelled(&log)
            })
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(log.0.into_inner().unwrap().len(), 8);
    }
}

#[test]
fn first_panic_is_resumed_when_all_have_ended() {
    let log = Log::default();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        on_two_workers(|| {
            fiber::try_scope(|s| {
                s.spawn(|| sleep_until_cancelled(&log));
                s.spawn_local(|| -> Tried { resume_unwind(Box::new(31)) });
                s.spawn_local(|| -> Tried {
                    drop(time::sleep(FOREVER));
                    panic!("later");
                });
                fiber::sleep(FOREVER);
                Ok(())
            })
        })
    }));
    assert_eq!(*ran.unwrap_err().downcast::<i32>().unwrap(), 31);
    assert_eq!(log.0.into_inner().unwrap(), ["cancelled"]);
}

#[test]
fn failure_of_the_closure_cancels_its_fibers() {
    let log = Log::default();
    let result = on_two_workers(|| {
        fiber::try_scope(|s| {
            s.spawn(|| sleep_until_cancelled(&log));
            s.spawn_local(|| sleep_until_cancelled(&log));
            let_others_wait();
            not_found()
        })
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        on_two_workers(|| {
            fiber::try_scope(|s| -> Tried {
                s.spawn(|| sleep_until_cancelled(&log));
                panic!("the closure");
            })
        })
    }));
    assert_eq!(message(ran.unwrap_err()), "the closure");
    assert_eq!(log.0.into_inner().unwrap().len(), 3);
}

/// A failure goes to the join that is waiting for it, and cancels nothing.
#[test]
fn failure_goes_only_to_the_waiting_join() {
    on_one_worker(|| {
        let result: Tried = fiber::try_scope(|s| {
            let sibling = s.spawn_local(|| time::sleep(Duration::from_millis(1)));
            let fails = s.spawn_local(not_found);
            // The join is waiting when the fiber fails.
            assert_eq!(fails.join().unwrap().unwrap_err().kind(), ErrorKind::NotFound);
            let panics = s.spawn_local(|| -> Tried { resume_unwind(Box::new(1)) });
            assert!(panics.join().is_err());
            let joined = s.spawn_local(|| {
                // A fiber's join, not the closure's.
                let fails = s.spawn_local(not_found);
                drop(fails.join_cancellable()?);
                Ok(())
            });
            joined.join().unwrap()?;
            assert!(!s.is_cancelled());
            sibling.join().unwrap()
        });
        result.unwrap();
    });
}

/// No join waits, so the scope is cancelled. A later join takes the failure, so the scope does not
/// return it.
#[test]
fn failure_taken_by_later_join_is_not_returned() {
    on_one_worker(|| {
        let log = Log::default();
        let result: Tried = fiber::try_scope(|s| {
            s.spawn_local(|| {
                drop(sleep_until_cancelled(&log));
                Ok(())
            });
            let fails = s.spawn_local(not_found);
            while !fails.is_finished() {
                fiber::protect(fiber::yield_now);
            }
            assert!(s.is_cancelled());
            assert_eq!(fails.join().unwrap().unwrap_err().kind(), ErrorKind::NotFound);
            let panics = s.spawn_local(|| -> Tried { resume_unwind(Box::new(1)) });
            assert!(panics.join().is_err());
            Ok(())
        });
        result.unwrap();
        assert_eq!(log.0.into_inner().unwrap(), ["cancelled"]);
    });
}

#[test]
fn errors_after_explicit_cancel_are_no_failures() {
    on_two_workers(|| {
        let result: Tried = fiber::try_scope(|s| {
            for worker in [0, 1] {
                s.spawn(move || {
                    let _ = worker;
                    time::sleep(FOREVER)
                });
            }
            s.spawn_local(|| {
                fiber::park();
                Ok(())
            });
            let_others_wait();
            s.cancel();
            Ok(())
        });
        result.unwrap();
        // The closure's own error is returned, and so is the cancel that unwinds it.
        let result: Tried = fiber::try_scope(|s| {
            s.cancel();
            cancel::check()
        });
        assert_cancelled(&result.unwrap_err());
        let result: Tried = fiber::try_scope(|s| {
            s.cancel();
            fiber::park();
            Ok(())
        });
        assert_cancelled(&result.unwrap_err());
    });
}

#[test]
fn try_scope_in_cancelled_region_returns_its_error() {
    const LIMIT: Duration = Duration::from_millis(2);
    on_two_workers(|| {
        for unwinds in [false, true] {
            let result = time::timeout(LIMIT, || {
                fiber::try_scope(|s| {
                    s.spawn(move || {
                        if !unwinds {
                            return time::sleep(FOREVER);
                        }
                        fiber::sleep(FOREVER);
                        Ok(())
                    });
                    Ok(())
                })
            });
            assert_elapsed(&result.unwrap_err(), LIMIT);
        }
    });
}

#[test]
fn failure_of_uncancelled_daemon_fails_the_scope() {
    on_two_workers(|| {
        let result: Tried = fiber::try_scope(|s| {
            s.spawn_daemon(not_found);
            time::sleep(FOREVER)
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        let result: Tried = fiber::try_scope(|s| {
            s.spawn_daemon(|| time::sleep(FOREVER));
            s.spawn_daemon_local(|| time::sleep(FOREVER));
            s.spawn(|| Ok(()));
            Ok(())
        });
        result.unwrap();
    });
}

/// A handle may be forgotten, or joined by another fiber.
#[test]
fn moved_and_forgotten_handles_keep_failures_counted() {
    on_two_workers(|| {
        for _ in 0..100 {
            let joined = AtomicBool::new(false);
            let result: Tried = fiber::try_scope(|s| {
                std::mem::forget(s.spawn(|| Ok(())));
                let handle = s.spawn(|| -> Tried { not_found() });
                s.spawn(|| {
                    joined.store(handle.join().unwrap().is_err(), Ordering::SeqCst);
                    Ok(())
                });
                Ok(())
            });
            // If the join was waiting, it has taken the failure; otherwise the scope returns it.
            match result {
                Ok(()) => assert!(joined.into_inner()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
            }
        }
    });
}

/// The error is not `Clone`, and borrows.
#[test]
fn unreturned_errors_are_dropped_before_scope_returns() {
    struct Counted<'a>(&'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    struct Error<'a>(#[allow(dead_code, reason = "for its destructor")] Option<Counted<'a>>);
    impl From<io::Error> for Error<'_> {
        fn from(_: io::Error) -> Self {
            Error(None)
        }
    }
    let drops = AtomicUsize::new(0);
    let result: Result<(), Error<'_>> = on_two_workers(|| {
        fiber::try_scope(|s| {
            for _ in 0..10 {
                s.spawn(|| -> Result<(), Error<'_>> { Err(Error(Some(Counted(&drops)))) });
            }
            Ok(())
        })
    });
    assert_eq!(drops.load(Ordering::SeqCst), 9, "all but the first");
    drop(result);
    assert_eq!(drops.into_inner(), 10);
}
