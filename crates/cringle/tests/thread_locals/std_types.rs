//! std's types that rely on thread-locals, on fibers that wait.

use super::{on_workers, with_private};
use cringle::fiber;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::sync::Mutex;
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

/// As a thread does with the result of a closure whose handle is gone.
#[test]
fn an_unwanted_result_is_dropped_before_thread_locals() {
    thread_local! {
        static LOG: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }
    static SEEN: Mutex<Vec<Vec<u32>>> = Mutex::new(Vec::new());
    struct Logs(u32);
    impl Drop for Logs {
        fn drop(&mut self) {
            LOG.with_borrow_mut(|log| log.push(self.0));
            SEEN.lock().unwrap().push(LOG.with_borrow(Clone::clone));
        }
    }
    fn log_first() {
        LOG.with_borrow_mut(|log| log.push(0));
    }
    // On one worker, a handle is dropped before its fiber starts.
    on_workers(1, || {
        fiber::scope(|s| {
            drop(s.spawn(|| {
                log_first();
                Logs(1)
            }));
            drop(s.spawn_local(|| {
                log_first();
                Logs(2)
            }));
        });
        let ended = std::sync::Arc::new(());
        let kept = std::sync::Arc::clone(&ended);
        drop(fiber::spawn(move || {
            log_first();
            (Logs(3), kept)
        }));
        drop(fiber::spawn(|| -> () {
            log_first();
            fiber::resume_unwind(Box::new(Logs(4)))
        }));
        while std::sync::Arc::strong_count(&ended) > 1 || SEEN.lock().unwrap().len() < 4 {
            fiber::yield_now();
        }
        let mut seen = std::mem::take(&mut *SEEN.lock().unwrap());
        seen.sort();
        assert_eq!(seen, [[0, 1], [0, 2], [0, 3], [0, 4]]);
        LOG.take();
    });
}

/// As with a thread, the code that drops the handle drops the result then.
#[test]
fn a_handle_may_be_dropped_while_destructors_of_thread_locals_run() {
    use cringle::sync::mpsc::{Receiver, Sender, channel};
    thread_local! {
        static LOG: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
        static HOLD: RefCell<Option<Hold>> = const { RefCell::new(None) };
    }
    struct Hold(Sender<()>, Receiver<()>);
    impl Drop for Hold {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }
    struct Logs(u32);
    impl Drop for Logs {
        fn drop(&mut self) {
            LOG.with_borrow_mut(|log| log.push(self.0));
        }
    }
    // The fiber's closure, a receiver of the begin of its destructors, and a sender to end them.
    let fiber = |number| {
        let (begin, begun) = channel();
        let (go_on, end) = channel();
        let body = move || {
            LOG.with_borrow_mut(|log| log.push(0));
            HOLD.set(Some(Hold(begin, end)));
            Logs(number)
        };
        (body, begun, go_on)
    };
    with_private(|| {
        let (body, begun, go_on) = fiber(1);
        let handle = fiber::spawn(body);
        begun.recv().unwrap();
        assert!(!handle.is_finished(), "it ends after the destructors");
        drop(handle);
        assert_eq!(LOG.take(), [1]);
        go_on.send(()).unwrap();
        let scope = || {
            fiber::scope(|s| {
                let (body, begun, go_on) = fiber(2);
                let handle = s.spawn(move || -> () { fiber::resume_unwind(Box::new(body())) });
                begun.recv().unwrap();
                drop(handle);
                assert_eq!(LOG.take(), [2]);
                go_on.send(()).unwrap();
            });
        };
        assert!(fiber::catch_unwind(scope).is_err(), "nobody joined the fiber that panicked");
    });
}
