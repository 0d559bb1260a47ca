//! `Mutex` and poisoning.

use super::everywhere;
use cringle::fiber;
use cringle::sync::{Condvar, Mutex, RwLock, TryLockError};
use cringle_testing::tools::{on_one_worker, yield_times};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

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
