//! `try_scope` returns the first failure, which cancels the other fibers.

use super::{FOREVER, Log};
use cringle::{cancel, fiber, time};
use cringle_testing::tools::*;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

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
            for _ in 0..2 {
                s.spawn(|| time::sleep(FOREVER));
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
