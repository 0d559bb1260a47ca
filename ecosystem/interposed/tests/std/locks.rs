//! `std::sync` and `std::thread`.

use cringle_ecosystem_interposed::{WAIT, Waits};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock};
use std::thread;

/// All jobs of the program use one mutex, and hold it while they sleep now and then.
fn one_mutex_for_all(n: usize, waits: &Waits) {
    static COUNT: Mutex<usize> = Mutex::new(0);
    for round in 0..20 {
        let mut count = COUNT.lock().unwrap();
        let before = *count;
        if (n + round).is_multiple_of(100) {
            thread::sleep(WAIT / 100);
        } else {
            thread::yield_now();
        }
        *count = before + 1;
    }
    waits.during(|| thread::sleep(WAIT));
    assert!(*COUNT.lock().unwrap() >= 20);
}

fn condition_variables(_: usize, waits: &Waits) {
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    let other = Arc::clone(&pair);
    let notifier = thread::spawn(move || {
        thread::sleep(WAIT);
        *other.0.lock().unwrap() = true;
        other.1.notify_one();
    });
    let (lock, condition) = &*pair;
    let started = lock.lock().unwrap();
    let started = waits.during(|| condition.wait_while(started, |started| !*started).unwrap());
    assert!(*started);
    let (started, result) = condition.wait_timeout(started, WAIT).unwrap();
    assert!(result.timed_out() && *started);
    notifier.join().unwrap();
}

fn scoped_threads(n: usize, waits: &Waits) {
    let (mut numbers, mut sum) = (vec![n; 3], 0);
    waits.during(|| {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(WAIT);
                numbers.push(1);
            });
            scope.spawn(|| sum += 2);
        });
    });
    assert_eq!((numbers.len(), sum), (4, 2));
}

fn park_and_unpark(_: usize, waits: &Waits) {
    let parked = thread::current();
    let flag = Arc::new(OnceLock::new());
    let unparker = {
        let flag = Arc::clone(&flag);
        thread::spawn(move || {
            thread::sleep(WAIT);
            flag.set(()).unwrap();
            parked.unpark();
        })
    };
    waits.during(|| {
        while flag.get().is_none() {
            thread::park();
        }
    });
    thread::park_timeout(WAIT / 10);
    unparker.join().unwrap();
}

fn barriers_and_once(n: usize, waits: &Waits) {
    static LAZY: LazyLock<usize> = LazyLock::new(|| {
        thread::sleep(WAIT);
        7
    });
    static ONCE: Once = Once::new();
    let value = waits.during(|| {
        let value = *LAZY;
        // The job that came last waited less than the first.
        thread::sleep(WAIT);
        value
    });
    assert_eq!(value, 7);
    ONCE.call_once(|| thread::sleep(WAIT / 10));
    assert!(ONCE.is_completed());
    let barrier = Arc::new(Barrier::new(2));
    let other = Arc::clone(&barrier);
    let leader = thread::spawn(move || other.wait().is_leader());
    assert!(barrier.wait().is_leader() ^ leader.join().unwrap(), "{n}");
}

fn readers_and_writers(n: usize, waits: &Waits) {
    static SHARED: RwLock<(usize, usize)> = RwLock::new((0, 0));
    for round in 0..20 {
        if (n + round).is_multiple_of(4) {
            let mut pair = SHARED.write().unwrap();
            pair.0 += 1;
            thread::yield_now();
            pair.1 += 1;
        } else {
            let pair = SHARED.read().unwrap();
            let before = *pair;
            thread::yield_now();
            assert_eq!((before.0, before.1), (pair.1, pair.0));
        }
    }
    waits.during(|| thread::sleep(WAIT));
}

/// Each job has its own thread-locals, also over a wait.
fn thread_locals(n: usize, waits: &Waits) {
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
        static TEXTS: RefCell<Vec<String>> = RefCell::new(vec!["first".into()]);
    }
    assert_eq!(NUMBER.replace(n), usize::MAX);
    TEXTS.with_borrow_mut(|texts| {
        texts.push(format!("before {n}"));
        waits.during(|| thread::sleep(WAIT));
        texts.push(format!("after {n}"));
    });
    assert_eq!(NUMBER.get(), n);
    assert_eq!(TEXTS.take()[1..], [format!("before {n}"), format!("after {n}")]);
    assert_eq!(thread::current().id(), thread::current().id());
}

crate::programs! {
    one_mutex_for_all, condition_variables, scoped_threads, park_and_unpark, barriers_and_once,
    readers_and_writers, thread_locals
}
