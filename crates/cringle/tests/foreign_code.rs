//! Code of the program that the library calls and that must neither unwind nor be cancelled:
//! destructors of results, payloads and fiber-locals, panic hooks, callbacks (**I12**, **I13**).
//! `tests/foreign` has the whole matrix; these cases need more than a cell of it.

mod child;
mod tools;

use cringle::block::{BlockIo, OwnedBatch};
use cringle::sync::{Mutex, RwLock, mpsc};
use cringle::{cancel, fiber, time};
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tools::*;

/// Calls the closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A payload whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the payload's destructor");
    }
}

/// Runs `f` while another fiber is suspended in a destructor of its panic.
fn beside_waiting_destructor(f: impl FnOnce()) {
    let go = &Cell::new(false);
    fiber::scope(|s| {
        let waits = s.spawn_local(move || {
            let _waits = OnDrop(|| {
                while !go.get() {
                    fiber::yield_now();
                }
            });
            panic!("its destructor waits");
        });
        fiber::yield_now();
        assert!(std::thread::panicking());
        {
            let _ends = OnDrop(|| go.set(true));
            f();
        }
        waits.join().map(drop).unwrap_err();
    });
}

// ----- payloads that a scope drops at its end -----

/// The second payload is dropped while the scope still waits for a fiber.
#[test]
fn scope_outlives_fibers_when_exit_calls_panic() {
    child::must_succeed("scope_outlives_fibers_when_exit_calls_panic", || {
        on_one_worker(|| {
            let ended = Rc::new(Cell::new(false));
            let sets = Rc::clone(&ended);
            let scope = AssertUnwindSafe(|| {
                fiber::scope(|s| {
                    s.on_exit_local(move || {
                        s.spawn_local(move || {
                            (0..9).for_each(|_| fiber::yield_now());
                            sets.set(true);
                        });
                        panic_any(Bomb);
                    });
                    s.on_exit_local(|| panic!("the first"));
                });
            });
            let payload = catch_unwind(scope).unwrap_err();
            assert!(ended.get(), "the scope was left before its fiber ended");
            assert_eq!(message(payload), "the first");
        });
    });
}

#[test]
fn combinator_raises_first_of_two_panics() {
    child::must_succeed("combinator_raises_first_of_two_panics", || {
        on_one_worker(|| {
            let both = AssertUnwindSafe(|| {
                let second = || {
                    let _later = OnDrop(fiber::yield_now);
                    panic_any(Bomb)
                };
                fiber::join(
                    || {
                        fiber::yield_now();
                        panic!("the first")
                    },
                    second,
                )
            });
            let payload = catch_unwind(both).map(|((), ())| ()).unwrap_err();
            assert_eq!(message(payload), "the first");
        });
    });
}

#[test]
fn try_scope_raises_panic_despite_panicking_payload() {
    child::must_succeed("try_scope_raises_panic_despite_panicking_payload", || {
        on_one_worker(|| {
            let scope = AssertUnwindSafe(|| {
                fiber::try_scope(|s| -> std::io::Result<()> {
                    s.spawn_local(|| -> std::io::Result<()> { panic!("the first") });
                    fiber::yield_now();
                    panic_any(Bomb)
                })
            });
            let payload = catch_unwind(scope).map(drop).unwrap_err();
            assert_eq!(message(payload), "the first");
        });
    });
}

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

// ----- poison -----

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

// ----- hooks -----

/// The hooks of three fibers wait, and run one after the other.
#[test]
fn panic_hook_blocks_its_worker() {
    child::must_succeed("panic_hook_blocks_its_worker", || {
        let hooked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let names = Arc::clone(&hooked);
        std::panic::set_hook(Box::new(move |_| {
            fiber::yield_now();
            fiber::sleep(Duration::from_millis(1));
            names.lock().unwrap().push(fiber::current().name().map(str::to_owned));
        }));
        on_one_worker(|| {
            fiber::scope(|s| {
                for name in ["a", "b", "c"] {
                    let named = fiber::Builder::new().name(name.into());
                    let panics = named.spawn_scoped_local(s, || panic!("one of three")).unwrap();
                    s.spawn_local(|| panics.join().map(drop).unwrap_err());
                }
            });
            assert!(!std::thread::panicking());
        });
        let names = hooked.lock().unwrap();
        assert_eq!(*names, ["a", "b", "c"].map(|name| Some(name.to_owned())));
    });
}

// ----- the end of the process -----

/// Exit destroys the thread's locals, so a suspended fiber with a reference to one must not run.
#[test]
fn exit_on_fiber_resumes_no_other_fiber() {
    thread_local! {
        static VALUE: RefCell<Vec<u64>> = RefCell::new(vec![1; 1000]);
        static YIELDS: OnDrop<fn()> = const { OnDrop(|| (0..9).for_each(|_| fiber::yield_now())) };
    }
    child::must_succeed("exit_on_fiber_resumes_no_other_fiber", || {
        on_one_worker(|| {
            YIELDS.with(|_| ());
            fiber::spawn_local(|| {
                VALUE.with(|value| {
                    fiber::yield_now();
                    println!("resumed {}", value.borrow().len());
                    std::process::abort();
                });
            });
            fiber::spawn_local(|| cringle::process::exit(0));
            fiber::park();
        });
    });
}

// ----- batches -----

#[test]
fn callback_payload_may_panic_in_destructor() {
    child::must_succeed("callback_payload_may_panic_in_destructor", || {
        let io = BlockIo::builder().build().unwrap();
        let nothing = || OwnedBatch::<Vec<u8>>::new();
        io.submit_then(nothing(), |_| panic_any(Bomb)).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        io.submit_then(nothing(), move |_| sender.send(()).unwrap()).unwrap();
        receiver.recv().unwrap();
        io.close().unwrap();
    });
}

#[test]
fn closing_from_callback_by_unblock_is_refused() {
    child::must_succeed("closing_from_callback_by_unblock_is_refused", || {
        let io = Arc::new(BlockIo::builder().build().unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        let shared = Arc::clone(&io);
        io.submit_then(OwnedBatch::<Vec<u8>>::new(), move |_| {
            sender.send(fiber::unblock(|| shared.close()).unwrap_err().kind()).unwrap();
            let nested = fiber::unblock(|| on_one_worker(|| fiber::unblock(|| shared.close())));
            sender.send(nested.unwrap_err().kind()).unwrap();
        })
        .unwrap();
        for _ in 0..2 {
            assert_eq!(receiver.recv().unwrap(), std::io::ErrorKind::Deadlock);
        }
        io.close().unwrap();
    });
}

// ----- many suspended fibers -----

/// The sender waits in a destructor for room in the channel, and the receiver makes that room.
#[test]
fn destructor_sends_into_full_channel() {
    child::must_succeed("destructor_sends_into_full_channel", || {
        on_one_worker(|| {
            let (sender, receiver) = mpsc::sync_channel(0);
            fiber::scope(|s| {
                let sends = s.spawn_local(move || {
                    let _sends = OnDrop(|| (0..9).for_each(|n| sender.send(n).unwrap()));
                    panic!("with nine to send");
                });
                assert_eq!(receiver.iter().take(9).count(), 9);
                sends.join().map(drop).unwrap_err();
            });
            writeln!(std::io::sink()).unwrap();
        });
    });
}
