//! Which families move, and when, with [`Balance::Moving`].

use super::{HOUR, worker};
use cringle::runtime::Balance;
use cringle::sync::mpsc;
use cringle::{Builder, fiber};
use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A fiber that worker 0 wakes again and again comes there, and its local fibers with it. (Later it
/// would come because its worker rests, so a try that the machine interrupts is repeated.)
#[test]
fn a_family_follows_its_wakers() {
    loop {
        let mut follows = false;
        match Builder::new().workers(2).balance(Balance::Moving).run(|| follows = follows_soon()) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => return println!("skipped: {e}"),
            result => result.unwrap(),
        }
        if follows {
            return;
        }
    }
}

/// Whether a family that worker 1 has started comes to worker 0, before worker 1 has measured for
/// how long it works.
fn follows_soon() -> bool {
    let (there, from_there) = mpsc::channel();
    let (back, from_back) = mpsc::channel();
    let has_begun = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&has_begun);
    let begin = Instant::now();
    let family = fiber::spawn(move || {
        its.store(true, Ordering::SeqCst);
        let local = fiber::spawn_local(|| fiber::park_timeout(HOUR));
        while from_there.recv().is_ok() {
            back.send(worker()).unwrap();
        }
        local.thread().unpark();
        local.join().unwrap();
    });
    // Worker 1 starts it while this one is blocked.
    while !has_begun.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let mut follows = false;
    while !follows && begin.elapsed() < Duration::from_millis(30) {
        there.send(()).unwrap();
        follows = from_back.recv() == Ok(0);
    }
    drop(there);
    family.join().unwrap();
    follows && begin.elapsed() < Duration::from_millis(40)
}

/// Families compute on one worker, and the other one sleeps.
#[test]
fn idle_workers_take_families_from_a_busy_one() {
    match Builder::new().workers(2).balance(Balance::Moving).run(|| {
        let seen = std::sync::Mutex::new(HashSet::new());
        fiber::scope(|s| {
            for _ in 0..5 {
                s.spawn(|| {
                    let rounds = Rc::new(Cell::new(0));
                    let parked = fiber::spawn_local(fiber::park);
                    fiber::scope(|s| {
                        for _ in 0..2 {
                            let rounds = Rc::clone(&rounds);
                            let seen = &seen;
                            s.spawn_local(move || {
                                while seen.lock().unwrap().len() < 2 {
                                    let busy = Instant::now();
                                    while busy.elapsed() < Duration::from_millis(1) {
                                        std::hint::spin_loop();
                                    }
                                    rounds.set(rounds.get() + 1);
                                    fiber::yield_now();
                                    seen.lock().unwrap().insert(worker());
                                }
                            });
                        }
                    });
                    parked.thread().unpark();
                    parked.join().unwrap();
                });
            }
        });
    }) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => println!("skipped: {e}"),
        result => result.unwrap(),
    }
}
