//! Destructors of cancelled fibers, and unwindings without the library's hook.

use crate::beside_waiting_destructor;
use cringle::{cancel, fiber, time};
use cringle_testing::child;
use cringle_testing::tools::*;
use std::cell::{Cell, RefCell};
use std::panic::{catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

// ----- destructors of a cancelled fiber -----

#[test]
fn local_destructor_of_cancelled_fiber_may_wait() {
    thread_local! {
        static DONE: Cell<u32> = const { Cell::new(0) };
    }
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            fiber::sleep(Duration::from_millis(1));
            cancel::check().unwrap();
            DONE.set(DONE.get() + 1);
        }
    }
    cringle::fiber_local! {
        static LOCAL: Waits = Waits;
    }
    child::must_succeed("local_destructor_of_cancelled_fiber_may_wait", || {
        on_one_worker(|| {
            fiber::scope(|s| {
                let cancelled = s.spawn_local(|| {
                    LOCAL.with(|_| ());
                    fiber::park();
                });
                let_others_wait();
                s.cancel();
                assert_unwound(cancelled.join());
            });
            assert_eq!(DONE.get(), 1);
        });
    });
}

#[test]
fn unclaimed_result_of_cancelled_fiber_may_wait() {
    child::must_succeed("unclaimed_result_of_cancelled_fiber_may_wait", || {
        let done = Rc::new(Cell::new(false));
        on_one_worker(|| {
            let done = Rc::clone(&done);
            fiber::spawn_local(move || {
                fiber::park_cancellable().unwrap_err();
                OnDrop(move || {
                    fiber::sleep(Duration::from_millis(1));
                    done.set(true);
                })
            });
            fiber::yield_now();
        });
        assert!(done.get());
    });
}

/// As with std's thread-locals, a value that is being dropped is not accessible.
#[test]
fn local_destructor_cannot_remake_its_local() {
    thread_local! {
        static RESULTS: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    }
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            let own = LOCAL.try_with(|_| ()).is_err();
            let other = OTHER.try_with(|_| ()).is_ok();
            RESULTS.with_borrow_mut(|results| results.extend([own, other]));
        }
    }
    cringle::fiber_local! {
        static LOCAL: Again = Again;
        static OTHER: u32 = 7;
    }
    child::must_succeed("local_destructor_cannot_remake_its_local", || {
        on_one_worker(|| {
            for _ in 0..2 {
                fiber::spawn_local(|| LOCAL.with(|_| ())).join().unwrap();
                assert_eq!(RESULTS.take(), [true, true]);
            }
        });
    });
}

// ----- unwinding that begins or ends without the library's hook -----

/// std's `resume_unwind` runs no panic hook.
#[test]
fn reraised_payload_is_not_cancelled() {
    child::must_succeed("reraised_payload_is_not_cancelled", || {
        on_one_worker(|| {
            beside_waiting_destructor(|| {
                let done = &Cell::new(false);
                fiber::scope(|s| {
                    let raises = s.spawn_local(move || {
                        let failed = fiber::spawn_local(|| panic!("of another fiber"));
                        let _waits = OnDrop(|| {
                            assert!(fiber::panicking());
                            fiber::sleep(Duration::from_millis(1));
                            fiber::yield_now();
                            cancel::check().unwrap();
                            done.set(true);
                        });
                        resume_unwind(failed.join().map(drop).unwrap_err());
                    });
                    let_others_wait();
                    s.cancel();
                    assert!(raises.join().is_err());
                });
                assert!(done.get());
            });
        });
    });
}

#[test]
fn panic_under_replaced_hook_is_not_cancelled() {
    child::must_succeed("panic_under_replaced_hook_is_not_cancelled", || {
        on_one_worker(|| {
            std::panic::set_hook(Box::new(|_| ()));
            beside_waiting_destructor(|| {
                let done = &Cell::new(false);
                fiber::scope(|s| {
                    let panics = s.spawn_local(move || {
                        let _waits = OnDrop(|| {
                            fiber::sleep(Duration::from_millis(1));
                            fiber::yield_now();
                            done.set(true);
                        });
                        panic!("without the hook");
                    });
                    let_others_wait();
                    s.cancel();
                    assert_eq!(message(panics.join().unwrap_err()), "without the hook");
                });
                assert!(done.get());
            });
        });
    });
}

/// The destructor waits until the fibers have ended, so without the cancel `run` would not return.
#[test]
fn fiber_is_cancellable_after_std_catch_unwind() {
    child::must_succeed("fiber_is_cancellable_after_std_catch_unwind", || {
        on_one_worker(|| {
            beside_waiting_destructor(|| {
                fiber::scope(|s| {
                    let caught = s.spawn_local(|| {
                        catch_unwind(|| panic!("caught by std's")).unwrap_err();
                        assert!(!fiber::panicking());
                        fiber::park();
                    });
                    let waits_for_peer = s.spawn_local(|| {
                        catch_unwind(|| panic!("caught by std's")).unwrap_err();
                        let (reader, _writer) = pipe();
                        std::io::Read::read(&mut &reader, &mut [0])
                    });
                    let limited = s.spawn_local(|| {
                        catch_unwind(|| panic!("caught by std's")).unwrap_err();
                        time::timeout(Duration::from_millis(1), || time::sleep(Duration::MAX))
                    });
                    assert_elapsed(&limited.join().unwrap().unwrap_err(), Duration::from_millis(1));
                    let_others_wait();
                    s.cancel();
                    assert_unwound(caught.join());
                    assert_cancelled(&waits_for_peer.join().unwrap().unwrap_err());
                });
            });
        });
    });
}
