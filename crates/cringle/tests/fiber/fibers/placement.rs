//! The worker and the order in which fibers run.

use cringle::runtime::Balance;
use cringle::{Builder, fiber, runtime};
use cringle_testing::tools::on_two_workers;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    let builder = Builder::new().workers(2).balance(Balance::Fixed);
    let run = builder.run(|| {
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
    run.unwrap();
}
