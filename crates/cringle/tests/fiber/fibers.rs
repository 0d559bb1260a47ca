//! Fibers behave as std's threads do.

use crate::child;
use crate::tools::{on_one_worker, on_two_workers};
use cringle::{Builder, fiber, runtime};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

// ----- joining -----

#[test]
fn join_returns_the_value() {
    cringle::run(|| {
        assert_eq!(fiber::spawn(|| "sent").join().unwrap(), "sent");
        assert_eq!(*fiber::spawn_local(|| Rc::new(7)).join().unwrap(), 7);
    });
}

#[test]
fn join_returns_the_payload_of_a_panic() {
    cringle::run(|| {
        let result = fiber::spawn(|| -> () { panic_any(17) }).join();
        assert_eq!(*result.unwrap_err().downcast::<i32>().unwrap(), 17);
        let n = std::hint::black_box(3);
        let result = fiber::spawn_local(move || -> () { panic!("n = {n}") }).join();
        assert_eq!(*result.unwrap_err().downcast::<String>().unwrap(), "n = 3");
    });
}

#[test]
fn unjoined_panic_ends_only_its_fiber() {
    on_one_worker(|| {
        drop(fiber::spawn_local(|| resume_unwind(Box::new(1))));
        assert_eq!(fiber::spawn_local(|| 2).join().unwrap(), 2);
    });
}

#[test]
fn thousand_fibers_run_on_two_workers() {
    let count = AtomicUsize::new(0);
    on_two_workers(|| {
        fiber::scope(|s| {
            for _ in 0..1000 {
                s.spawn(|| {
                    fiber::yield_now();
                    count.fetch_add(1, Ordering::Relaxed)
                });
            }
        });
    });
    assert_eq!(count.into_inner(), 1000);
}

#[test]
fn fiber_on_other_worker_can_be_joined_anytime() {
    on_two_workers(|| {
        for n in 0..3000 {
            let other = fiber::Builder::new().worker(1).spawn(move || n).unwrap();
            // By now the fiber is not started, running or finished, depending on `n`.
            (0..n % 7).for_each(|_| fiber::yield_now());
            assert_eq!(other.join().unwrap(), n);
        }
    });
}

#[test]
fn is_finished_is_true_when_join_would_not_wait() {
    on_one_worker(|| {
        let handle = fiber::spawn_local(fiber::park);
        assert!(!handle.is_finished());
        fiber::yield_now();
        assert!(!handle.is_finished());
        handle.thread().unpark();
        while !handle.is_finished() {
            fiber::yield_now();
        }
        handle.join().unwrap();
    });
}

#[test]
fn handle_can_be_joined_elsewhere_and_after_run() {
    on_two_workers(|| {
        let first = fiber::spawn(|| 1);
        let second = fiber::spawn(move || first.join().unwrap() + 1);
        let third = fiber::unblock(move || second.join().unwrap() + 1);
        assert_eq!(third, 3);
    });
    let (value, panic) = cringle::run(|| {
        (fiber::spawn(|| 4), fiber::spawn_local(|| -> () { resume_unwind(Box::new(5)) }))
    });
    assert!(value.is_finished());
    assert_eq!(value.join().unwrap(), 4);
    assert_eq!(*panic.join().unwrap_err().downcast::<i32>().unwrap(), 5);
}

#[test]
fn dropping_a_handle_detaches_the_fiber() {
    let (sender, receiver) = mpsc::channel();
    on_one_worker(|| {
        drop(fiber::spawn(move || {
            fiber::yield_now();
            sender.send("ended").unwrap();
        }));
        fiber::unblock(|| ());
        while receiver.try_recv() != Ok("ended") {
            fiber::yield_now();
        }
    });
}

// ----- names, ids, stacks -----

#[test]
fn fibers_have_names_and_ids() {
    cringle::run(|| {
        assert_eq!(fiber::current().name(), Some("main"));
        assert!(fiber::spawn(|| fiber::current().name().is_none()).join().unwrap());
        let named = fiber::Builder::new().name("indexer".into());
        let handle = named.spawn(fiber::current).unwrap();
        assert_eq!(handle.thread().name(), Some("indexer"));
        let id = handle.thread().id();
        assert_eq!(handle.join().unwrap().id(), id, "the handle and the fiber agree");

        let mut ids = HashSet::from([fiber::current().id(), id]);
        for _ in 0..100 {
            assert!(ids.insert(fiber::spawn_local(|| fiber::current().id()).join().unwrap()));
        }
        assert_eq!(fiber::current().id(), fiber::current().id());
    });
}

#[test]
fn spawn_panics_if_name_contains_nul() {
    let named = || fiber::Builder::new().name("ab\0c".into());
    let assert_panics = |spawn: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(spawn)).unwrap_err();
        assert!(payload.downcast::<String>().unwrap().contains("byte 2"));
    };
    cringle::run(|| {
        assert_panics(&|| drop(named().spawn(|| unreachable!())));
        assert_panics(&|| drop(named().spawn_local(|| unreachable!())));
        fiber::scope(|s| {
            assert_panics(&|| drop(named().spawn_scoped(s, || unreachable!())));
            assert_panics(&|| drop(named().spawn_scoped_local(s, || unreachable!())));
        });
    });
}

#[test]
fn functions_act_on_the_thread_outside_of_run() {
    let named = std::thread::Builder::new().name("outside".into());
    let thread = named.spawn(|| {
        assert_eq!(fiber::current().name(), Some("outside"));
        assert_eq!(fiber::current().id(), fiber::current().id());
        fiber::current().unpark();
        fiber::park();
        fiber::park_timeout(Duration::from_millis(1));
        fiber::yield_now();
        fiber::sleep(Duration::from_millis(1));
        assert!(!fiber::panicking());
        assert_eq!(runtime::worker(), None);
        fiber::unblock(|| std::thread::current().id()) == std::thread::current().id()
    });
    assert!(thread.unwrap().join().unwrap(), "`unblock` calls the closure on the same thread");
    let std = std::thread::available_parallelism().unwrap();
    assert_eq!(fiber::available_parallelism().unwrap(), std);
}

#[test]
fn spawn_outside_of_run_panics_with_the_remedy() {
    for spawn in [|| drop(fiber::spawn(|| ())), || drop(fiber::spawn_local(|| ()))] {
        let caught = catch_unwind(spawn);
        let message = *caught.unwrap_err().downcast::<&str>().unwrap();
        assert!(message.contains("cringle::run(|| …)"), "{message}");
    }
}

#[test]
fn stack_larger_than_address_space_is_refused() {
    on_one_worker(|| {
        for bytes in [usize::MAX, 1 << 60] {
            let refused = fiber::Builder::new().stack_size(bytes).spawn(|| ()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
            let refused = fiber::Builder::new().stack_size(bytes).spawn_local(|| ()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        }
        let tiny = fiber::Builder::new().stack_size(0).spawn(|| 1).unwrap();
        assert_eq!(tiny.join().unwrap(), 1);
    });
}

#[test]
fn fiber_can_use_its_whole_stack() {
    /// Recurses; each level touches 1 KiB of stack.
    fn depth(levels: usize) -> usize {
        let frame = std::hint::black_box([levels as u8; 1024]);
        match levels {
            0 => 0,
            _ => depth(levels - 1) + usize::from(frame[levels % 1024] == levels as u8),
        }
    }
    on_one_worker(|| {
        let big = fiber::Builder::new().stack_size(64 << 20).spawn(|| depth(16 << 10)).unwrap();
        assert_eq!(big.join().unwrap(), 16 << 10);
        // The closure of `run` has a stack of 8 MiB.
        assert_eq!(depth(3 << 10), 3 << 10);
    });
}

// ----- placement -----

#[test]
fn local_fibers_run_in_spawn_order() {
    let order = Rc::new(RefCell::new(Vec::new()));
    cringle::run(|| {
        fiber::scope(|s| {
            for n in 0..3 {
                let order = Rc::clone(&order);
                s.spawn_local(move || {
                    order.borrow_mut().push((0, n));
                    fiber::yield_now();
                    order.borrow_mut().push((1, n));
                });
            }
            order.borrow_mut().push((9, 9));
        });
    });
    let expected = [(9, 9), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];
    assert_eq!(*order.borrow(), expected);
}

#[test]
fn placed_fiber_stays_on_its_worker() {
    Builder::new()
        .workers(3)
        .run(|| {
            assert_eq!(runtime::workers(), Some(3));
            assert_eq!(fiber::available_parallelism().unwrap().get(), 3);
            let handles: Vec<_> = (0..300)
                .map(|n| {
                    let check = move || {
                        for _ in 0..10 {
                            fiber::yield_now();
                            assert_eq!(runtime::worker(), Some(n % 3));
                        }
                    };
                    fiber::Builder::new().worker(n % 3).spawn(check).unwrap()
                })
                .collect();
            handles.into_iter().for_each(|handle| handle.join().unwrap());

            let refused = fiber::Builder::new().worker(3).spawn(|| ()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
            let refused = fiber::Builder::new().worker(1).spawn_local(|| ()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        })
        .unwrap();
}

#[test]
fn idle_worker_steals_unstarted_fibers_from_busy_one() {
    for _ in 0..50 {
        on_two_workers(|| {
            let thief = Arc::new(AtomicUsize::new(usize::MAX));
            let stolen = Arc::clone(&thief);
            fiber::spawn(move || stolen.store(runtime::worker().unwrap(), Ordering::SeqCst));
            // This fiber never suspends, so its worker cannot start the other one.
            while thief.load(Ordering::SeqCst) == usize::MAX {
                std::hint::spin_loop();
            }
            assert_eq!(thief.load(Ordering::SeqCst), 1);
        });
    }
}

#[test]
fn started_fiber_never_changes_worker() {
    on_two_workers(|| {
        let handles: Vec<_> = (0..200)
            .map(|_| {
                fiber::spawn(|| {
                    let (worker, thread) = (runtime::worker(), std::thread::current().id());
                    for _ in 0..20 {
                        fiber::yield_now();
                        assert_eq!(runtime::worker(), worker);
                        assert_eq!(std::thread::current().id(), thread);
                    }
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
}

// ----- parking and sleeping -----

#[test]
fn two_unparks_before_park_leave_one_token() {
    on_one_worker(|| {
        fiber::current().unpark();
        fiber::current().unpark();
        fiber::park();
        let parked = fiber::current();
        let unparked = Rc::new(Cell::new(false));
        let unparks = Rc::clone(&unparked);
        fiber::spawn_local(move || {
            unparks.set(true);
            parked.unpark();
        });
        fiber::park();
        assert!(unparked.get(), "the second park waits for a third unpark");
    });
}

#[test]
fn fiber_can_be_unparked_before_it_starts() {
    on_one_worker(|| {
        let handle = fiber::spawn(fiber::park);
        handle.thread().unpark();
        handle.join().unwrap();
    });
}

#[test]
fn unpark_crosses_workers_and_threads() {
    on_two_workers(|| {
        let main = fiber::current();
        for n in 0..200 {
            let main = main.clone();
            if n % 2 == 0 {
                fiber::Builder::new().worker(1).spawn(move || main.unpark()).unwrap();
            } else {
                std::thread::spawn(move || main.unpark());
            }
            fiber::park();
        }
    });
}

/// A thread that joins a fiber is parked, and may consume a token that it had before.
#[test]
fn a_thread_that_joins_a_fiber_keeps_its_unpark_token() {
    on_one_worker(|| {
        let joined = fiber::spawn_local(fiber::park);
        let fiber = joined.thread().clone();
        let joins = std::thread::spawn(move || {
            std::thread::current().unpark();
            joined.join().unwrap();
            let start = Instant::now();
            std::thread::park_timeout(Duration::from_secs(10));
            start.elapsed()
        });
        fiber::sleep(Duration::from_millis(50));
        fiber.unpark();
        let parked = fiber::unblock(|| joins.join().unwrap());
        assert!(parked < Duration::from_secs(5), "{parked:?}");
    });
}

/// Two fibers pass a turn back and forth; a lost wake-up would hang the test.
#[test]
fn no_unpark_between_workers_is_lost() {
    const ROUNDS: usize = 20_000;
    on_two_workers(|| {
        let turn = Arc::new(AtomicUsize::new(0));
        let play = |me: usize, turn: Arc<AtomicUsize>, other: fiber::Thread| {
            while turn.load(Ordering::SeqCst) < ROUNDS {
                if turn.load(Ordering::SeqCst) % 2 == me {
                    turn.fetch_add(1, Ordering::SeqCst);
                    other.unpark();
                } else {
                    fiber::park();
                }
            }
            other.unpark();
        };
        let main = fiber::current();
        let same_turn = Arc::clone(&turn);
        let other = fiber::Builder::new().worker(1).spawn(move || play(1, same_turn, main));
        let other = other.unwrap();
        play(0, turn, other.thread().clone());
        other.join().unwrap();
    });
}

#[test]
fn park_timeout_waits_for_time_or_token() {
    on_one_worker(|| {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(5) {
            fiber::park_timeout(Duration::from_millis(5));
        }
        fiber::current().unpark();
        fiber::park_timeout(Duration::MAX);
        let parked = fiber::current();
        fiber::spawn_local(move || parked.unpark());
        fiber::park_timeout(Duration::from_secs(1 << 40));
    });
}

#[test]
fn sleeping_fibers_wake_in_order_of_their_deadlines() {
    on_one_worker(|| {
        let begin = Instant::now();
        let (order, begun) = (RefCell::new(Vec::new()), Cell::new(0));
        let begun_together = fiber::scope(|s| {
            for ms in [60, 20, 40] {
                let (order, begun) = (&order, &begun);
                s.spawn_local(move || {
                    begun.set(begun.get() + 1);
                    fiber::sleep(Duration::from_millis(ms));
                    assert!(begin.elapsed() >= Duration::from_millis(ms));
                    order.borrow_mut().push(ms);
                });
            }
            while begun.get() < 3 {
                fiber::yield_now();
            }
            begin.elapsed() < Duration::from_millis(20)
        });
        let mut order = order.into_inner();
        if !begun_together {
            // The machine paused between the calls of `sleep`, so any order is right.
            order.sort_unstable();
        }
        assert_eq!(order, [20, 40, 60]);
        fiber::sleep(Duration::ZERO);
    });
}

#[test]
fn unpark_does_not_end_a_sleep() {
    on_one_worker(|| {
        let begin = Instant::now();
        let sleeper = fiber::spawn_local(|| fiber::sleep(Duration::from_millis(20)));
        while !sleeper.is_finished() {
            sleeper.thread().unpark();
            fiber::yield_now();
        }
        assert!(begin.elapsed() >= Duration::from_millis(20));
    });
}

// ----- scopes -----

#[test]
fn scoped_fibers_borrow_and_end_before_scope_returns() {
    on_two_workers(|| {
        let mut numbers = vec![1; 100];
        let (sum, once) = (AtomicUsize::new(0), Cell::new(0));
        fiber::scope(|s| {
            for chunk in numbers.chunks_mut(10) {
                let sum = &sum;
                s.spawn(move || {
                    fiber::yield_now();
                    chunk.iter_mut().for_each(|n| *n += 1);
                    sum.fetch_add(chunk.iter().sum(), Ordering::Relaxed);
                });
            }
            s.spawn_local(|| once.set(once.get() + 1));
        });
        assert_eq!((sum.into_inner(), once.get()), (200, 1));
        assert_eq!(numbers, vec![2; 100]);
    });
}

#[test]
fn scoped_fibers_can_spawn_into_their_scope() {
    on_two_workers(|| {
        let count = AtomicUsize::new(0);
        fiber::scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    for _ in 0..10 {
                        s.spawn(|| count.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 100);
    });
}

#[test]
fn joined_panic_of_scoped_fiber_is_not_resumed() {
    cringle::run(|| {
        let value = fiber::scope(|s| {
            let failed = s.spawn(|| -> () { resume_unwind(Box::new(3)) }).join();
            *failed.unwrap_err().downcast::<i32>().unwrap()
        });
        assert_eq!(value, 3);
    });
}

#[test]
fn unjoined_panic_of_scoped_fiber_makes_scope_panic() {
    cringle::run(|| {
        let ended = AtomicBool::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            fiber::scope(|s| {
                s.spawn(|| resume_unwind(Box::new(3)));
                s.spawn(|| {
                    (0..10).for_each(|_| fiber::yield_now());
                    ended.store(true, Ordering::SeqCst);
                });
            });
        }));
        let text = *caught.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(text, "a scoped fiber panicked");
        assert!(ended.into_inner(), "the scope still waits for its other fibers");
    });
}

#[test]
fn panic_of_scope_closure_wins_over_fibers_panic() {
    cringle::run(|| {
        let ended = AtomicBool::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            fiber::scope(|s| {
                s.spawn(|| {
                    (0..10).for_each(|_| fiber::yield_now());
                    ended.store(true, Ordering::SeqCst);
                    resume_unwind(Box::new(1))
                });
                resume_unwind(Box::new(2))
            })
        }));
        assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 2);
        assert!(ended.into_inner());
    });
}

/// The result of a scoped fiber may borrow from the frame that opened the scope.
#[test]
fn unclaimed_result_is_dropped_before_scope_returns() {
    struct Result<'a>(&'a AtomicUsize);
    impl Drop for Result<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    on_two_workers(|| {
        for _ in 0..200 {
            let dropped = AtomicUsize::new(0);
            fiber::scope(|s| {
                s.spawn(|| Result(&dropped));
                s.spawn_local(|| Result(&dropped));
                drop(fiber::Builder::new().worker(1).spawn_scoped(s, || Result(&dropped)));
            });
            assert_eq!(dropped.load(Ordering::SeqCst), 3);
        }
    });
}

#[test]
fn fiber_drops_captures_then_locals_then_result() {
    thread_local!(static ORDER: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) });
    struct Note(&'static str);
    impl Drop for Note {
        fn drop(&mut self) {
            ORDER.with_borrow_mut(|order| order.push(self.0));
        }
    }
    cringle::fiber_local!(static LOCAL: Note = Note("local"));
    on_one_worker(|| {
        let captured = Note("captured");
        let handle = fiber::spawn_local(move || {
            let _captured = captured;
            let _frame = Note("frame");
            LOCAL.with(|_| ());
            Note("result")
        });
        drop(handle.join());
    });
    assert_eq!(ORDER.take(), ["frame", "captured", "local", "result"]);
}

// ----- fiber locals -----

#[test]
fn each_fiber_has_its_own_locals() {
    cringle::fiber_local! {
        static FIRST: Cell<u32> = Cell::new(1);
        static SECOND: Cell<u32> = Cell::new(1);
    }
    on_one_worker(|| {
        FIRST.with(|first| first.set(5));
        let handles: Vec<_> = (10..20)
            .map(|n| {
                fiber::spawn_local(move || {
                    assert_eq!(FIRST.with(|first| first.replace(n)), 1);
                    fiber::yield_now();
                    (FIRST.with(Cell::get), SECOND.with(Cell::get))
                })
            })
            .collect();
        for (n, handle) in (10..20).zip(handles) {
            assert_eq!(handle.join().unwrap(), (n, 1));
        }
        assert_eq!(FIRST.with(Cell::get), 5);
    });
    assert_eq!(FIRST.with(Cell::get), 1, "a thread outside of `run` has its own");
}

#[test]
fn local_is_destroyed_before_join_returns() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    cringle::fiber_local!(static COUNTED: Counted = {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Counted
    });
    on_two_workers(|| {
        for n in 0..100 {
            let used = fiber::Builder::new().worker(n % 2).spawn(|| COUNTED.with(|_| ()));
            used.unwrap().join().unwrap();
            assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
        }
        let panics = || COUNTED.with(|_| resume_unwind(Box::new(1)));
        fiber::spawn(panics).join().map(drop).unwrap_err();
        assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
        COUNTED.with(|_| ());
    });
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0, "the main fiber's local is destroyed, too");
}

#[test]
fn destructor_of_local_can_wait_and_make_locals() {
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            fiber::sleep(Duration::from_millis(1));
            DESTROYED.fetch_add(1, Ordering::SeqCst);
        }
    }
    struct Early;
    impl Drop for Early {
        fn drop(&mut self) {
            fiber::yield_now();
            LATE.with(|_| ());
            DESTROYED.fetch_add(1, Ordering::SeqCst);
        }
    }
    cringle::fiber_local! {
        static LATE: Late = Late;
        static EARLY: Early = Early;
    }
    on_one_worker(|| {
        for n in 1..10 {
            fiber::spawn_local(|| EARLY.with(|_| ())).join().unwrap();
            assert_eq!(DESTROYED.load(Ordering::SeqCst), 2 * n);
        }
    });
}

#[test]
fn initialiser_of_local_can_wait_and_use_locals() {
    cringle::fiber_local! {
        static INNER: u32 = { fiber::yield_now(); 20 };
        static OUTER: u32 = INNER.with(|inner| inner + 1);
    }
    on_one_worker(|| {
        assert_eq!(fiber::spawn_local(|| OUTER.with(|n| *n)).join().unwrap(), 21);
    });
}

/// The result of a detached fiber is dropped on that fiber: its destructor has the fiber's name,
/// can wait, and has fiber locals.
#[test]
fn unclaimed_result_is_dropped_on_its_fiber() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    cringle::fiber_local!(static USES: Cell<usize> = Cell::new(0));
    struct Unclaimed;
    impl Drop for Unclaimed {
        fn drop(&mut self) {
            assert_eq!(fiber::current().name(), Some("detached"));
            fiber::yield_now();
            fiber::park_timeout(Duration::from_millis(1));
            USES.with(|uses| {
                assert_eq!(uses.replace(1), 0, "the local is not an earlier fiber's");
            });
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    child::must_succeed("unclaimed_result_is_dropped_on_its_fiber", || {
        on_one_worker(|| {
            for n in 1..20 {
                let detached = fiber::Builder::new().name("detached".into());
                drop(detached.spawn_local(|| Unclaimed));
                while DROPPED.load(Ordering::SeqCst) < n {
                    fiber::yield_now();
                }
            }
        });
    });
}

#[test]
fn panic_of_result_destructor_aborts_with_a_message() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a bomb");
        }
    }
    let name = "panic_of_result_destructor_aborts_with_a_message";
    let Some(output) = child::run(name) else {
        on_one_worker(|| {
            drop(fiber::spawn_local(|| Bomb));
            (0..10).for_each(|_| fiber::yield_now());
        });
        return;
    };
    let text = child::transcript(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(text.contains("the destructor of a fiber's result panicked"), "{text}");
}

// ----- unblock -----

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

// ----- unwinding -----

#[test]
fn panicking_is_about_the_fiber_not_the_thread() {
    struct WaitsWhenDropped<'a>(&'a Cell<bool>);
    impl Drop for WaitsWhenDropped<'_> {
        fn drop(&mut self) {
            assert!(fiber::panicking());
            while !self.0.get() {
                fiber::yield_now();
                assert!(fiber::panicking());
            }
        }
    }
    on_one_worker(|| {
        let go = Cell::new(false);
        fiber::scope(|s| {
            let unwinds = s.spawn_local(|| {
                let _waits = WaitsWhenDropped(&go);
                resume_unwind(Box::new(1));
            });
            let other = s.spawn_local(|| {
                fiber::yield_now();
                assert!(std::thread::panicking(), "the other fiber is in its destructor");
                assert!(!fiber::panicking());
                go.set(true);
            });
            other.join().unwrap();
            unwinds.join().map(drop).unwrap_err();
        });
        assert!(!fiber::panicking() && !std::thread::panicking());
    });
}

#[test]
fn destructor_can_wait_while_its_fiber_unwinds() {
    struct Waits<'a>(&'a AtomicUsize);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            fiber::yield_now();
            fiber::sleep(Duration::from_millis(1));
            fiber::unblock(|| ());
            assert_eq!(fiber::spawn_local(|| 5).join().unwrap(), 5);
            let file = cringle::fs::File::open("/proc/self/exe").unwrap();
            assert!(file.metadata().unwrap().len() > 0);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = AtomicUsize::new(0);
    on_one_worker(|| {
        fiber::scope(|s| {
            let handles: Vec<_> = (0..50usize)
                .map(|n| {
                    let dropped = &dropped;
                    s.spawn_local(move || {
                        let _waits = Waits(dropped);
                        (0..n % 5).for_each(|_| fiber::yield_now());
                        resume_unwind(Box::new(n));
                    })
                })
                .collect();
            for (n, handle) in handles.into_iter().enumerate() {
                let payload = handle.join().map(drop).unwrap_err();
                assert_eq!(*payload.downcast::<usize>().unwrap(), n);
            }
        });
    });
    assert_eq!(dropped.into_inner(), 50);
}

// ----- handles that outlive the run -----

#[test]
fn unpark_after_run_does_nothing() {
    for round in 0..50 {
        let mut threads = Vec::new();
        on_two_workers(|| {
            threads.push(fiber::current());
            for n in 0..10 {
                let parked = fiber::Builder::new().worker(n % 2).spawn(fiber::park).unwrap();
                threads.push(parked.thread().clone());
            }
            fiber::yield_now();
        });
        // The runtime's descriptors are closed; the next run reuses their numbers.
        threads.iter().for_each(fiber::Thread::unpark);
        on_two_workers(|| {
            threads.iter().for_each(fiber::Thread::unpark);
            let ours = fiber::spawn(fiber::park);
            fiber::Builder::new()
                .worker(1)
                .spawn(move || {
                    threads.iter().for_each(fiber::Thread::unpark);
                })
                .unwrap()
                .join()
                .unwrap();
            ours.thread().unpark();
            ours.join().unwrap();
            assert_eq!(runtime::workers(), Some(2), "round {round}");
        });
    }
}

/// Threads unpark fibers while their runtime ends and others begin.
#[test]
fn unpark_can_race_with_the_end_of_run() {
    let stop = AtomicBool::new(false);
    let current: std::sync::Mutex<Vec<fiber::Thread>> = std::sync::Mutex::default();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let threads = current.lock().unwrap().clone();
                    threads.iter().for_each(fiber::Thread::unpark);
                    std::thread::yield_now();
                }
            });
        }
        for _ in 0..200 {
            on_two_workers(|| {
                let parked: Vec<_> = (0..4)
                    .map(|n| fiber::Builder::new().worker(n % 2).spawn(fiber::park).unwrap())
                    .collect();
                let threads = parked.iter().map(|handle| handle.thread().clone()).collect();
                *current.lock().unwrap() = threads;
                fiber::yield_now();
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A closure with few captures is moved onto its fiber's stack; a large one is boxed.
#[test]
fn closure_can_capture_more_than_a_frame_holds() {
    let big = [7u8; 100_000];
    let sum = cringle::run(move || {
        let larger = [1u8; 2000];
        let local = fiber::spawn_local(move || larger.iter().map(|&b| u32::from(b)).sum::<u32>());
        let scoped = fiber::scope(|s| s.spawn_local(move || big.len() as u32).join().unwrap());
        local.join().unwrap() + scoped + u32::from(big[0])
    });
    assert_eq!(sum, 2000 + 100_000 + 7);
}
