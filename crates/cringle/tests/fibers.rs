//! Fibers behave as std's threads do.

use cringle::fiber;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn run_returns_the_closures_value() {
    assert_eq!(cringle::run(|| 42), 42);
}

#[test]
fn run_lends_the_callers_frame() {
    let text = String::from("mine");
    let cell = Cell::new(0);
    cringle::run(|| cell.set(text.len()));
    assert_eq!(cell.get(), 4);
}

#[test]
fn run_propagates_the_closures_panic() {
    let caught = std::panic::catch_unwind(|| cringle::run(|| panic!("mine")));
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "mine");
}

#[test]
fn a_thousand_fibers_on_two_workers_all_run() {
    let count = AtomicUsize::new(0);
    let builder = cringle::Builder::new().workers(2);
    builder
        .run(|| {
            fiber::scope(|s| {
                for _ in 0..1000 {
                    s.spawn(|| {
                        fiber::yield_now();
                        count.fetch_add(1, Ordering::Relaxed)
                    });
                }
            });
        })
        .unwrap();
    assert_eq!(count.into_inner(), 1000);
}

#[test]
fn local_fibers_run_first_come_first_served() {
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
fn a_panic_reaches_join_with_its_payload() {
    cringle::run(|| {
        let result = fiber::spawn(|| -> () { std::panic::panic_any(17) }).join();
        assert_eq!(*result.unwrap_err().downcast::<i32>().unwrap(), 17);
    });
}

#[test]
fn what_is_left_when_run_returns_is_cancelled_and_waited_for() {
    struct Note<'a>(&'a Cell<bool>);
    impl Drop for Note<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let dropped: &'static Cell<bool> = Box::leak(Box::new(Cell::new(false)));
    cringle::run(|| {
        fiber::spawn_local(|| {
            let _note = Note(dropped);
            fiber::sleep(Duration::from_secs(3600));
        });
        fiber::yield_now();
    });
    assert!(dropped.get());
}

#[test]
fn unpark_crosses_workers_and_threads() {
    cringle::Builder::new()
        .workers(2)
        .run(|| {
            let main = fiber::current();
            for n in 0..100 {
                let main = main.clone();
                if n % 2 == 0 {
                    fiber::Builder::new().worker(1).spawn(move || main.unpark()).unwrap();
                } else {
                    std::thread::spawn(move || main.unpark());
                }
                fiber::park();
            }
        })
        .unwrap();
}

#[test]
fn unblock_runs_elsewhere_and_may_borrow() {
    let text = String::from("borrowed");
    let seen = cringle::run(|| fiber::unblock(|| (text.len(), std::thread::current().id())));
    assert_eq!(seen.0, 8);
    assert_ne!(seen.1, std::thread::current().id());
}

#[test]
fn spawning_outside_of_run_says_what_to_wrap() {
    let caught = std::panic::catch_unwind(|| fiber::spawn(|| ()));
    let message = *caught.unwrap_err().downcast::<&str>().unwrap();
    assert!(message.contains("cringle::run(|| …)"), "{message}");
}
