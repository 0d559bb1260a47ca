//! `Condvar`.

use super::{LONG, SHORT};
use cringle::fiber;
use cringle::sync::{Condvar, Mutex};
use cringle_testing::tools::{on_one_worker, on_two_workers, yield_times};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::thread;

#[test]
fn condvar_notifies_waiters_in_order() {
    on_one_worker(|| {
        let state = Rc::new((Mutex::new(Vec::new()), Condvar::new()));
        for n in 0..4 {
            let state = Rc::clone(&state);
            fiber::spawn_local(move || {
                let mut woken = state.1.wait(state.0.lock().unwrap()).unwrap();
                woken.push(n);
            });
        }
        yield_times(2);
        for count in 1..3 {
            state.1.notify_one();
            yield_times(3);
            assert_eq!(state.0.lock().unwrap().len(), count);
        }
        state.1.notify_all();
        yield_times(4);
        assert_eq!(*state.0.lock().unwrap(), [0, 1, 2, 3]);
    });
}

#[test]
fn condvar_notifies_fibers_and_threads() {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    let play = |me: usize| {
        for round in 0..500 {
            let wanted = |turn: &mut usize| *turn != round * 3 + me;
            let mut turn = changed.wait_while(turn.lock().unwrap(), wanted).unwrap();
            *turn += 1;
            changed.notify_all();
        }
    };
    thread::scope(|threads| {
        threads.spawn(|| play(0));
        on_two_workers(|| {
            fiber::scope(|s| {
                s.spawn(|| play(1));
                s.spawn(|| play(2));
            });
        });
    });
    assert_eq!(turn.into_inner().unwrap(), 1500);
}

#[test]
fn wait_timeout_returns_with_the_lock() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    let limited = || {
        let (mut guard, result) = changed.wait_timeout(mutex.lock().unwrap(), SHORT).unwrap();
        assert!(result.timed_out());
        *guard += 1;
        let (guard, result) = changed.wait_timeout_while(guard, SHORT, |count| *count > 0).unwrap();
        assert!(result.timed_out());
        let (_, result) = changed.wait_timeout_while(guard, LONG, |count| *count == 0).unwrap();
        assert!(!result.timed_out());
    };
    limited();
    on_one_worker(limited);
}

#[test]
fn wait_returns_poison_of_its_lock() {
    let (mutex, changed) = (Mutex::new(()), Condvar::new());
    on_one_worker(|| {
        fiber::scope(|s| {
            let waits = s.spawn_local(|| changed.wait(mutex.lock().unwrap()).is_err());
            fiber::yield_now();
            let panics = s.spawn_local(|| {
                let _guard = mutex.lock().unwrap();
                changed.notify_one();
                resume_unwind(Box::new(1));
            });
            assert!(panics.join().is_err());
            assert!(waits.join().unwrap());
        });
    });
}
