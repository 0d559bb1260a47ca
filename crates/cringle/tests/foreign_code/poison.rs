//! Locks are poisoned by panics and not by cancels.

use crate::beside_waiting_destructor;
use cringle::sync::{Mutex, RwLock};
use cringle::{fiber, time};
use cringle_testing::child;
use cringle_testing::tools::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

fn poisoned_by(f: impl FnOnce()) -> bool {
    /// Calls `f` in a frame of its own, so that the lock is held in another one.
    #[inline(never)]
    fn call(f: impl FnOnce()) {
        f();
        std::hint::black_box(());
    }
    let lock = Mutex::new(());
    let unwinds = AssertUnwindSafe(|| {
        let _guard = lock.lock().unwrap();
        call(f);
    });
    catch_unwind(unwinds).unwrap_err();
    lock.is_poisoned()
}

fn cancelled_wait() {
    fiber::scope(|s| {
        s.cancel();
        fiber::park();
    });
}

#[test]
fn reraised_cancel_poisons() {
    child::must_succeed("reraised_cancel_poisons", || {
        on_one_worker(|| {
            assert!(!poisoned_by(cancelled_wait));
            assert!(poisoned_by(|| {
                let payload = catch_unwind(cancelled_wait).unwrap_err();
                resume_unwind(payload);
            }));
            assert!(poisoned_by(|| {
                let payload = fiber::catch_unwind(cancelled_wait).unwrap_err();
                resume_unwind(payload);
            }));
            assert!(poisoned_by(|| {
                catch_unwind(cancelled_wait).unwrap_err();
                resume_unwind(Box::new("something else"));
            }));
            // A destructor that the cancel runs panics and catches that; the cancel continues.
            assert!(!poisoned_by(|| {
                let _catches = OnDrop(|| {
                    catch_unwind(|| resume_unwind(Box::new(1))).unwrap_err();
                });
                cancelled_wait();
            }));
        });
    });
}

/// Each way in which a cancel ends a wait, written so that the optimiser puts the lock, the wait
/// and the library's catch into one function.
#[test]
fn cancel_poisons_nothing_at_any_inlining() {
    fn check(case: &str, cancelled: impl FnOnce(&Mutex<u8>, &RwLock<u8>)) {
        let (mutex, lock) = (Mutex::new(0), RwLock::new(0));
        cancelled(&mutex, &lock);
        let poisoned = (mutex.is_poisoned(), lock.is_poisoned());
        assert_eq!(poisoned, (false, false), "{case}");
    }
    child::must_succeed("cancel_poisons_nothing_at_any_inlining", || {
        on_one_worker(|| {
            const SOON: Duration = Duration::from_millis(1);
            check("a deadline", |mutex, lock| {
                let ended = time::timeout(SOON, || {
                    let _guards = (mutex.lock().unwrap(), lock.write().unwrap());
                    fiber::sleep(Duration::from_secs(3600));
                    Ok(())
                });
                assert_elapsed(&ended.unwrap_err(), SOON);
            });
            check("a failed sibling", |mutex, lock| {
                let failed = fiber::try_scope(|s| {
                    s.spawn_local(|| Err::<(), _>(std::io::Error::other("the sibling")));
                    let _guards = (mutex.lock().unwrap(), lock.write().unwrap());
                    fiber::park();
                    Ok(())
                });
                assert_eq!(failed.unwrap_err().to_string(), "the sibling");
            });
            check("the scope's own body", |mutex, lock| {
                let scope = AssertUnwindSafe(|| {
                    fiber::scope(|s| {
                        s.cancel();
                        let _guards = (mutex.lock().unwrap(), lock.write().unwrap());
                        fiber::yield_now();
                    });
                });
                assert_unwound(catch_unwind(scope));
            });
            check("a fiber of its own", |mutex, lock| {
                fiber::scope(|s| {
                    let parks = s.spawn_local(|| {
                        let _guards = (mutex.lock().unwrap(), lock.write().unwrap());
                        fiber::park();
                    });
                    let_others_wait();
                    s.cancel();
                    assert_unwound(parks.join());
                });
            });
            check("std's catch", |mutex, lock| {
                fiber::scope(|s| {
                    s.cancel();
                    let waits = AssertUnwindSafe(|| {
                        let _guards = (mutex.lock().unwrap(), lock.write().unwrap());
                        fiber::park();
                    });
                    assert_unwound(catch_unwind(waits));
                });
            });
        });
    });
}

/// The panic ends in the destructor, and the cancel continues.
#[test]
fn cancel_with_caught_panics_poisons_nothing() {
    child::must_succeed("cancel_with_caught_panics_poisons_nothing", || {
        on_one_worker(|| {
            let destructors: [fn(); 5] = [
                || drop(catch_unwind(|| panic!("caught by std's"))),
                || drop(fiber::catch_unwind(|| panic!("caught"))),
                || drop(catch_unwind(|| resume_unwind(Box::new(1)))),
                || drop(catch_unwind(|| fiber::resume_unwind(Box::new(1)))),
                || {
                    drop(catch_unwind(|| {
                        fiber::yield_now();
                        panic!("after a wait");
                    }));
                },
            ];
            for destructor in destructors {
                assert!(!poisoned_by(|| {
                    let _catches = OnDrop(destructor);
                    cancelled_wait();
                }));
                // A panic still poisons.
                assert!(poisoned_by(|| {
                    let _catches = OnDrop(destructor);
                    panic!("not cancelled");
                }));
            }
        });
    });
}

#[test]
fn panic_caught_by_std_poisons_nothing_later() {
    child::must_succeed("panic_caught_by_std_poisons_nothing_later", || {
        on_one_worker(|| {
            beside_waiting_destructor(|| {
                let lock = Mutex::new(());
                let guard = lock.lock().unwrap();
                catch_unwind(|| panic!("caught by std's")).unwrap_err();
                drop(guard);
                assert!(!lock.is_poisoned());
                assert!(poisoned_by(|| panic!("a later one")));
            });
        });
    });
}

/// Beside a suspended destructor, std's count of panics is ambiguous. An unwinding that began
/// without the library's hook still poisons.
#[test]
fn unwinding_beside_suspended_destructor_poisons_locks() {
    let name = "unwinding_beside_suspended_destructor_poisons_locks";
    child::must_succeed(name, || {
        on_one_worker(|| {
            let check = || {
                assert!(poisoned_by(|| resume_unwind(Box::new(1))));
                assert!(poisoned_by(|| panic!("its own")));
                assert!(!poisoned_by(cancelled_wait));
                // A lock that a destructor takes and releases.
                let lock = Mutex::new(());
                let locks = AssertUnwindSafe(|| {
                    let _locks = OnDrop(|| drop(lock.lock().unwrap()));
                    resume_unwind(Box::new(1));
                });
                catch_unwind(locks).unwrap_err();
                assert!(!lock.is_poisoned());
                let (lock, once) = (RwLock::new(()), cringle::sync::Once::new());
                let writes = AssertUnwindSafe(|| {
                    let _guard = lock.write().unwrap();
                    once.call_once(|| resume_unwind(Box::new(1)));
                });
                catch_unwind(writes).unwrap_err();
                assert!(lock.is_poisoned());
                let waits = AssertUnwindSafe(|| once.wait());
                catch_unwind(waits).unwrap_err();
            };
            check();
            beside_waiting_destructor(check);
            beside_waiting_destructor(|| {
                fiber::yield_now();
                check();
            });
        });
    });
}
