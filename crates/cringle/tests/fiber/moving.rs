//! Fibers that move between workers. `Balance::Restless` moves them at every chance.

use cringle::block::FixedFile;
use cringle::fs::File;
use cringle::runtime::{self, Balance, ThreadLocals};
use cringle::sync::mpsc;
use cringle::{Builder, fiber, time};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than a test may take.
const HOUR: Duration = Duration::from_secs(3600);

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
    static LAZY: Rc<Cell<u32>> = Rc::new(Cell::new(0));
}

/// Runs `f` where fibers move. Where they cannot, because of the machine or its libc, the test
/// prints the reason and passes.
fn with(balance: Balance, workers: usize, f: impl FnOnce()) {
    match Builder::new().workers(workers).balance(balance).run(f) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => println!("skipped: {e}"),
        result => result.unwrap(),
    }
}

fn restless(f: impl FnOnce()) {
    with(Balance::Restless, 3, f);
}

fn worker() -> usize {
    runtime::worker().unwrap()
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
fn a_fiber_goes_on_on_other_workers() {
    restless(|| {
        let seen = fiber::spawn(|| workers_of_turns(20)).join().unwrap();
        assert_eq!(seen.len(), 3, "{seen:?}");
        let moves = runtime::stats().unwrap().total().moves;
        assert!(moves >= 20, "{moves}");
    });
}

#[test]
fn thread_locals_and_local_values_follow() {
    restless(|| {
        let fibers: Vec<_> = (0..100)
            .map(|n| {
                fiber::spawn(move || {
                    let (mine, thread) = (LAZY.with(Rc::clone), std::thread::current().id());
                    let held = RefCell::new(Vec::new());
                    let mut borrowed = held.borrow_mut();
                    for turn in 0..n {
                        COUNT.set(COUNT.get() + 1);
                        mine.set(mine.get() + 1);
                        borrowed.push(turn);
                        fiber::yield_now();
                        assert_eq!(std::thread::current().id(), thread);
                    }
                    assert_eq!(LAZY.with(|lazy| lazy.get()), n);
                    assert!(borrowed.iter().copied().eq(0..n));
                    COUNT.get()
                })
            })
            .collect();
        let sum: u32 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        assert_eq!(sum, 4950);
    });
}

#[test]
fn these_stay() {
    restless(|| {
        let stays = || assert_eq!(workers_of_turns(20), HashSet::from([worker()]));
        // The closure of `run`.
        stays();
        fiber::Builder::new().worker(2).spawn(stays).unwrap().join().unwrap();
        let holder = |hold: fn() -> Box<dyn std::any::Any>| {
            fiber::spawn(move || {
                let held = hold();
                stays();
                drop(held);
                assert!(workers_of_turns(20).len() > 1, "it does not move again");
            })
            .join()
            .unwrap();
        };
        holder(|| Box::new(fiber::pin()));
        holder(|| Box::new((fiber::pin(), fiber::pin())));
        holder(|| match FixedFile::register(&File::open("/proc/self/exe").unwrap()) {
            Ok(file) => Box::new(file),
            // Without a ring there is nothing to register with.
            Err(_) => Box::new(fiber::pin()),
        });
    });
}

#[test]
fn messages_reach_fibers_that_move() {
    restless(|| {
        fiber::scope(|s| {
            for n in 0..20u64 {
                let (there, from_there) = mpsc::channel();
                let (back, from_back) = mpsc::sync_channel(1);
                s.spawn(move || {
                    while let Ok(value) = from_there.recv() {
                        back.send(value + n).unwrap();
                    }
                });
                s.spawn(move || {
                    for value in 0..200 {
                        there.send(value).unwrap();
                        assert_eq!(from_back.recv().unwrap(), value + n);
                    }
                });
            }
        });
    });
}

#[test]
fn unparks_from_threads_reach_fibers_that_move() {
    restless(|| {
        let turns = AtomicUsize::new(0);
        fiber::scope(|s| {
            let parked = s.spawn(|| {
                while turns.load(Ordering::SeqCst) < 500 {
                    fiber::park();
                    turns.fetch_add(1, Ordering::SeqCst);
                    fiber::yield_now();
                }
            });
            let thread = parked.thread().clone();
            let unparks = || {
                let mut last = usize::MAX;
                while turns.load(Ordering::SeqCst) < 500 {
                    let now = turns.load(Ordering::SeqCst);
                    if now != last {
                        last = now;
                        thread.unpark();
                    }
                    std::thread::yield_now();
                }
            };
            fiber::unblock(unparks);
            thread.unpark();
        });
    });
}

#[test]
fn deadlines_and_timers_follow() {
    restless(|| {
        fiber::scope(|s| {
            for n in 0..50u64 {
                s.spawn(move || {
                    let limit = Duration::from_millis(5 + n % 7);
                    let begin = Instant::now();
                    let nested = time::timeout(HOUR, || {
                        time::timeout(limit, || {
                            loop {
                                time::sleep(Duration::from_micros(300))?;
                                workers_of_turns(3);
                            }
                        })
                    });
                    let error: io::Error = match nested {
                        Ok(()) => unreachable!("it loops for ever"),
                        Err(e) => e,
                    };
                    assert!(begin.elapsed() >= limit);
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
                    // Neither deadline is left behind.
                    time::timeout(HOUR, || time::sleep(Duration::from_millis(1))).unwrap();
                });
            }
        });
    });
}

#[test]
fn cancels_reach_fibers_that_move() {
    for round in 0..20 {
        restless(|| {
            let unwound = AtomicUsize::new(0);
            fiber::scope(|s| {
                for n in 0..30 {
                    let unwound = &unwound;
                    s.spawn(move || {
                        struct Count<'a>(&'a AtomicUsize);
                        impl Drop for Count<'_> {
                            fn drop(&mut self) {
                                self.0.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        let _count = Count(unwound);
                        loop {
                            match n % 3 {
                                0 => fiber::yield_now(),
                                1 => fiber::sleep(Duration::from_micros(50)),
                                _ => fiber::scope(|s| drop(s.spawn(fiber::yield_now))),
                            }
                        }
                    });
                }
                workers_of_turns(round);
                s.cancel();
            });
            assert_eq!(unwound.into_inner(), 30);
        });
    }
}

/// Fibers that belong to no scope are cancelled when the closure of `run` returns.
#[test]
fn the_end_of_run_finds_fibers_that_move() {
    for round in 0..50 {
        let ended = std::sync::Arc::new(AtomicUsize::new(0));
        let begun = std::sync::Arc::new(AtomicUsize::new(0));
        restless(|| {
            for _ in 0..20 {
                let (begun, ended) = (begun.clone(), ended.clone());
                fiber::spawn(move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let result = fiber::catch_unwind(|| {
                        loop {
                            fiber::yield_now();
                        }
                    });
                    ended.fetch_add(1, Ordering::SeqCst);
                    let Err(payload): fiber::Result<()> = result else { unreachable!() };
                    fiber::resume_unwind(payload)
                });
            }
            workers_of_turns(round);
        });
        assert_eq!(begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
    }
}

#[test]
fn files_and_sockets_work_from_everywhere() {
    restless(|| {
        let dir = std::env::temp_dir().join(format!("cringle-moving-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        fiber::scope(|s| {
            for n in 0..20u8 {
                let path = dir.join(n.to_string());
                s.spawn(move || {
                    let mut file = File::create(&path).unwrap();
                    for part in 0..20u8 {
                        file.write_all(&[n ^ part; 700]).unwrap();
                        fiber::yield_now();
                    }
                    drop(file);
                    let mut bytes = Vec::new();
                    File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
                    for (part, bytes) in (0..20u8).zip(bytes.chunks(700)) {
                        assert!(bytes.len() == 700 && bytes.iter().all(|&byte| byte == n ^ part));
                    }
                });
            }
            let listener = cringle::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            s.spawn(move || {
                for _ in 0..20 {
                    let (mut stream, _) = listener.accept().unwrap();
                    fiber::spawn(move || io::copy(&mut stream.try_clone().unwrap(), &mut stream));
                }
            });
            for n in 0..20u8 {
                s.spawn(move || {
                    let mut stream = cringle::net::TcpStream::connect(addr).unwrap();
                    for part in 0..50u8 {
                        stream.write_all(&[n, part]).unwrap();
                        let mut answer = [0; 2];
                        stream.read_exact(&mut answer).unwrap();
                        assert_eq!(answer, [n, part]);
                    }
                });
            }
        });
        std::fs::remove_dir_all(&dir).unwrap();
    });
}

/// Blocks and stacks of fibers that end elsewhere come home.
#[test]
fn ended_fibers_leave_nothing_elsewhere() {
    restless(|| {
        for _ in 0..50 {
            fiber::scope(|s| {
                for _ in 0..100 {
                    s.spawn(|| workers_of_turns(2));
                }
            });
        }
        let stats = runtime::stats().unwrap();
        for worker in &stats.workers {
            assert!(worker.most_stacks <= 400, "{stats}");
        }
    });
}

/// All fibers begin on one worker, and the others sleep.
#[test]
fn idle_workers_take_from_a_busy_one() {
    with(Balance::Moving, 2, || {
        let seen = Mutex::new(HashSet::new());
        fiber::scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    while seen.lock().unwrap().len() < 2 {
                        let busy = Instant::now();
                        while busy.elapsed() < Duration::from_millis(1) {
                            std::hint::spin_loop();
                        }
                        fiber::yield_now();
                        seen.lock().unwrap().insert(worker());
                    }
                });
            }
        });
    });
}

/// A fiber computes, and does not come to those behind it.
#[test]
fn a_fiber_behind_a_long_computation_goes_elsewhere() {
    with(Balance::Moving, 2, || {
        let over = AtomicBool::new(false);
        let ran = AtomicUsize::new(0);
        fiber::scope(|s| {
            // In each round it computes until another fiber has run.
            s.spawn(|| {
                for round in 0..5 {
                    while ran.load(Ordering::SeqCst) < round {
                        std::hint::spin_loop();
                    }
                    let busy = Instant::now();
                    while busy.elapsed() < Duration::from_millis(2) {
                        std::hint::spin_loop();
                    }
                    fiber::yield_now();
                }
                over.store(true, Ordering::SeqCst);
            });
            for _ in 0..3 {
                s.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        ran.fetch_add(1, Ordering::SeqCst);
                        fiber::yield_now();
                    }
                });
            }
        });
    });
}

#[test]
fn shared_thread_locals_are_refused() {
    let builder = Builder::new().balance(Balance::Moving).thread_locals(ThreadLocals::Shared);
    let error = builder.run(|| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("thread-locals of their own"), "{error}");
}

/// The call is made by a fiber that is placed on the worker of the family, and joins it.
#[test]
fn a_family_moves_again_after_its_on_exit_local() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let run = cringle::Builder::new().workers(2).balance(cringle::runtime::Balance::Restless);
    let has_moved = run.run(|| {
        let (report, reported) = cringle::sync::oneshot::channel();
        cringle::fiber::scope(|s| {
            s.spawn(move || {
                s.on_exit_local(|| ());
                drop(cringle::fiber::spawn_local(move || {
                    while !IS_OVER.load(SeqCst) {
                        cringle::fiber::yield_now();
                    }
                    let worker = cringle::runtime::worker();
                    let has_moved = (0..100).any(|_| {
                        cringle::fiber::yield_now();
                        cringle::runtime::worker() != worker
                    });
                    report.send(has_moved).unwrap();
                }));
            });
        });
        IS_OVER.store(true, SeqCst);
        reported.recv().unwrap()
    });
    match run_or_skip(has_moved) {
        Some(has_moved) => assert!(has_moved),
        None => println!("skipped: no private thread-locals"),
    }
}

fn run_or_skip<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Err(e) if e.kind() == std::io::ErrorKind::Unsupported => None,
        result => Some(result.unwrap()),
    }
}

/// Each of the fibers is in each dump, once. (A worker may depart with one at the very moment at
/// which a dump begins, so a few dumps may miss it.)
#[test]
fn dumps_show_fibers_that_move() {
    restless(|| {
        let over = AtomicBool::new(false);
        fiber::scope(|s| {
            for n in 0..20 {
                let builder = fiber::Builder::new().name(format!("mover {n}"));
                let moves = || {
                    while !over.load(Ordering::SeqCst) {
                        fiber::yield_now();
                    }
                };
                builder.spawn_scoped(s, moves).unwrap();
            }
            workers_of_turns(10);
            let mut complete = 0;
            for _ in 0..50 {
                let dump = runtime::dump().unwrap();
                let names: Vec<_> =
                    dump.fibers.iter().filter_map(|fiber| fiber.who.name.as_deref()).collect();
                let movers = names.iter().filter(|name| name.starts_with("mover"));
                let unique: HashSet<_> = movers.clone().collect();
                assert_eq!(unique.len(), movers.count(), "a fiber is shown twice: {dump}");
                complete += usize::from(unique.len() == 20);
                fiber::yield_now();
            }
            assert!(complete > 0, "no dump shows every fiber");
            over.store(true, Ordering::SeqCst);
        });
    });
}
