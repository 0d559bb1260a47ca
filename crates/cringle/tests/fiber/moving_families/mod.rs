//! Families of several fibers that move between workers: as a whole, or not at all.

mod sharing;

use cringle::os::unix::net::UnixStream;
use cringle::runtime::{self, Balance, DriverChoice};
use cringle::sync::{Barrier, Mutex, mpsc};
use cringle::{Builder, fiber, time};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than a test may take.
const HOUR: Duration = Duration::from_secs(3600);

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Runs `f` on each driver, where families move at every chance. Where they cannot, because of the
/// machine or its libc, or without a ring, the test prints the reason and passes.
fn restless(f: impl Fn()) {
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        let builder = Builder::new().workers(3).balance(Balance::Restless).driver(driver);
        if let Err(e) = builder.run(&f) {
            println!("{driver:?}: skipped: {e}");
        }
    }
}

fn worker() -> usize {
    runtime::worker().unwrap()
}

/// Runs `f` in a family of its own, and returns its result. At least this number of fibers must
/// have moved meanwhile.
#[track_caller]
fn moving<T: Send + 'static>(at_least: u64, f: impl FnOnce() -> T + Send + 'static) -> T {
    let moves = || runtime::stats().unwrap().total().moves;
    let before = moves();
    let result = fiber::spawn(f).join().unwrap();
    let moved = moves() - before;
    assert!(moved >= at_least, "{moved} moves");
    result
}

/// The workers on which the calling fiber is in this number of turns.
fn workers_of_turns(turns: usize) -> HashSet<usize> {
    let turn = |_| {
        fiber::yield_now();
        worker()
    };
    (0..turns).map(turn).collect()
}

#[test]
fn ready_members_stay_together() {
    restless(|| {
        moving(200, || {
            let (sum, turn) = (Rc::new(Cell::new(0)), Rc::new(Cell::new((50, 0))));
            let locals: Vec<_> = (0..10)
                .map(|n| {
                    let (sum, turn) = (Rc::clone(&sum), Rc::clone(&turn));
                    fiber::spawn_local(move || {
                        for round in 0..50 {
                            sum.set(sum.get() + n);
                            COUNT.set(COUNT.get() + 1);
                            // All members are in a round on one worker.
                            let (of, place) = turn.get();
                            if of == round {
                                assert_eq!(place, worker());
                            }
                            turn.set((round, worker()));
                            fiber::yield_now();
                        }
                    })
                })
                .collect();
            locals.into_iter().for_each(|local| local.join().unwrap());
            assert_eq!((sum.get(), COUNT.get()), (45 * 50, 500));
        });
    });
}

#[test]
fn waiting_members_come_along() {
    restless(|| {
        moving(300, || {
            let (lock, barrier) = (Rc::new(Mutex::new(0)), Rc::new(Barrier::new(2)));
            let (there, from_there) = mpsc::channel();
            let (back, from_back) = mpsc::sync_channel(1);
            let echo = fiber::spawn_local(move || {
                while let Ok(value) = from_there.recv() {
                    back.send(value).unwrap();
                }
            });
            let (its_lock, its_barrier) = (Rc::clone(&lock), Rc::clone(&barrier));
            let other = fiber::spawn_local(move || {
                for _ in 0..100 {
                    let mut value = its_lock.lock().unwrap();
                    fiber::yield_now();
                    *value += 1;
                    drop(value);
                    its_barrier.wait();
                }
            });
            let parked = fiber::spawn_local(|| {
                fiber::park();
                worker()
            });
            for value in 0..100 {
                there.send(Rc::new(value)).unwrap();
                assert_eq!(*from_back.recv().unwrap(), value);
                *lock.lock().unwrap() += 1;
                barrier.wait();
            }
            drop(there);
            parked.thread().unpark();
            parked.join().unwrap();
            echo.join().unwrap();
            other.join().unwrap();
            assert_eq!(*lock.lock().unwrap(), 200);
        });
    });
}

/// The timers of members that sleep, or wait with a limit, fire in time on whatever worker.
#[test]
fn timers_of_waiting_members_come_along() {
    restless(|| {
        moving(100, || {
            let moves = || runtime::stats().unwrap().total().moves;
            let before = moves();
            // On a busy machine the workers have few turns while the timers of one round run.
            while moves() - before < 100 {
                let over = Rc::new(Cell::new(0));
                let begin = Instant::now();
                let locals: Vec<_> = (1..20)
                    .map(|n| {
                        let over = Rc::clone(&over);
                        fiber::spawn_local(move || {
                            let limit = Duration::from_millis(n);
                            match n % 3 {
                                0 => fiber::sleep(limit),
                                1 => fiber::park_timeout(limit),
                                _ => {
                                    let wait = || time::sleep(HOUR);
                                    let error = time::timeout(limit, wait).map(|_| ()).unwrap_err();
                                    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                                }
                            }
                            assert!(begin.elapsed() >= limit);
                            over.set(over.get() + 1);
                        })
                    })
                    .collect();
                while over.get() < 19 {
                    fiber::yield_now();
                }
                locals.into_iter().for_each(|local| local.join().unwrap());
            }
        });
    });
}

/// Unparks of threads and wake-ups of other families meet members that wait on the way.
#[test]
fn wake_ups_meet_members_on_the_way() {
    restless(|| {
        moving(500, || {
            let over = Rc::new(Cell::new(false));
            let its = Rc::clone(&over);
            // Keeps the family on the way.
            let mover = fiber::spawn_local(move || {
                while !its.get() {
                    fiber::yield_now();
                }
            });
            let (there, from_there) = mpsc::channel();
            let (back, from_back) = mpsc::channel();
            let far = fiber::spawn(move || {
                while let Ok(value) = from_there.recv() {
                    back.send(value).unwrap();
                }
            });
            for value in 0..300 {
                there.send(value).unwrap();
                assert_eq!(from_back.recv(), Ok(value));
            }
            drop(there);
            far.join().unwrap();
            let me = fiber::current();
            let rounds = std::sync::Arc::new(AtomicUsize::new(0));
            let theirs = std::sync::Arc::clone(&rounds);
            let thread = std::thread::spawn(move || {
                let mut last = usize::MAX;
                while theirs.load(Ordering::SeqCst) < 300 {
                    let now = theirs.load(Ordering::SeqCst);
                    if now != last {
                        last = now;
                        me.unpark();
                    }
                    std::thread::yield_now();
                }
            });
            for _ in 0..300 {
                fiber::park();
                rounds.fetch_add(1, Ordering::SeqCst);
            }
            over.set(true);
            mover.join().unwrap();
            fiber::unblock(|| thread.join().unwrap());
        });
    });
}

#[test]
fn cancels_reach_members_on_the_way() {
    for round in 0..10 {
        restless(|| {
            let unwound = AtomicUsize::new(0);
            fiber::scope(|s| {
                for n in 0..10 {
                    let unwound = &unwound;
                    s.spawn(move || {
                        struct Count<'a>(&'a AtomicUsize, Rc<()>);
                        impl Drop for Count<'_> {
                            fn drop(&mut self) {
                                assert!(Rc::strong_count(&self.1) <= 5);
                                self.0.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        let shared = Rc::new(());
                        fiber::scope(|s| {
                            for wait in 0..4 {
                                let count = Count(unwound, Rc::clone(&shared));
                                s.spawn_local(move || {
                                    let _count = count;
                                    loop {
                                        match (n + wait) % 4 {
                                            0 => fiber::yield_now(),
                                            1 => fiber::sleep(HOUR),
                                            2 => fiber::sleep(Duration::from_micros(50)),
                                            _ => fiber::park(),
                                        }
                                    }
                                });
                            }
                        });
                    });
                }
                workers_of_turns(round);
                s.cancel();
            });
            assert_eq!(unwound.into_inner(), 40);
        });
    }
}

/// Members that belong to no scope are cancelled when the closure of `run` returns.
#[test]
fn the_end_of_run_finds_members_on_the_way() {
    for round in 0..20 {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        fn watched(wait: fn()) {
            BEGUN.fetch_add(1, Ordering::SeqCst);
            let result = fiber::catch_unwind(|| {
                loop {
                    wait();
                }
            });
            ENDED.fetch_add(1, Ordering::SeqCst);
            let Err(payload): fiber::Result<()> = result else { unreachable!() };
            fiber::resume_unwind(payload)
        }
        restless(|| {
            for _ in 0..10 {
                fiber::spawn(|| {
                    drop(fiber::spawn_local(|| watched(|| fiber::sleep(HOUR))));
                    drop(fiber::spawn_local(|| watched(fiber::park)));
                    watched(fiber::yield_now);
                });
            }
            workers_of_turns(round);
        });
        assert_eq!(BEGUN.load(Ordering::SeqCst), ENDED.load(Ordering::SeqCst));
    }
}

#[test]
fn members_end_in_any_order() {
    restless(|| {
        for first in 0..4 {
            let is_left = first == 0;
            moving(if is_left { 0 } else { 20 }, move || {
                let dropped = Rc::new(Cell::new(0));
                let locals: Vec<_> = (0..4u32)
                    .map(|n| {
                        let dropped = Rc::clone(&dropped);
                        fiber::spawn_local(move || {
                            for _ in 0..5 + (n + first) % 4 * 5 {
                                fiber::yield_now();
                            }
                            dropped.set(dropped.get() + 1);
                            COUNT.set(COUNT.get() + 1);
                            let panics = AssertUnwindSafe(|| assert!(n % 2 == 0, "as it should"));
                            match std::panic::catch_unwind(panics) {
                                Ok(()) => Rc::clone(&dropped),
                                Err(payload) => std::panic::resume_unwind(payload),
                            }
                        })
                    })
                    .collect();
                if is_left {
                    // They outlive the founder, and own what nobody joins.
                    return;
                }
                let results: Vec<_> = locals.into_iter().map(|local| local.join()).collect();
                assert!(results.iter().zip(0..).all(|(result, n)| result.is_ok() == (n % 2 == 0)));
                drop(results);
                assert_eq!((dropped.get(), COUNT.get()), (4, 4));
                assert_eq!(Rc::strong_count(&dropped), 1);
            });
        }
    });
}

#[test]
fn combinators_work_while_they_move() {
    restless(|| {
        moving(100, || {
            let held = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..10 {
                let squares = fiber::par_map(0..20u64, 7, |n| {
                    fiber::sleep(Duration::from_micros(n * 10));
                    workers_of_turns(3);
                    held.borrow_mut().push(n);
                    n * n
                });
                assert!(squares.into_iter().eq((0..20).map(|n| n * n)));
                let squares = fiber::par_map_workers(0..20u64, 7, |n| {
                    workers_of_turns(3);
                    COUNT.set(COUNT.get() + 1);
                    n * n
                });
                assert!(squares.into_iter().eq((0..20).map(|n| n * n)));
                let (left, right) = fiber::join(
                    || workers_of_turns(5).len(),
                    || {
                        fiber::sleep(Duration::from_micros(100));
                        Rc::clone(&held)
                    },
                );
                assert!(left > 0 && Rc::ptr_eq(&right, &held));
            }
            assert_eq!(held.borrow().len(), 200);
        });
    });
}

/// An op of one member keeps the whole family where it is.
#[test]
fn an_op_of_a_member_keeps_the_family() {
    restless(|| {
        fiber::spawn(|| {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            let reads = fiber::spawn_local(move || near.read_exact(&mut [0]).unwrap());
            // It begins and then waits.
            workers_of_turns(2);
            assert_eq!(workers_of_turns(30), HashSet::from([worker()]));
            far.write_all(&[1]).unwrap();
            reads.join().unwrap();
            assert!(workers_of_turns(30).len() > 1, "it does not move again");
        })
        .join()
        .unwrap();
    });
}

#[test]
fn these_families_stay() {
    restless(|| {
        let stays = |hold: fn() -> Vec<fiber::JoinHandle<()>>, is_for_ever: bool| {
            let founder = move || {
                let held = hold();
                workers_of_turns(2);
                assert_eq!(workers_of_turns(20), HashSet::from([worker()]));
                held.iter().for_each(|local| local.thread().unpark());
                held.into_iter().for_each(|local| local.join().unwrap());
                assert_eq!(workers_of_turns(20).len() == 1, is_for_ever);
            };
            fiber::spawn(founder).join().unwrap();
        };
        let large = || (0..64).map(|_| fiber::spawn_local(fiber::park)).collect();
        stays(large, false);
        let pinned = || {
            let local = || {
                let _pin = fiber::pin();
                fiber::park();
            };
            vec![fiber::spawn_local(local)]
        };
        stays(pinned, false);
        let placed = || {
            let builder = fiber::Builder::new().worker(worker());
            vec![builder.spawn_local(fiber::park).unwrap()]
        };
        stays(placed, true);
    });
}

#[test]
fn a_member_begins_where_it_was_started() {
    restless(|| {
        moving(20, || {
            for _ in 0..40 {
                let here = worker();
                let (first, second) = (fiber::spawn_local(worker), fiber::spawn_local(worker));
                assert_eq!((first.join().unwrap(), second.join().unwrap()), (here, here));
                fiber::yield_now();
            }
        });
    });
}

/// A dump shows each member, and what the waiting ones wait for.
#[test]
fn dumps_show_members_that_move() {
    restless(|| {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        IS_OVER.store(false, Ordering::SeqCst);
        let family = fiber::spawn(|| {
            let local = |name: &str, f: fn()| {
                fiber::Builder::new().name(format!("member {name}")).spawn_local(f).unwrap()
            };
            let sleeper = local("sleeps", || fiber::park_timeout(HOUR));
            let parked = local("parks", fiber::park);
            while !IS_OVER.load(Ordering::SeqCst) {
                fiber::yield_now();
            }
            for local in [sleeper, parked] {
                local.thread().unpark();
                local.join().unwrap();
            }
        });
        workers_of_turns(20);
        loop {
            let dump = runtime::dump().unwrap();
            let text = dump.to_string();
            let members = dump.fibers.iter().filter_map(|fiber| fiber.who.name.as_deref());
            let members: Vec<_> = members.filter(|name| name.starts_with("member")).collect();
            assert!(members.len() <= 2, "{text}");
            if members.len() == 2 {
                assert!(text.contains("timer") && text.contains("unpark"), "{text}");
                break;
            }
            fiber::yield_now();
        }
        IS_OVER.store(true, Ordering::SeqCst);
        family.join().unwrap();
    });
}
