//! Cancels go down the tree of scopes and deadlines, to all of it and to nothing else, wherever
//! they come from; they stick, and stop at protected calls.

mod tools;

use cringle::runtime::Feature;
use cringle::{Builder, cancel, fiber, time};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tools::*;

const FOREVER: Duration = Duration::MAX;

// ----- a tree of fibers on two workers -----

const LEVELS: u32 = 3;
const LEAVES: usize = 2usize.pow(LEVELS);

/// What the leaves of a tree tell.
struct Tally {
    owner: fiber::Thread,
    begun: AtomicUsize,
    cancelled: AtomicUsize,
}

impl Tally {
    fn new() -> Tally {
        let (begun, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Tally { owner: fiber::current(), begun, cancelled }
    }

    fn wait_until_all_have_begun(&self) {
        while self.begun.load(Ordering::SeqCst) < LEAVES {
            fiber::park();
        }
    }

    /// Waits to be cancelled, in one of the ways there are.
    fn wait(&self, number: usize) {
        let (reader, _writer) = pipe();
        if self.begun.fetch_add(1, Ordering::SeqCst) + 1 == LEAVES {
            self.owner.unpark();
        }
        match number % 4 {
            0 => assert_cancelled(&time::sleep(FOREVER).unwrap_err()),
            1 => assert_cancelled(&(&reader).read(&mut [0]).unwrap_err()),
            2 => assert_unwound(catch_unwind(|| while_parked(|| true))),
            _ => assert_unwound(catch_unwind(|| drop(fiber::spawn(fiber::park).join()))),
        }
        assert_cancelled(&cancel::check().unwrap_err());
        self.cancelled.fetch_add(1, Ordering::SeqCst);
    }
}

fn while_parked(go_on: impl Fn() -> bool) {
    while go_on() {
        fiber::park();
    }
}

/// Two fibers, one on each worker, each with a scope of its own and two fibers in it, and so on;
/// the last ones call `leaf` with their number.
fn grow<'scope>(
    s: &'scope fiber::Scope<'scope, '_>,
    levels: u32,
    number: usize,
    leaf: &'scope (dyn Fn(usize) + Sync),
) {
    for worker in 0..2 {
        let number = 2 * number + worker;
        spawn_on(worker, s, move || match levels {
            1 => leaf(number),
            _ => fiber::scope(|s| grow(s, levels - 1, number, leaf)),
        });
    }
}

/// Grows a tree, has it cancelled, and sees to it that all of it is, and another one beside is not.
fn cancelled_by(cancel: impl FnOnce(&fiber::Scope<'_, '_>)) {
    on_two_workers(|| {
        let over = AtomicBool::new(false);
        let goes_on = |_: usize| {
            while !over.load(Ordering::SeqCst) {
                time::sleep(Duration::from_micros(50)).unwrap();
            }
            cancel::check().unwrap();
        };
        let tally = Tally::new();
        let waits = |number| tally.wait(number);
        fiber::scope(|s| {
            grow(s, LEVELS, 0, &goes_on);
            fiber::scope(|s| {
                grow(s, LEVELS, 0, &waits);
                tally.wait_until_all_have_begun();
                cancel(s);
            });
            assert_eq!(tally.cancelled.load(Ordering::SeqCst), LEAVES);
            cancel::check().unwrap();
            over.store(true, Ordering::SeqCst);
        });
    });
}

#[test]
fn the_owner_of_a_scope_cancels_the_tree_below_it() {
    (0..20).for_each(|_| cancelled_by(|s| s.cancel()));
}

#[test]
fn a_fiber_of_the_scope_cancels_the_tree_and_itself() {
    for worker in [0, 1] {
        on_two_workers(|| {
            let tally = Tally::new();
            let waits = |number| tally.wait(number);
            fiber::scope(|s| {
                grow(s, LEVELS, 0, &waits);
                tally.wait_until_all_have_begun();
                let child = spawn_on(worker, s, || {
                    s.cancel();
                    s.cancel();
                    // It may be on its way by message, but not for ever.
                    time::sleep(FOREVER)
                });
                assert_cancelled(&child.join().unwrap().unwrap_err());
            });
            assert_eq!(tally.cancelled.load(Ordering::SeqCst), LEAVES);
            cancel::check().unwrap();
        });
    }
}

#[test]
fn a_fiber_of_another_scope_and_worker_cancels_the_tree() {
    for worker in [0, 1] {
        cancelled_by(|s| {
            let cancel = || fiber::scope(|t| spawn_on(worker, t, || s.cancel()).join().unwrap());
            // What cancels is within no part of the tree, but its owner is.
            fiber::protect(cancel);
        });
    }
}

#[test]
fn a_foreign_thread_cancels_the_tree() {
    // In `unblock`, and as a thread of the program's own.
    cancelled_by(|s| fiber::unblock(|| s.cancel()));
    cancelled_by(|s| std::thread::scope(|t| drop(t.spawn(|| s.cancel()))));
}

#[test]
fn a_worker_of_another_runtime_cancels_the_tree() {
    cancelled_by(|s| fiber::unblock(|| on_one_worker(|| s.cancel())));
}

#[test]
fn a_deadline_cancels_the_tree() {
    const LIMIT: Duration = Duration::from_millis(20);
    on_two_workers(|| {
        let errors = Mutex::new(Vec::new());
        let waits = |_: usize| {
            let error = time::sleep(FOREVER).unwrap_err();
            errors.lock().unwrap().push(error);
        };
        let result = time::timeout(LIMIT, || {
            fiber::scope(|s| grow(s, LEVELS, 0, &waits));
            cancel::check()
        });
        assert_elapsed(&result.unwrap_err(), LIMIT);
        let errors = errors.into_inner().unwrap();
        assert_eq!(errors.len(), LEAVES);
        errors.iter().for_each(|error| assert_elapsed(error, LIMIT));
        cancel::check().unwrap();
    });
}

/// Each may be anywhere: not started, starting, waiting, ended.
#[test]
fn cancels_may_come_while_the_tree_grows() {
    for round in 0..200u64 {
        let waits = |number: usize| match number % 3 {
            0 => assert_cancelled(&time::sleep(FOREVER).unwrap_err()),
            1 => fiber::yield_now(),
            _ => fiber::park_timeout(Duration::from_secs(3600)),
        };
        on_two_workers(|| {
            fiber::scope(|s| {
                let cancels = move || {
                    fiber::unblock(|| {
                        (0..round * 20).for_each(|_| std::hint::spin_loop());
                        s.cancel();
                    });
                };
                spawn_on((round % 2) as usize, s, cancels);
                grow(s, 4, 0, &waits);
            });
            cancel::check().unwrap();
        });
    }
}

/// A cancel goes from fiber to fiber; no stack is as deep as the tree.
#[test]
fn the_tree_may_be_as_deep_as_memory_allows() {
    const DEPTH: usize = 5000;
    fn descend(depth: usize, bottom: &fiber::Thread) {
        if depth == 0 {
            bottom.unpark();
            return assert_cancelled(&time::sleep(FOREVER).unwrap_err());
        }
        fiber::scope(|s| {
            s.spawn_local(|| descend(depth - 1, bottom));
        });
    }
    on_one_worker(|| {
        let owner = fiber::current();
        fiber::scope(|s| {
            s.spawn_local(|| descend(DEPTH, &owner));
            fiber::park();
            s.cancel();
        });
    });
}

// ----- it sticks -----

#[test]
fn what_is_begun_after_a_cancel_begins_cancelled() {
    on_two_workers(|| {
        fiber::scope(|s| {
            s.cancel();
            s.cancel();
            assert!(s.is_cancelled());
            let check = || assert_cancelled(&cancel::check().unwrap_err());
            check();
            // In the scope, below it, and in what is opened below it.
            for worker in [0, 1] {
                spawn_on(worker, s, check).join().unwrap();
                fiber::scope(|t| {
                    assert!(t.is_cancelled());
                    spawn_on(worker, t, check);
                    spawn_on(worker, t, || fiber::scope(|u| drop(u.spawn_local(check))));
                });
            }
            // A deadline does not lift it, nor hide it.
            let error = time::timeout(Duration::from_secs(60), || time::sleep(FOREVER));
            assert_cancelled(&error.unwrap_err());
            // Detached fibers are not the scope's.
            fiber::protect(|| fiber::spawn(|| cancel::check().unwrap()).join().unwrap());
        });
        cancel::check().unwrap();
    });
}

#[test]
fn a_cancel_of_a_scope_that_has_ended_hits_nobody() {
    on_two_workers(|| {
        for _ in 0..100 {
            fiber::scope(|s| {
                let late = s.spawn(|| {
                    fiber::scope(|t| {
                        // The message may come when its owner is in other scopes, or gone.
                        fiber::unblock(|| t.cancel());
                    });
                    cancel::check().unwrap();
                    fiber::scope(|t| {
                        t.spawn(|| cancel::check().unwrap());
                        fiber::yield_now();
                    });
                });
                late.join().unwrap();
                fiber::yield_now();
                cancel::check().unwrap();
            });
        }
    });
}

// ----- protected calls -----

#[test]
fn nothing_is_cancelled_in_a_protected_call_also_in_its_scopes() {
    on_two_workers(|| {
        let (go, all) = (AtomicBool::new(false), AtomicUsize::new(0));
        let undisturbed = |_: usize| {
            while !go.load(Ordering::SeqCst) {
                time::sleep(Duration::from_micros(100)).unwrap();
            }
            cancel::check().unwrap();
            all.fetch_add(1, Ordering::SeqCst);
        };
        fiber::scope(|s| {
            let protected = s.spawn_local(|| {
                fiber::protect(|| {
                    // Cancelled while these are open, and before these are opened.
                    fiber::scope(|t| grow(t, LEVELS, 0, &undisturbed));
                    fiber::scope(|t| grow(t, LEVELS, 0, &undisturbed));
                    cancel::check().unwrap();
                });
                assert_cancelled(&cancel::check().unwrap_err());
                time::sleep(FOREVER)
            });
            let_others_wait();
            s.cancel();
            fiber::protect(|| {
                let_others_wait();
                go.store(true, Ordering::SeqCst);
            });
            assert_cancelled(&protected.join().unwrap().unwrap_err());
        });
        assert_eq!(all.into_inner(), 2 * LEAVES);
    });
}

#[test]
fn a_deadline_and_a_scope_within_a_protected_call_count() {
    const LIMIT: Duration = Duration::from_millis(2);
    on_two_workers(|| {
        fiber::scope(|s| {
            s.cancel();
            fiber::protect(|| {
                let errors = Mutex::new(Vec::new());
                let waits = |_: usize| {
                    let error = time::sleep(FOREVER).unwrap_err();
                    errors.lock().unwrap().push(error);
                };
                let result = time::timeout(LIMIT, || {
                    fiber::scope(|t| grow(t, LEVELS, 0, &waits));
                    time::sleep(FOREVER)
                });
                assert_elapsed(&result.unwrap_err(), LIMIT);
                for error in errors.into_inner().unwrap() {
                    assert_elapsed(&error, LIMIT);
                }
                fiber::scope(|t| {
                    let sleeper = t.spawn(|| time::sleep(FOREVER));
                    t.cancel();
                    assert_cancelled(&sleeper.join().unwrap().unwrap_err());
                });
                // What is within has ended; what is around does not count.
                cancel::check().unwrap();
                // Protected from that deadline, too.
                let waited = time::timeout(LIMIT, || {
                    fiber::protect(|| time::sleep(2 * LIMIT)).unwrap();
                    cancel::check()
                });
                assert_elapsed(&waited.unwrap_err(), LIMIT);
            });
            assert_cancelled(&cancel::check().unwrap_err());
        });
    });
}

/// The loop of an acceptor that logs its errors, protects the log, bounds that by a deadline, and
/// goes on.
#[test]
fn a_loop_that_ignores_refusals_is_unwound_though_it_protects_what_it_does_about_them() {
    on_one_worker(|| {
        let (reader, _writer) = pipe();
        let refusals = Cell::new(0);
        fiber::scope(|s| {
            let handle = s.spawn_local(|| {
                loop {
                    if (&reader).read(&mut [0]).is_err() {
                        refusals.set(refusals.get() + 1);
                        fiber::protect(|| {
                            time::timeout(Duration::from_secs(1), || time::sleep(Duration::ZERO))
                        })
                        .unwrap();
                    }
                }
            });
            let_others_wait();
            s.cancel();
            assert_unwound(handle.join());
            assert_eq!(
                refusals.get(),
                1 + 1000,
                "the read that was given up, and as many refusals"
            );
        });
    });
}

/// Each deadline has its own count: a fiber that lives through many is not unwound for them.
#[test]
fn refusals_are_forgotten_with_what_they_were_for() {
    on_one_worker(|| {
        for _ in 0..3 {
            let result: io::Result<()> = time::timeout(Duration::ZERO, || {
                (0..900).for_each(|_| drop(cancel::check()));
                Ok(())
            });
            result.unwrap();
        }
    });
}

// ----- success wins -----

#[test]
fn what_was_done_beats_a_cancel_that_comes_late() {
    on_one_worker(|| {
        // The token of a park, a value of a fiber, the bytes of a read: in before the cancel, asked
        // for before it, taken after it.
        fiber::scope(|s| {
            let parked = s.spawn_local(fiber::park_cancellable);
            let unwinds = s.spawn_local(fiber::park);
            let_others_wait();
            parked.thread().unpark();
            unwinds.thread().unpark();
            s.cancel();
            parked.join().unwrap().unwrap();
            unwinds.join().unwrap();
        });
        fiber::scope(|s| {
            let ends = fiber::spawn_local(|| 7);
            let joins = s.spawn_local(|| ends.join_cancellable());
            fiber::yield_now();
            // It has ended, and has woken who joins; that one has not run since.
            s.cancel();
            assert_eq!(joins.join().unwrap().unwrap().unwrap(), 7);
        });
    });
}

/// A timeout of next to nothing around a read that completes at once: the cancel and the completion
/// meet, and the next read uses the same frame.
#[test]
fn a_cancel_that_meets_a_completion_hits_no_later_op() {
    meet(Builder::new(), 100_000);
    // Here a completion comes in at any time, also between its cancel and the cancel's way to the
    // kernel.
    let builder = Builder::new().without(Feature::DeferTaskrun).without(Feature::TaskrunFlag);
    meet(builder, 20_000);
}

fn meet(builder: Builder, rounds: usize) {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), [7; 4096]).unwrap();
    let (done, late) = (Cell::new(0), Cell::new(0));
    let run = builder.workers(1).run(|| {
        let (reader, writer) = pipe();
        let file = cringle::fs::File::open(file.path()).unwrap();
        let over = Cell::new(false);
        fiber::scope(|s| {
            // Never alone: every read goes through the ring.
            s.spawn_local(|| {
                while !over.get() {
                    fiber::yield_now();
                }
            });
            let read = |limit, byte: &mut u8| {
                // The same frame each time, with a deadline and without.
                time::timeout(limit, || {
                    let byte = std::slice::from_mut(byte);
                    std::os::unix::fs::FileExt::read_at(&file, byte, 9)
                })
            };
            for round in 0..rounds {
                let mut byte = 0;
                let limit = Duration::from_nanos(round as u64 % 64 * 100);
                match read(limit, &mut byte) {
                    Ok(count) => {
                        assert_eq!((count, byte), (1, 7));
                        done.set(done.get() + 1);
                    }
                    Err(error) => {
                        assert_elapsed(&error, limit);
                        assert_eq!(byte, 0, "it was given up");
                        late.set(late.get() + 1);
                    }
                }
                // Its cancel, were it still on its way, would hit this one.
                let mut byte = 0;
                assert_eq!(read(Duration::MAX, &mut byte).unwrap(), 1);
                if round % 16 == 0 {
                    // One that is sure to be in the kernel when its deadline passes, or its byte
                    // comes.
                    let write = s.spawn_local(|| (&writer).write_all(&[1]));
                    let first = time::timeout(limit, || (&reader).read(&mut [0]));
                    let second = match first {
                        Ok(count) => Ok(count),
                        Err(_) => (&reader).read(&mut [0]),
                    };
                    assert_eq!(second.unwrap(), 1);
                    write.join().unwrap().unwrap();
                }
            }
            over.set(true);
        });
    });
    run.unwrap();
    println!("{} were done, {} were late", done.get(), late.get());
    assert!(done.get() > 0 && late.get() > 0);
}

// ----- scopes and runtimes that are not each other's -----

/// A scope may be opened outside of `run`; a fiber that was spawned into it within is still one
/// that is left when the closure of `run` returns.
#[test]
fn the_end_of_run_cancels_the_fibers_of_scopes_from_outside_of_it() {
    fiber::scope(|s| {
        on_two_workers(|| {
            for worker in [0, 1] {
                spawn_on(worker, s, || assert_cancelled(&time::sleep(FOREVER).unwrap_err()));
            }
        });
        // One that was not started yet when it returned.
        on_two_workers(|| drop(s.spawn(|| assert_cancelled(&time::sleep(FOREVER).unwrap_err()))));
    });
    on_one_worker(|| {
        fiber::scope(|s| {
            fiber::unblock(|| {
                on_one_worker(|| {
                    s.spawn(|| assert_cancelled(&time::sleep(FOREVER).unwrap_err()));
                    s.spawn_local(|| assert_cancelled(&time::sleep(FOREVER).unwrap_err()));
                });
            });
            cancel::check().unwrap();
        });
    });
}

/// What is not `Send` would be handed to another thread at the end.
#[test]
fn a_local_exit_can_be_registered_in_the_runtime_of_its_scope_alone() {
    let refused = |register: &(dyn Fn() + Sync)| {
        let payload = catch_unwind(AssertUnwindSafe(register)).unwrap_err();
        let text = message(payload);
        assert!(text.contains("another `cringle::run`"), "{text}");
    };
    let ran = AtomicUsize::new(0);
    let count = || {
        ran.fetch_add(1, Ordering::SeqCst);
    };
    on_one_worker(|| {
        fiber::scope(|s| {
            s.on_exit_local(count);
            fiber::unblock(|| {
                on_one_worker(|| {
                    refused(&|| s.on_exit_local(count));
                    s.on_exit(count);
                });
            });
        });
        let tried: Result<(), io::Error> = fiber::try_scope(|s| {
            fiber::unblock(|| on_one_worker(|| refused(&|| s.on_exit_local(count))));
            s.on_exit_local(count);
            Ok(())
        });
        tried.unwrap();
    });
    fiber::scope(|s| on_one_worker(|| refused(&|| s.on_exit_local(count))));
    assert_eq!(ran.into_inner(), 3);
}
