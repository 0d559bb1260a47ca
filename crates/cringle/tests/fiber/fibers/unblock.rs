//! `unblock`.

use cringle::fiber;
use cringle_testing::tools::{on_one_worker, on_two_workers};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Barrier, mpsc};

#[test]
fn unblock_runs_on_another_thread_and_can_borrow() {
    let text = String::from("borrowed");
    let mut result = None;
    cringle::run(|| {
        fiber::unblock(|| result = Some((text.len(), std::thread::current().id())));
    });
    let (length, thread) = result.unwrap();
    assert_eq!(length, 8);
    assert_ne!(thread, std::thread::current().id());
}

#[test]
fn panic_in_unblock_reaches_its_caller() {
    cringle::run(|| {
        let caught = catch_unwind(|| fiber::unblock(|| -> () { resume_unwind(Box::new(9)) }));
        assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 9);
        assert_eq!(fiber::unblock(|| 1), 1);
    });
}

/// All closures wait at one barrier, so each needs a thread.
#[test]
fn unblocked_closures_can_wait_for_each_other() {
    const CLOSURES: usize = 64;
    let barrier = Barrier::new(CLOSURES);
    on_two_workers(|| {
        for _ in 0..3 {
            fiber::scope(|s| {
                for _ in 0..CLOSURES {
                    s.spawn(|| fiber::unblock(|| barrier.wait()));
                }
            });
        }
    });
}

#[test]
fn other_fibers_run_while_one_is_in_unblock() {
    on_one_worker(|| {
        let (sender, receiver) = mpsc::channel();
        fiber::scope(|s| {
            let blocked = s.spawn_local(|| fiber::unblock(move || receiver.recv().unwrap()));
            fiber::yield_now();
            sender.send(11).unwrap();
            assert_eq!(blocked.join().unwrap(), 11);
        });
    });
}

#[test]
fn run_can_return_while_unblock_returns() {
    for _ in 0..100 {
        on_one_worker(|| {
            let main = fiber::current();
            fiber::spawn_local(move || fiber::unblock(move || main.unpark()));
            fiber::park();
            // `unblock` may not have returned yet when `run` ends.
        });
    }
}
