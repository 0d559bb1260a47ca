//! A fiber that only calls the library does not starve the other fibers of its worker.
//!
//! `api.txt` lists every public function of the modules whose calls may wait, with its kind. A test
//! compares it with the source, so each new call must be classified, called in `calls.rs`, and
//! documented as one that suspends or not. All tests count calls; none uses the clock.

mod api;
mod calls;
mod refused;
mod twins;

use api::Kind;
use calls::{Call, Row, rows};
use cringle::fiber;
use cringle::runtime::DriverChoice;
use cringle::sync::{LazyLock, Mutex, OnceLock, RwLock, Semaphore, mpsc};
use cringle::time;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Once;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The limit that the docs promise.
const MOST_CALLS: usize = 128;
/// The calls in a round, which exhaust the refusals of a cancelled fiber, so that errors become
/// unwindings.
const ROUNDS: usize = 9;
/// More calls than any budget allows, for calls that do not yield.
const MANY: usize = 1000;

/// Runs `f` on one worker, with the machine's driver and then with epoll.
fn on_both_drivers(f: impl Fn()) {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        cringle::Builder::new().workers(1).driver(driver).run(&f).unwrap();
    }
}

/// Spawns a fiber. Returns whether it has run.
fn ready_fiber() -> Rc<Cell<bool>> {
    let ran = Rc::new(Cell::new(false));
    let theirs = Rc::clone(&ran);
    drop(fiber::spawn_local(move || theirs.set(true)));
    ran
}

/// Counts the calls until another ready fiber has run; `None` after `limit` calls.
fn calls_until_other_runs(call: &mut Call, limit: usize) -> Option<usize> {
    fiber::yield_now();
    calls_until_ready_fiber_runs(call, limit)
}

fn calls_until_ready_fiber_runs(call: &mut Call, limit: usize) -> Option<usize> {
    let ran = ready_fiber();
    (1..=limit).find(|_| {
        call();
        ran.get()
    })
}

/// Calls `f`, catches its panic, and keeps the panic hook from printing it.
fn quietly(f: impl FnMut()) -> std::thread::Result<()> {
    thread_local! {
        static QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    result
}

#[test]
fn other_fiber_runs_after_128_calls() {
    on_both_drivers(|| {
        for row in rows() {
            let mut call = (row.prepare)();
            let name = row.name;
            match api::kind_of(name) {
                Kind::Blocks => {
                    // More than once, because the yield refills the budget.
                    for _ in 0..2 {
                        let calls = calls_until_other_runs(&mut call, MOST_CALLS);
                        assert!(calls.is_some(), "{name}: another fiber has not run after 128");
                    }
                }
                Kind::Tries => {
                    for _ in 0..2 {
                        let calls = calls_until_other_runs(&mut call, MANY);
                        assert_eq!(calls, Some(MOST_CALLS), "{name}: failures until another runs");
                    }
                }
                Kind::Counts | Kind::Once => {
                    let calls = calls_until_other_runs(&mut call, MANY);
                    assert_eq!(calls, None, "{name} suspends");
                    let ran = ready_fiber();
                    drop(Mutex::new(0).lock());
                    assert!(ran.get(), "{name} does not count: the next `lock` has not yielded");
                }
                Kind::Quiet => panic!("{name} is called for nothing"),
            }
        }
    });
}

#[test]
fn every_call_is_classified_tested_and_documented() {
    let listed = api::listed();
    let found = api::found_in_source();
    let missing: Vec<_> = found.keys().filter(|name| !listed.contains_key(name.as_str())).collect();
    assert!(
        missing.is_empty(),
        "tests/fiber/fairness/api.txt does not list these, with a kind: {missing:#?}"
    );
    for (name, function) in &found {
        let sentence = listed[name.as_str()].sentence();
        assert!(function.docs.contains(sentence), "the docs of {name} do not say: {sentence}");
    }
    let names: Vec<&str> = rows().iter().map(|row| row.name).collect();
    for (name, kind) in &listed {
        let is_method_of_trait = api::TRAIT_METHODS.contains(name);
        assert!(
            found.contains_key(*name) || is_method_of_trait,
            "{name} is listed, and is not there"
        );
        let excused = calls::NOT_MADE.iter().any(|(not_made, _)| not_made == name);
        let made = names.contains(name);
        assert!(made != (excused || *kind == Kind::Quiet), "{name}: made in calls.rs: {made}");
    }
}

#[test]
fn successes_of_try_calls_never_yield() {
    on_both_drivers(|| {
        fiber::yield_now();
        let ran = ready_fiber();
        let (open, closed) = (Semaphore::new(1), Semaphore::new(0));
        for _ in 0..MANY {
            assert!(open.try_acquire().is_some());
        }
        // Nor failures with a success among them.
        for _ in 0..10 {
            for _ in 1..MOST_CALLS {
                assert!(closed.try_acquire().is_none());
            }
            assert!(open.try_acquire().is_some());
        }
        assert!(!ran.get());
    });
}

/// A value is read in loops that also try something else.
#[test]
fn get_of_a_value_counts_as_nothing() {
    on_both_drivers(|| {
        let (once, lazy, gone) = (OnceLock::from(1), LazyLock::new(|| 1), Semaphore::new(0));
        assert_eq!(*lazy, 1);
        let get = || assert_eq!((once.get(), LazyLock::get(&lazy)), (Some(&1), Some(&1)));
        fiber::yield_now();
        let ran = ready_fiber();
        (0..MANY).for_each(|_| get());
        // Nothing of the budget was spent, but for the spawn.
        (2..MOST_CALLS).for_each(|_| drop(Mutex::new(0).lock()));
        assert!(!ran.get());
        // Nor does it begin the count of failures anew.
        let tries = || {
            get();
            drop(gone.try_acquire());
        };
        fiber::yield_now();
        let ran = ready_fiber();
        (0..MOST_CALLS).for_each(|_| tries());
        assert!(ran.get());
    });
}

/// A `{:?}` in a log may be anywhere.
#[test]
fn debug_of_locks_never_suspends() {
    on_both_drivers(|| {
        let (mutex, lock) = (Mutex::new(0), RwLock::new(0));
        let (once, lazy) = (OnceLock::<u8>::new(), LazyLock::new(|| 1));
        let _held = (mutex.lock(), lock.write());
        fiber::yield_now();
        let ran = ready_fiber();
        (0..MANY).for_each(|_| drop(format!("{mutex:?} {lock:?} {once:?} {lazy:?}")));
        assert!(!ran.get());
    });
}

/// With a budget for each kind of call, two kinds together could exceed 128.
#[test]
fn calls_of_all_kinds_share_one_budget() {
    on_both_drivers(|| {
        let (lock, semaphore) = (Mutex::new(0), Semaphore::new(1));
        let once = OnceLock::from(1);
        fiber::yield_now();
        let ran = ready_fiber();
        let mut calls = 0;
        while !ran.get() {
            drop(lock.lock());
            drop(semaphore.try_acquire());
            once.get_or_init(|| 2);
            calls += 3;
            assert!(calls <= MOST_CALLS + 2, "no other fiber has run after {calls} calls");
        }
    });
}

#[test]
fn loop_of_send_and_try_iter_gets_answer() {
    on_both_drivers(|| {
        let (sender, questions) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        drop(fiber::spawn_local(move || {
            questions.recv().unwrap();
            answer.send(42).unwrap();
        }));
        let got = (0..MANY).find_map(|n| {
            // The other fiber ends after its answer.
            let _ = sender.send(n);
            answers.try_iter().next()
        });
        assert_eq!(got, Some(42));
    });
}

#[test]
fn sleeper_wakes_beside_busy_fiber() {
    for name in ["sync::mutex::Mutex::lock", "sync::mpsc::Receiver::try_recv"] {
        on_both_drivers(|| {
            let row = rows().into_iter().find(|row| row.name == name).unwrap();
            let mut call = (row.prepare)();
            let woke = Rc::new(Cell::new(false));
            let theirs = Rc::clone(&woke);
            let deadline = Instant::now() + Duration::from_millis(2);
            drop(fiber::spawn_local(move || {
                time::sleep_until(deadline).unwrap();
                theirs.set(true);
            }));
            fiber::yield_now();
            let mut late = 0;
            while !woke.get() {
                late += usize::from(Instant::now() >= deadline);
                call();
                // After one yield the timer fires, after the next one the sleeper has run.
                assert!(late <= 2 * MOST_CALLS, "{name}: it sleeps after {late} calls");
            }
        });
    }
}

#[test]
fn budget_yield_is_no_cancellation_point() {
    on_both_drivers(|| {
        let ended = fiber::scope(|s| {
            s.cancel();
            let lock = Mutex::new(0);
            (0..MANY).for_each(|_| *lock.lock().unwrap() += 1);
            lock.into_inner().unwrap()
        });
        assert_eq!(ended, MANY);
    });
}

/// Runs `f` in a destructor while the calling fiber unwinds.
fn while_unwinding(f: impl FnMut()) {
    struct OnDrop<F: FnMut()>(F);
    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let unwinds = AssertUnwindSafe(|| {
        let _f = OnDrop(f);
        std::panic::resume_unwind(Box::new("an unwinding"));
    });
    let payload = fiber::catch_unwind(unwinds).unwrap_err();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "an unwinding");
}

/// The destructor may poll for the work of another fiber of the worker.
#[test]
fn unwinding_fiber_lets_others_run() {
    on_both_drivers(|| {
        let may_wait = |row: &Row| matches!(api::kind_of(row.name), Kind::Blocks | Kind::Tries);
        for row in rows().into_iter().filter(may_wait) {
            let mut call = (row.prepare)();
            let mut calls = None;
            while_unwinding(|| calls = calls_until_other_runs(&mut call, MOST_CALLS));
            assert!(calls.is_some(), "{}: another fiber has not run after 128", row.name);
        }
    });
}

/// A cancelled fiber in a supervisor's loop, which catches every panic of its call.
#[test]
fn cancelled_fiber_lets_others_run() {
    on_both_drivers(|| {
        let blocking = rows().into_iter().filter(|row| api::kind_of(row.name) == Kind::Blocks);
        let starves = |row: &Row| {
            let mut call = (row.prepare)();
            let mut call: Call = Box::new(move || drop(quietly(&mut call)));
            fiber::scope(|s| {
                fiber::yield_now();
                s.cancel();
                let mut rounds = 0..ROUNDS;
                !rounds.all(|_| calls_until_ready_fiber_runs(&mut call, MOST_CALLS).is_some())
            })
        };
        let rows: Vec<Row> = blocking.chain(refused::rows()).filter(starves).collect();
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        assert!(names.is_empty(), "no other fiber has run after 128 of each of {names:#?}");
    });
}

#[test]
fn future_that_locks_lets_others_run() {
    on_both_drivers(|| {
        let lock = Mutex::new(0);
        fiber::yield_now();
        let ran = ready_fiber();
        fiber::block_on(std::future::poll_fn(|_| {
            (1..MOST_CALLS).for_each(|_| drop(lock.lock()));
            Poll::Ready(())
        }));
        assert!(ran.get());
    });
}

#[test]
fn calls_outside_a_fiber_are_plain() {
    let (lock, gone) = (Mutex::new(0), Semaphore::new(0));
    for _ in 0..MANY {
        drop(lock.lock());
        assert!(gone.try_acquire().is_none());
    }
}
