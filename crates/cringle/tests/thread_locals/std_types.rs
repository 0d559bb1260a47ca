//! std's types that rely on thread-locals, on fibers that wait.

use super::with_private;
use cringle::fiber;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_thread_local_is_the_familys() {
    thread_local! {
        static VALUE: Cell<u32> = const { Cell::new(0) };
    }
    with_private(|| {
        VALUE.set(1);
        let others: Vec<_> = (0..10)
            .map(|number| {
                fiber::spawn(move || {
                    assert_eq!(VALUE.get(), 0, "a founder begins with initial values");
                    VALUE.set(10 + number);
                    fiber::yield_now();
                    assert_eq!(VALUE.get(), 10 + number);
                    let child = fiber::spawn_local(move || {
                        assert_eq!(VALUE.get(), 10 + number, "a local fiber shares them");
                        VALUE.set(100 + number);
                        fiber::yield_now();
                    });
                    child.join().unwrap();
                    assert_eq!(VALUE.get(), 100 + number);
                })
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(VALUE.get(), 1);
        fiber::spawn_local(|| assert_eq!(VALUE.replace(2), 1)).join().unwrap();
        assert_eq!(VALUE.get(), 2);
    });
}

#[test]
fn a_ref_cell_may_be_borrowed_over_a_wait() {
    thread_local! {
        static VALUE: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }
    with_private(|| {
        fiber::scope(|s| {
            for number in 0..10 {
                s.spawn(move || {
                    VALUE.with_borrow_mut(|values| {
                        values.push(number);
                        fiber::yield_now();
                        assert_eq!(values.as_slice(), [number]);
                    });
                });
            }
        });
    });
}

#[test]
fn one_fiber_at_a_time_has_the_lock_of_standard_error() {
    let inside = AtomicUsize::new(0);
    with_private(|| {
        fiber::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    // A fiber that has to wait for this lock blocks its worker, so the holder
                    // does not wait meanwhile.
                    let mut lock = std::io::stderr().lock();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    lock.write_all(b"").unwrap();
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    });
}

#[test]
fn destructors_run_at_the_end_of_the_fiber() {
    struct Counts<'a>(&'a AtomicUsize);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            fiber::yield_now();
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static VALUE: Counts<'static> = const { Counts(&DROPPED) };
    }
    with_private(|| {
        DROPPED.store(0, Ordering::SeqCst);
        for number in 1..=300 {
            fiber::spawn(|| VALUE.with(|_| ())).join().unwrap();
            assert_eq!(DROPPED.load(Ordering::SeqCst), number, "before `join` returns");
        }
    });
}

#[test]
fn current_thread_differs() {
    with_private(|| {
        let mine = std::thread::current().id();
        let others: Vec<_> = (0..3).map(|_| fiber::spawn(|| std::thread::current().id())).collect();
        let mut ids: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
        ids.push(mine);
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), 4, "{ids:?}");
    });
}
