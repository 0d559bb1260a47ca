//! Locks of `detect::Mutex`.

use super::{assert_names, assert_one, lines_with, named, output, place, reports, shared};
use cringle::detect::Mutex;
use cringle::{Builder, fiber, sync};
use cringle_testing::child;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

fn at(comment: &str) -> String {
    place("locks.rs", include_str!("locks.rs"), comment)
}

#[test]
fn lock_over_a_wait_is_reported_once() {
    let body = || {
        static LOCK: Mutex<u32> = Mutex::new(0);
        let hold = || {
            let _guard = LOCK.lock().unwrap(); // lock
            fiber::unblock(|| ()); // wait in a lock
        };
        shared().run(|| (0..3).for_each(|_| hold())).unwrap();
        // The same place in another run of the process.
        shared().run(hold).unwrap();
    };
    if let Some(reports) = reports("lock_over_a_wait_is_reported_once", body) {
        let (taken, waited) = (at("lock"), at("wait in a lock"));
        assert_one(&reports, &["'main'", "`detect::Mutex`", &taken, "of the pool at", &waited]);
        assert!(reports[0].contains("cringle::sync::Mutex"), "{reports:?}");
    }
}

#[test]
fn locks_that_are_released_before_the_wait_are_not_reported() {
    let body = || {
        static LOCK: Mutex<u32> = Mutex::new(0);
        static OURS: sync::Mutex<u32> = sync::Mutex::new(0);
        let lock = || {
            *LOCK.lock().unwrap() += 1;
            fiber::yield_now();
            drop(LOCK.try_lock());
            fiber::yield_now();
            let _ours = OURS.lock().unwrap();
            fiber::yield_now();
            // Not on a fiber.
            fiber::unblock(|| drop(LOCK.lock().unwrap()));
        };
        let run = move || {
            fiber::scope(|s| (0..4).for_each(|_| drop(s.spawn(lock))));
            // A panic releases the lock, and poisons it.
            let panics = || {
                let _guard = LOCK.lock().unwrap();
                panic!("on purpose");
            };
            assert!(fiber::spawn(panics).join().is_err());
            assert!(LOCK.is_poisoned() && LOCK.lock().is_err() && LOCK.try_lock().is_err());
            fiber::yield_now();
            LOCK.clear_poison();
        };
        Builder::new().workers(2).run(run).unwrap();
    };
    let name = "locks_that_are_released_before_the_wait_are_not_reported";
    if let Some(reports) = reports(name, body) {
        assert_eq!(reports, [""; 0]);
    }
}

/// The first fiber holds the lock in a wait, and the second one would block the worker.
fn deadlock() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let run = || {
        let hold = || {
            let _guard = LOCK.lock().unwrap(); // held
            fiber::park(); // wait of the holder
        };
        let _holder = named("holder").spawn(hold).unwrap();
        fiber::yield_now();
        let block = || drop(LOCK.lock()); // blocks
        let _blocked = named("blocked").spawn(block).unwrap();
        fiber::park();
    };
    shared().run(run).unwrap();
}

#[test]
fn lock_that_hangs_the_worker_is_reported_before() {
    let name = "lock_that_hangs_the_worker_is_reported_before";
    let Some(mut command) = child::command(name) else { return deadlock() };
    command.env_remove("CRINGLE_DETECT").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut next = || lines.find(|line| line.as_ref().unwrap().contains("hazard")).unwrap();
    let (first, second) = (next().unwrap(), next().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_names(&first, &["'holder'", &at("held"), "an unpark at", &at("wait of the holder")]);
    let texts = ["fiber 'blocked'", "blocks worker 0 for ever at", &at("blocks"), "'holder'"];
    assert_names(&second, &texts);
    assert_names(&second, &[&at("held"), "an unpark at", &at("wait of the holder")]);
}

#[test]
fn fiber_that_locks_twice_is_reported() {
    let name = "fiber_that_locks_twice_is_reported";
    let body = || {
        let lock = Mutex::new(0);
        let run = || {
            let _first = lock.lock().unwrap(); // once
            drop(lock.lock()); // twice
        };
        shared().run(run).unwrap();
    };
    let Some(output) = output(name, |it| it.env("CRINGLE_DETECT", "abort"), body) else { return };
    let printed = child::transcript(&output);
    assert!(!output.status.success(), "{printed}");
    let texts = ["fiber 'main'", &at("twice"), "holds itself since", &at("once")];
    assert_one(&lines_with(&printed, "hazard:"), &texts);
}

/// The fiber has held the lock before, but a thread holds it now, and releases it.
#[test]
fn lock_that_thread_releases_is_no_deadlock() {
    let body = || {
        static LOCK: Mutex<u32> = Mutex::new(0);
        static LOCKS: AtomicBool = AtomicBool::new(false);
        let hold = || {
            let _guard = LOCK.lock().unwrap();
            while !LOCKS.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            (0..100).for_each(|_| std::thread::yield_now());
        };
        let run = || {
            drop(LOCK.lock());
            let thread = std::thread::spawn(hold);
            while LOCK.try_lock().is_ok() {}
            LOCKS.store(true, Ordering::Relaxed);
            drop(LOCK.lock());
            thread.join().unwrap();
        };
        shared().run(run).unwrap();
    };
    if let Some(reports) = reports("lock_that_thread_releases_is_no_deadlock", body) {
        assert_eq!(reports, [""; 0]);
    }
}
