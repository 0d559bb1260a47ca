//! Fibers that unwind.

use cringle::fiber;
use cringle_testing::tools::on_one_worker;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
