//! A cancel reaches every scope, deadline and fiber below the cancelled one and no other, from any
//! thread; it is sticky, and stops at protected calls.

use crate::tools::*;
use cringle::runtime::Feature;
use cringle::{Builder, cancel, fiber, time};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const FOREVER: Duration = Duration::MAX;

// ----- a tree of fibers on two workers -----

const LEVELS: u32 = 3;
const LEAVES: usize = 2usize.pow(LEVELS);

/// Counts the leaves of a tree that wait and that were cancelled.
struct Leaves {
    owner: fiber::Thread,
    begun: AtomicUsize,
    cancelled: AtomicUsize,
}

impl Leaves {
    fn new() -> Leaves {
        let (begun, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Leaves { owner: fiber::current(), begun, cancelled }
    }

    fn wait_until_all_have_begun(&self) {
        while self.begun.load(Ordering::SeqCst) < LEAVES {
            fiber::park();
        }
    }

    /// Waits until it is cancelled; `number` selects the call.
    fn wait(&self, number: usize) {
        let (reader, _writer) = pipe();
        if self.begun.fetch_add(1, Ordering::SeqCst) + 1 == LEAVES {
            self.owner.unpark();
        }
        match number % 4 {
            0 => assert_cancelled(&time::sleep(FOREVER).unwrap_err()),
            1 => assert_cancelled(&(&reader).read(&mut [0]).unwrap_err()),
            2 => assert_unwound(catch_unwind(park_for_ever)),
            _ => assert_unwound(catch_unwind(|| drop(fiber::spawn(fiber::park).join()))),
        }
        assert_cancelled(&cancel::check().unwrap_err());
        self.cancelled.fetch_add(1, Ordering::SeqCst);
    }
}

/// Spawns two fibers, one on each worker; each opens a scope with two more, and so on. The last
/// level calls `leaf` with its number.
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

fn park_for_ever() {
    loop {
        fiber::park();
    }
}

/// Cancels a tree, and asserts that all of it is cancelled and the tree beside it is not.
fn assert_tree_cancelled_by(cancel: impl FnOnce(&fiber::Scope<'_, '_>)) {
    on_two_workers(|| {
        let over = AtomicBool::new(false);
        let runs = |_: usize| {
            while !over.load(Ordering::SeqCst) {
                time::sleep(Duration::from_micros(50)).unwrap();
            }
            cancel::check().unwrap();
        };
        let leaves = Leaves::new();
        let waits = |number| leaves.wait(number);
        fiber::scope(|s| {
            grow(s, LEVELS, 0, &runs);
            fiber::scope(|s| {
                grow(s, LEVELS, 0, &waits);
                leaves.wait_until_all_have_begun();
                cancel(s);
            });
            assert_eq!(leaves.cancelled.load(Ordering::SeqCst), LEAVES);
            cancel::check().unwrap();
            over.store(true, Ordering::SeqCst);
        });
    });
}

#[test]
fn owner_of_scope_cancels_the_tree_below() {
    (0..20).for_each(|_| assert_tree_cancelled_by(|s| s.cancel()));
}

#[test]
fn fiber_of_scope_cancels_the_tree_and_itself() {
    for worker in [0, 1] {
        on_two_workers(|| {
            let leaves = Leaves::new();
            let waits = |number| leaves.wait(number);
            fiber::scope(|s| {
                grow(s, LEVELS, 0, &waits);
                leaves.wait_until_all_have_begun();
                let child = spawn_on(worker, s, || {
                    s.cancel();
                    s.cancel();
                    // The cancel may arrive later, by message.
                    time::sleep(FOREVER)
                });
                assert_cancelled(&child.join().unwrap().unwrap_err());
            });
            assert_eq!(leaves.cancelled.load(Ordering::SeqCst), LEAVES);
            cancel::check().unwrap();
        });
    }
}

#[test]
fn fiber_outside_of_scope_cancels_the_tree() {
    for worker in [0, 1] {
        assert_tree_cancelled_by(|s| {
            let cancel = || fiber::scope(|t| spawn_on(worker, t, || s.cancel()).join().unwrap());
            // The canceller's scope is opened below the tree's owner, so it must be protected.
            fiber::protect(cancel);
        });
    }
}

#[test]
fn foreign_thread_cancels_the_tree() {
    // From `unblock`, and from a thread of the program.
    assert_tree_cancelled_by(|s| fiber::unblock(|| s.cancel()));
    assert_tree_cancelled_by(|s| std::thread::scope(|t| drop(t.spawn(|| s.cancel()))));
}

#[test]
fn worker_of_another_runtime_cancels_the_tree() {
    assert_tree_cancelled_by(|s| fiber::unblock(|| on_one_worker(|| s.cancel())));
}

#[test]
fn deadline_cancels_the_tree() {
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

/// Each fiber may be unstarted, starting, waiting or finished when the cancel arrives.
#[test]
fn tree_can_be_cancelled_while_it_grows() {
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

/// A cancel is passed from fiber to fiber without recursion.
#[test]
fn cancel_of_a_deep_tree_does_not_recurse() {
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

// ----- a cancel is sticky -----

#[test]
fn fibers_spawned_after_a_cancel_start_cancelled() {
    on_two_workers(|| {
        fiber::scope(|s| {
            s.cancel();
            s.cancel();
            assert!(s.is_cancelled());
            let check = || assert_cancelled(&cancel::check().unwrap_err());
            check();
            // In the scope, in a scope below it, and in a scope that its fiber opens.
            for worker in [0, 1] {
                spawn_on(worker, s, check).join().unwrap();
                fiber::scope(|t| {
                    assert!(t.is_cancelled());
                    spawn_on(worker, t, check);
                    spawn_on(worker, t, || fiber::scope(|u| drop(u.spawn_local(check))));
                });
            }
            // A deadline neither lifts nor hides the cancel.
            let error = time::timeout(Duration::from_secs(60), || time::sleep(FOREVER));
            assert_cancelled(&error.unwrap_err());
            // Detached fibers do not belong to the scope.
            fiber::protect(|| fiber::spawn(|| cancel::check().unwrap()).join().unwrap());
        });
        cancel::check().unwrap();
    });
}

#[test]
fn cancel_of_an_ended_scope_cancels_nothing() {
    on_two_workers(|| {
        for _ in 0..100 {
            fiber::scope(|s| {
                let late = s.spawn(|| {
                    fiber::scope(|t| {
                        // The message may arrive when the owner is in another scope or has ended.
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
fn protected_call_and_its_scopes_are_not_cancelled() {
    on_two_workers(|| {
        let (go, all) = (AtomicBool::new(false), AtomicUsize::new(0));
        let runs = |_: usize| {
            while !go.load(Ordering::SeqCst) {
                time::sleep(Duration::from_micros(100)).unwrap();
            }
            cancel::check().unwrap();
            all.fetch_add(1, Ordering::SeqCst);
        };
        fiber::scope(|s| {
            let protected = s.spawn_local(|| {
                fiber::protect(|| {
                    // The cancel arrives while the first scope is open and before the second is.
                    fiber::scope(|t| grow(t, LEVELS, 0, &runs));
                    fiber::scope(|t| grow(t, LEVELS, 0, &runs));
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
fn deadline_and_scope_in_protected_call_still_cancel() {
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
                // Both have ended, and the cancel outside does not reach here.
                cancel::check().unwrap();
                // A protected call inside of a deadline.
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

/// An acceptor's loop that logs each error in a protected call with a deadline, and retries.
#[test]
fn loop_with_protected_logging_is_unwound_too() {
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
            assert_eq!(refusals.get(), 1 + 1000, "one cancelled read, then the refusals");
        });
    });
}

/// Each deadline has its own count, so a fiber that survives many deadlines is not unwound.
#[test]
fn count_of_refusals_ends_with_the_deadline() {
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

// ----- a completed wait wins over a cancel -----

#[test]
fn completed_wait_wins_over_later_cancel() {
    on_one_worker(|| {
        // The fiber waits; then its wait completes; then it is cancelled; then it resumes.
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
            // The fiber has ended and has woken the joiner, which has not resumed yet.
            s.cancel();
            assert_eq!(joins.join().unwrap().unwrap().unwrap(), 7);
        });
    });
}

/// A very short timeout around a read that completes at once: the cancel races with the completion,
/// and the next read uses the same frame.
#[test]
fn cancel_that_races_completion_hits_no_later_op() {
    race(Builder::new(), 100_000);
    // Here a completion can arrive at any time, even before the queued cancel reaches the kernel.
    let builder = Builder::new().without(Feature::DeferTaskrun).without(Feature::TaskrunFlag);
    race(builder, 20_000);
}

fn race(builder: Builder, rounds: usize) {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), [7; 4096]).unwrap();
    let (completed, cancelled) = (Cell::new(0), Cell::new(0));
    let run = builder.workers(1).run(|| {
        let (reader, writer) = pipe();
        let file = cringle::fs::File::open(file.path()).unwrap();
        let over = Cell::new(false);
        fiber::scope(|s| {
            // Another fiber is always ready, so every read goes through the ring.
            s.spawn_local(|| {
                while !over.get() {
                    fiber::yield_now();
                }
            });
            let read = |limit, byte: &mut u8| {
                // Each call uses the same frame.
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
                        completed.set(completed.get() + 1);
                    }
                    Err(error) => {
                        assert_elapsed(&error, limit);
                        assert_eq!(byte, 0, "a cancelled read writes nothing");
                        cancelled.set(cancelled.get() + 1);
                    }
                }
                // If the cancel were still queued, it would hit this read.
                let mut byte = 0;
                assert_eq!(read(Duration::MAX, &mut byte).unwrap(), 1);
                if round % 16 == 0 {
                    // This read waits in the kernel until its deadline passes or its byte arrives.
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
    println!("{} completed, {} were cancelled", completed.get(), cancelled.get());
    assert!(completed.get() > 0 && cancelled.get() > 0);
}

// ----- scopes of another runtime -----

/// A scope may be opened outside of `run`. A fiber that is spawned into it inside of `run` is still
/// cancelled when the closure of `run` returns.
#[test]
fn end_of_run_cancels_fibers_of_outer_scopes() {
    fiber::scope(|s| {
        on_two_workers(|| {
            for worker in [0, 1] {
                spawn_on(worker, s, || assert_cancelled(&time::sleep(FOREVER).unwrap_err()));
            }
        });
        // A fiber that has not started when the closure returns.
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

/// The scope's thread would otherwise call a closure that is not `Send`.
#[test]
fn local_exit_is_refused_from_another_runtime() {
    let assert_refused = |register: &(dyn Fn() + Sync)| {
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
                    assert_refused(&|| s.on_exit_local(count));
                    s.on_exit(count);
                });
            });
        });
        let tried: Result<(), io::Error> = fiber::try_scope(|s| {
            fiber::unblock(|| on_one_worker(|| assert_refused(&|| s.on_exit_local(count))));
            s.on_exit_local(count);
            Ok(())
        });
        tried.unwrap();
    });
    fiber::scope(|s| on_one_worker(|| assert_refused(&|| s.on_exit_local(count))));
    assert_eq!(ran.into_inner(), 3);
}
