//! Locks, condition variables, barriers and cells behave as std's between fibers and threads, and
//! serve their waiters in order.

use crate::tools::{on_one_worker, on_two_workers, yield_times};
use cringle::fiber;
use cringle::sync::{
    Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, Semaphore, TryLockError, WaitGroup,
};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1);

/// Runs `work` on two threads and on six fibers of two workers, concurrently.
fn everywhere(work: impl Fn() + Sync) {
    thread::scope(|threads| {
        threads.spawn(&work);
        threads.spawn(&work);
        on_two_workers(|| {
            fiber::scope(|s| {
                (0..6).for_each(|_| drop(s.spawn(&work)));
            });
        });
    });
}

// ----- Mutex -----

#[test]
fn mutex_holds_its_value_and_prints_as_stds() {
    let mut mutex = Mutex::from(1);
    *mutex.lock().unwrap() += 1;
    *mutex.get_mut().unwrap() += 1;
    let guard = mutex.lock().unwrap();
    assert_eq!(format!("{guard} {guard:?}"), "3 3");
    assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
    // The text depends on std's version.
    let std_mutex = std::sync::Mutex::new(3);
    let std_guard = std_mutex.lock().unwrap();
    assert_eq!(format!("{mutex:?}"), format!("{std_mutex:?}"));
    drop((guard, std_guard));
    assert_eq!(*mutex.try_lock().unwrap(), 3);
    assert_eq!(format!("{mutex:?}"), "Mutex { data: 3, poisoned: false, .. }");
    assert_eq!(mutex.into_inner().unwrap(), 3);
    assert_eq!(Mutex::<u8>::default().into_inner().unwrap(), 0);
}

#[test]
fn mutex_serves_waiters_in_order() {
    on_one_worker(|| {
        let mutex = Rc::new(Mutex::new(Vec::new()));
        let mut guard = mutex.lock().unwrap();
        for n in 0..10 {
            let mutex = Rc::clone(&mutex);
            fiber::spawn_local(move || mutex.lock().unwrap().push(n));
        }
        yield_times(2);
        guard.push(-1);
        drop(guard);
        // The lock belongs to the first waiter, who is not overtaken.
        assert!(mutex.try_lock().is_err());
        mutex.lock().unwrap().push(10);
        assert_eq!(*mutex.lock().unwrap(), (-1..=10).collect::<Vec<_>>());
    });
}

#[test]
fn mutex_excludes_fibers_and_threads() {
    let (mutex, inside) = (Mutex::new(0), AtomicUsize::new(0));
    everywhere(|| {
        for n in 0..500 {
            let mut count = mutex.lock().unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
            if n % 7 == 0 {
                fiber::yield_now();
            }
            *count += 1;
            inside.fetch_sub(1, Ordering::Relaxed);
        }
    });
    assert_eq!(mutex.into_inner().unwrap(), 8 * 500);
}

#[test]
fn panic_of_fiber_poisons_its_locks() {
    let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
    on_one_worker(|| {
        fiber::scope(|s| {
            let panics = s.spawn(|| {
                let (_guard, _writes) = (mutex.lock().unwrap(), lock.write().unwrap());
                resume_unwind(Box::new(1));
            });
            assert!(panics.join().is_err());
        });
        assert!(mutex.is_poisoned() && lock.is_poisoned());
        assert_eq!(*mutex.lock().unwrap_err().into_inner(), 1);
        assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))));
        assert!(lock.read().is_err() && lock.write().is_err());
        mutex.clear_poison();
        lock.clear_poison();
        assert!(mutex.lock().is_ok() && lock.read().is_ok());
    });
    let panics = || {
        let _guard = mutex.lock();
        resume_unwind(Box::new(1));
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(mutex.into_inner().is_err(), "a thread's panic poisons too");
}

/// While a fiber is suspended in a destructor, std counts a panic for the whole thread.
#[test]
fn unwinding_fiber_poisons_no_lock_of_others() {
    struct Waits<'a>(&'a AtomicBool, &'a Mutex<()>);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            // A lock that is taken and released while unwinding is not poisoned either.
            drop(self.1.lock());
            while !self.0.load(Ordering::Relaxed) {
                fiber::yield_now();
            }
        }
    }
    let (outer, inner, done) = (Mutex::new(()), Mutex::new(()), AtomicBool::new(false));
    on_one_worker(|| {
        let guard = outer.lock().unwrap();
        fiber::scope(|s| {
            let unwinds = s.spawn_local(|| {
                let _waits = Waits(&done, &inner);
                resume_unwind(Box::new(1));
            });
            yield_times(2);
            assert!(std::thread::panicking());
            drop(guard);
            drop((outer.lock(), inner.lock()));
            done.store(true, Ordering::Relaxed);
            assert!(unwinds.join().is_err());
        });
    });
    assert!(!outer.is_poisoned() && !inner.is_poisoned());
}

#[test]
fn wait_of_thread_keeps_its_park_token() {
    let condvar = Condvar::new();
    let waits = Mutex::new(false);
    thread::scope(|threads| {
        let other = threads.spawn(|| {
            thread::current().unpark();
            let mut guard = waits.lock().unwrap();
            *guard = true;
            drop(condvar.wait_while(guard, |waits| *waits).unwrap());
            // This would wait for ever if the wait had consumed the token.
            thread::park();
        });
        while !other.is_finished() {
            *waits.lock().unwrap() = false;
            condvar.notify_all();
            thread::yield_now();
        }
    });
}

// ----- RwLock -----

#[test]
fn readers_share_and_writers_exclude() {
    let lock = RwLock::new(5);
    let (first, second) = (lock.read().unwrap(), lock.read().unwrap());
    assert_eq!(*first + *second, 10);
    assert!(lock.try_write().is_err());
    drop((first, second));
    let mut writes = lock.try_write().unwrap();
    *writes = 6;
    assert!(lock.try_read().is_err());
    let reads = cringle::sync::RwLockWriteGuard::downgrade(writes);
    assert_eq!((*reads, *lock.try_read().unwrap()), (6, 6));
    assert!(lock.try_write().is_err());
    drop(reads);
    assert_eq!(format!("{lock:?}"), "RwLock { data: 6, poisoned: false, .. }");
    assert_eq!(lock.into_inner().unwrap(), 6);
}

#[test]
fn rwlock_serves_waiters_in_order() {
    on_one_worker(|| {
        let lock = Rc::new(RwLock::new(()));
        let order = Rc::new(RefCell::new(Vec::new()));
        let reads = lock.read().unwrap();
        for (n, writes) in [(0, true), (1, false), (2, false), (3, true), (4, false)] {
            let (lock, order) = (Rc::clone(&lock), Rc::clone(&order));
            fiber::spawn_local(move || {
                let (_write, _read);
                if writes {
                    _write = lock.write().unwrap();
                } else {
                    _read = lock.read().unwrap();
                }
                order.borrow_mut().push(n);
                fiber::yield_now();
            });
        }
        yield_times(2);
        // A new reader would queue behind the waiting writer.
        assert!(lock.try_read().is_err());
        assert!(order.borrow().is_empty());
        drop(reads);
        drop(lock.write().unwrap());
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn panic_of_reader_poisons_nothing() {
    let lock = RwLock::new(1);
    let reads = || {
        let _guard = lock.read().unwrap();
        resume_unwind(Box::new(1));
    };
    assert!(catch_unwind(AssertUnwindSafe(reads)).is_err());
    assert!(!lock.is_poisoned());
}

#[test]
fn readers_never_see_a_half_written_value() {
    let lock = RwLock::new((0, 0));
    everywhere(|| {
        for n in 0..300 {
            if n % 3 == 0 {
                let mut both = lock.write().unwrap();
                both.0 += 1;
                fiber::yield_now();
                both.1 += 1;
            } else {
                let both = lock.read().unwrap();
                assert_eq!(both.0, both.1);
            }
        }
    });
    assert_eq!(lock.into_inner().unwrap(), (800, 800));
}

// ----- Condvar -----

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

// ----- Barrier, WaitGroup -----

#[test]
fn barrier_can_be_reused() {
    let (barrier, arrived, leaders) = (Barrier::new(8), AtomicUsize::new(0), AtomicUsize::new(0));
    everywhere(|| {
        for round in 1..=100 {
            arrived.fetch_add(1, Ordering::SeqCst);
            leaders.fetch_add(usize::from(barrier.wait().is_leader()), Ordering::SeqCst);
            assert!(arrived.load(Ordering::SeqCst) >= round * 8);
            barrier.wait();
        }
    });
    assert_eq!(leaders.into_inner(), 100);
    assert!(Barrier::new(0).wait().is_leader());
}

#[test]
fn wait_group_waits_for_all_its_clones() {
    let done = Arc::new(AtomicUsize::new(0));
    let start = |member: WaitGroup, on_thread: bool| {
        let done = Arc::clone(&done);
        let work = move || {
            fiber::yield_now();
            done.fetch_add(1, Ordering::SeqCst);
            drop(member);
        };
        if on_thread {
            drop(thread::spawn(work));
        } else {
            drop(fiber::spawn(work));
        }
    };
    on_two_workers(|| {
        let group = WaitGroup::new();
        (0..20).for_each(|n| start(group.clone(), n % 5 == 0));
        let clone = group.clone();
        let waits = fiber::spawn(move || clone.wait());
        group.wait();
        assert_eq!(done.load(Ordering::SeqCst), 20);
        waits.join().unwrap();
        WaitGroup::new().wait();
    });
}

// ----- Once, OnceLock, LazyLock -----

#[test]
fn once_runs_one_closure_while_others_wait() {
    let (once, value) = (Once::new(), AtomicUsize::new(0));
    everywhere(|| {
        once.call_once(|| {
            yield_times(5);
            value.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(value.load(Ordering::Relaxed), 1);
        once.wait();
    });
    assert!(once.is_completed());
}

#[test]
fn panic_poisons_once_until_call_once_force() {
    let once = Once::new();
    let panics = AssertUnwindSafe(|| once.call_once(|| resume_unwind(Box::new(1))));
    assert!(catch_unwind(panics).is_err());
    assert!(!once.is_completed());
    assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| ()))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| once.wait())).is_err());
    once.call_once_force(|state| assert!(state.is_poisoned()));
    once.call_once(|| unreachable!());
}

#[test]
fn waiters_of_once_panic_with_its_closure() {
    on_one_worker(|| {
        let once = Once::new();
        fiber::scope(|s| {
            let panics = s.spawn_local(|| {
                once.call_once(|| {
                    yield_times(2);
                    resume_unwind(Box::new(1));
                });
            });
            let waits = s.spawn_local(|| once.call_once(|| unreachable!()));
            let forces = s.spawn_local(|| once.wait_force());
            assert!(panics.join().is_err());
            assert!(waits.join().is_err());
            once.call_once_force(|_| ());
            forces.join().unwrap();
        });
    });
}

#[test]
fn once_lock_is_set_once_and_dropped_once() {
    let value = Arc::new(7);
    let mut lock = OnceLock::new();
    assert_eq!(lock.get(), None);
    assert!(lock.set(Arc::clone(&value)).is_ok());
    assert!(lock.set(Arc::clone(&value)).is_err());
    assert_eq!(format!("{lock:?}"), "OnceLock(7)");
    assert_eq!(lock.clone(), lock);
    assert_eq!(Arc::strong_count(&value), 2);
    assert_eq!(lock.take().as_deref(), Some(&7));
    assert_eq!(lock.get_mut(), None);
    let made = AssertUnwindSafe(|| lock.get_or_init(|| resume_unwind(Box::new(1))).clone());
    assert!(catch_unwind(made).is_err());
    assert_eq!(**lock.get_or_init(|| Arc::clone(&value)), 7);
    drop(lock);
    assert_eq!(Arc::strong_count(&value), 1);
    assert_eq!(OnceLock::from(3).into_inner(), Some(3));
}

#[test]
fn fibers_and_threads_can_wait_for_once_lock() {
    let lock = OnceLock::new();
    thread::scope(|threads| {
        threads.spawn(|| assert_eq!(*lock.wait(), 9));
        on_two_workers(|| {
            fiber::scope(|s| {
                (0..4).for_each(|_| drop(s.spawn(|| assert_eq!(*lock.wait(), 9))));
                lock.set(9).unwrap();
            });
        });
    });
}

#[test]
fn lazy_lock_calls_its_closure_once() {
    let made = AtomicUsize::new(0);
    let lazy = LazyLock::new(|| {
        yield_times(3);
        made.fetch_add(1, Ordering::Relaxed) + 40
    });
    everywhere(|| assert_eq!(*lazy, 40));
    let fails = LazyLock::new(|| -> u8 { resume_unwind(Box::new(1)) });
    assert!(catch_unwind(AssertUnwindSafe(|| *fails)).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| *LazyLock::force(&fails))).is_err());
}

// ----- Semaphore -----

#[test]
fn semaphore_bounds_its_holders() {
    let (semaphore, inside) = (Semaphore::new(3), AtomicUsize::new(0));
    everywhere(|| {
        for n in 0..200 {
            let permits = 1 + n % 3;
            let _permit = semaphore.acquire_many(permits);
            assert!(inside.fetch_add(permits, Ordering::SeqCst) + permits <= 3);
            fiber::yield_now();
            inside.fetch_sub(permits, Ordering::SeqCst);
        }
    });
    assert_eq!(semaphore.available(), 3);
}

#[test]
fn semaphore_serves_waiters_in_order() {
    on_one_worker(|| {
        let semaphore = Rc::new(Semaphore::new(2));
        let order = Rc::new(RefCell::new(Vec::new()));
        let held = semaphore.acquire();
        for permits in [2, 1] {
            let (semaphore, order) = (Rc::clone(&semaphore), Rc::clone(&order));
            fiber::spawn_local(move || {
                let _permit = semaphore.acquire_many(permits);
                order.borrow_mut().push(permits);
            });
        }
        yield_times(2);
        assert!(order.borrow().is_empty());
        assert!(semaphore.try_acquire().is_none(), "one permit is free, but a fiber waits");
        drop(held);
        yield_times(3);
        assert_eq!(*order.borrow(), [2, 1]);
    });
}

#[test]
fn permits_can_be_added_and_forgotten() {
    let semaphore = Semaphore::new(0);
    assert!(semaphore.try_acquire().is_none());
    thread::scope(|threads| {
        let waits = threads.spawn(|| semaphore.acquire_many(2).forget());
        semaphore.add_permits(1);
        semaphore.add_permits(2);
        waits.join().unwrap();
    });
    assert_eq!(semaphore.available(), 1);
    let permit = semaphore.try_acquire_many(1).unwrap();
    thread::scope(|threads| drop(threads.spawn(move || drop(permit))));
    assert_eq!(semaphore.available(), 1);
    let too_many = AssertUnwindSafe(|| semaphore.add_permits(Semaphore::MAX_PERMITS));
    assert!(catch_unwind(too_many).is_err());
    assert_eq!(semaphore.available(), 1);
}

/// Held permits return to the semaphore, so they count.
#[test]
fn held_permits_count_towards_the_maximum() {
    const MAX: usize = Semaphore::MAX_PERMITS;
    let semaphore = Semaphore::new(MAX);
    let refused = |count| {
        let add = AssertUnwindSafe(|| semaphore.add_permits(count));
        assert!(catch_unwind(add).is_err(), "{count} more");
    };
    let all = semaphore.acquire_many(MAX);
    for count in [1, MAX, usize::MAX] {
        refused(count);
    }
    drop(all);
    assert_eq!(semaphore.available(), MAX);
    semaphore.acquire_many(7).forget();
    refused(8);
    semaphore.add_permits(7);
    refused(1);
    assert_eq!(semaphore.available(), MAX);
}
