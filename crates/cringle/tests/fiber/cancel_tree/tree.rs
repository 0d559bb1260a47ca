//! Cancels of a tree of fibers on two workers.

use super::{FOREVER, LEAVES, LEVELS, Leaves, grow};
use cringle::{cancel, fiber, time};
use cringle_testing::tools::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
