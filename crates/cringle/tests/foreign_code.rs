//! Code of the program that runs where the library cannot let it unwind or be cancelled: destructors of results,
//! payloads and fiber-locals, panic hooks, callbacks (**I12**, **I13**). `tests/foreign` has the matrix of all of
//! it; each test here is one defect that was found.

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

/// Calls this when it is dropped.
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
fn beside_a_destructor_that_waits(f: impl FnOnce()) {
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

// ----- what a scope drops at its end -----

/// The second payload is dropped while the scope still has a fiber to wait for.
#[test]
fn a_scope_outlives_its_fibers_whatever_its_exits_raise() {
    child::must_succeed("a_scope_outlives_its_fibers_whatever_its_exits_raise", || {
        on_one_worker(|| {
            let ended = Rc::new(Cell::new(false));
            let theirs = Rc::clone(&ended);
            let scope = AssertUnwindSafe(|| {
                fiber::scope(|s| {
                    s.on_exit_local(move || {
                        s.spawn_local(move || {
                            (0..9).for_each(|_| fiber::yield_now());
                            theirs.set(true);
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
fn a_combinator_raises_the_first_panic_whatever_the_second_is() {
    child::must_succeed("a_combinator_raises_the_first_panic_whatever_the_second_is", || {
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
fn a_try_scope_raises_a_fibers_panic_though_its_own_payload_is_a_bomb() {
    child::must_succeed(
        "a_try_scope_raises_a_fibers_panic_though_its_own_payload_is_a_bomb",
        || {
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
        },
    );
}

// ----- destructors of a fiber that is cancelled -----

#[test]
fn a_destructor_of_a_cancelled_fibers_local_may_wait() {
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
    child::must_succeed("a_destructor_of_a_cancelled_fibers_local_may_wait", || {
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
fn an_unclaimed_result_of_a_cancelled_fiber_may_wait() {
    child::must_succeed("an_unclaimed_result_of_a_cancelled_fiber_may_wait", || {
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

/// As std's: a key whose value is being dropped is gone.
#[test]
fn a_fiber_local_cannot_be_made_again_by_its_own_destructor() {
    thread_local! {
        static SEEN: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    }
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            let own = LOCAL.try_with(|_| ()).is_err();
            let other = OTHER.try_with(|_| ()).is_ok();
            SEEN.with_borrow_mut(|seen| seen.extend([own, other]));
        }
    }
    cringle::fiber_local! {
        static LOCAL: Again = Again;
        static OTHER: u32 = 7;
    }
    child::must_succeed("a_fiber_local_cannot_be_made_again_by_its_own_destructor", || {
        on_one_worker(|| {
            for _ in 0..2 {
                fiber::spawn_local(|| LOCAL.with(|_| ())).join().unwrap();
                assert_eq!(SEEN.take(), [true, true]);
            }
        });
    });
}

// ----- who unwinds, where the library does not see it begin or end -----

/// std's `resume_unwind` runs no hook.
#[test]
fn an_unwinding_that_the_program_raises_again_is_not_cancelled() {
    child::must_succeed("an_unwinding_that_the_program_raises_again_is_not_cancelled", || {
        on_one_worker(|| {
            beside_a_destructor_that_waits(|| {
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
fn a_panic_of_another_hook_is_not_cancelled() {
    child::must_succeed("a_panic_of_another_hook_is_not_cancelled", || {
        on_one_worker(|| {
            std::panic::set_hook(Box::new(|_| ()));
            beside_a_destructor_that_waits(|| {
                let done = &Cell::new(false);
                fiber::scope(|s| {
                    let panics = s.spawn_local(move || {
                        let _waits = OnDrop(|| {
                            fiber::sleep(Duration::from_millis(1));
                            fiber::yield_now();
                            done.set(true);
                        });
                        panic!("unseen");
                    });
                    let_others_wait();
                    s.cancel();
                    assert_eq!(message(panics.join().unwrap_err()), "unseen");
                });
                assert!(done.get());
            });
        });
    });
}

/// The destructor waits for the very fiber: `run` would never return.
#[test]
fn a_fiber_that_has_caught_its_panic_by_std_can_be_cancelled() {
    child::must_succeed("a_fiber_that_has_caught_its_panic_by_std_can_be_cancelled", || {
        on_one_worker(|| {
            beside_a_destructor_that_waits(|| {
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
    /// The frame that catches a cancel and raises it again is not the one that holds the lock.
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
fn a_caught_cancel_that_is_raised_again_poisons() {
    child::must_succeed("a_caught_cancel_that_is_raised_again_poisons", || {
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
            // A destructor of the cancel raises, catches, and the cancel goes on.
            assert!(!poisoned_by(|| {
                let _catches = OnDrop(|| {
                    catch_unwind(|| resume_unwind(Box::new(1))).unwrap_err();
                });
                cancelled_wait();
            }));
        });
    });
}

/// Each way in which a cancel ends a wait, written so that an optimising compiler puts the lock, the wait and the
/// library's catch into one function.
#[test]
fn a_cancel_poisons_nothing_however_it_is_inlined() {
    fn check(what: &str, cancelled: impl FnOnce(&Mutex<u8>, &RwLock<u8>)) {
        let (mutex, lock) = (Mutex::new(0), RwLock::new(0));
        cancelled(&mutex, &lock);
        let poisoned = (mutex.is_poisoned(), lock.is_poisoned());
        assert_eq!(poisoned, (false, false), "{what}: which is poisoned");
    }
    child::must_succeed("a_cancel_poisons_nothing_however_it_is_inlined", || {
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

/// The panic ends in the destructor, and the cancel goes on.
#[test]
fn a_cancel_whose_destructors_catch_panics_poisons_nothing() {
    child::must_succeed("a_cancel_whose_destructors_catch_panics_poisons_nothing", || {
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
                // A panic is none the less one.
                assert!(poisoned_by(|| {
                    let _catches = OnDrop(destructor);
                    panic!("not cancelled");
                }));
            }
        });
    });
}

#[test]
fn a_panic_that_std_caught_poisons_nothing_afterwards() {
    child::must_succeed("a_panic_that_std_caught_poisons_nothing_afterwards", || {
        on_one_worker(|| {
            beside_a_destructor_that_waits(|| {
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

/// Beside it, std's count of panics says nothing: what the library has not seen begin poisons all the same.
#[test]
fn whatever_unwinds_beside_a_suspended_destructor_poisons_as_on_a_thread() {
    let name = "whatever_unwinds_beside_a_suspended_destructor_poisons_as_on_a_thread";
    child::must_succeed(name, || {
        on_one_worker(|| {
            let check = || {
                assert!(poisoned_by(|| resume_unwind(Box::new(1))));
                assert!(poisoned_by(|| panic!("its own")));
                assert!(!poisoned_by(cancelled_wait));
                // A lock that is taken and given back by a destructor.
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
            beside_a_destructor_that_waits(check);
            beside_a_destructor_that_waits(|| {
                fiber::yield_now();
                check();
            });
        });
    });
}

// ----- hooks -----

/// A pipe takes 64 KiB; who reads it is a fiber of the same worker that panics, too.
#[test]
fn a_panic_hook_waits_plainly() {
    child::must_succeed("a_panic_hook_waits_plainly", || {
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

/// The thread's locals are destroyed then: a fiber that is suspended with a reference to one must not run.
#[test]
fn exit_on_a_fiber_resumes_no_other() {
    thread_local! {
        static VALUE: RefCell<Vec<u64>> = RefCell::new(vec![1; 1000]);
        static YIELDS: OnDrop<fn()> = const { OnDrop(|| (0..9).for_each(|_| fiber::yield_now())) };
    }
    child::must_succeed("exit_on_a_fiber_resumes_no_other", || {
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
fn a_callbacks_payload_may_be_a_bomb() {
    child::must_succeed("a_callbacks_payload_may_be_a_bomb", || {
        let io = BlockIo::builder().build().unwrap();
        let nothing = || OwnedBatch::<Vec<u8>>::new();
        io.submit_then(nothing(), |_| panic_any(Bomb)).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        io.submit_then(nothing(), move |_| tell.send(()).unwrap()).unwrap();
        told.recv().unwrap();
        io.close().unwrap();
    });
}

#[test]
fn a_callback_that_closes_by_unblock_is_refused() {
    child::must_succeed("a_callback_that_closes_by_unblock_is_refused", || {
        let io = Arc::new(BlockIo::builder().build().unwrap());
        let (tell, told) = std::sync::mpsc::channel();
        let theirs = Arc::clone(&io);
        io.submit_then(OwnedBatch::<Vec<u8>>::new(), move |_| {
            tell.send(fiber::unblock(|| theirs.close()).unwrap_err().kind()).unwrap();
            let nested = fiber::unblock(|| on_one_worker(|| fiber::unblock(|| theirs.close())));
            tell.send(nested.unwrap_err().kind()).unwrap();
        })
        .unwrap();
        for _ in 0..2 {
            assert_eq!(told.recv().unwrap(), std::io::ErrorKind::Deadlock);
        }
        io.close().unwrap();
    });
}

// ----- many suspended fibers -----

/// What a channel's sender did meanwhile is received: nothing above leaves a wait without its end.
#[test]
fn a_full_channel_in_a_destructor_is_emptied_by_its_receiver() {
    child::must_succeed("a_full_channel_in_a_destructor_is_emptied_by_its_receiver", || {
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
