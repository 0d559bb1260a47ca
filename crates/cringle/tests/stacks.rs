//! Stacks of fibers: how much address space they keep, and what becomes of a fiber that can have none. Each test
//! lowers a limit or counts mappings, and so runs in a process of its own.

mod child;

use cringle::{Builder, fiber, sync, time};
use std::any::Any;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

fn address_space() -> usize {
    child::status_kib("VmSize:") as usize * 1024
}

/// Leaves this process this much more address space than it has now.
fn leave(bytes: usize) {
    child::limit(libc::RLIMIT_AS, (address_space() + bytes) as u64).unwrap();
}

fn with_stack(bytes: usize) -> fiber::Builder {
    fiber::Builder::new().stack_size(bytes)
}

/// What the handle of a fiber without a stack returns.
fn no_stack(payload: &(dyn Any + Send)) -> &io::Error {
    let error = payload.downcast_ref::<io::Error>().expect("the error is the payload");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("RLIMIT_AS"), "{error}");
    error
}

#[test]
fn large_stacks_in_turn_need_the_space_of_one() {
    child::must_succeed("large_stacks_in_turn_need_the_space_of_one", || {
        child::limit(libc::RLIMIT_AS, 8_000_000 * 1024).unwrap();
        for workers in [1, 2] {
            let run = Builder::new().workers(workers).run(|| {
                for n in 0..12 {
                    for bytes in [GIB, GIB - n * 4096, GIB + n * 4096] {
                        let handle = with_stack(bytes).spawn(move || n).unwrap();
                        assert_eq!(handle.join().unwrap(), n);
                        let handle = with_stack(bytes).spawn_local(move || n).unwrap();
                        assert_eq!(handle.join().unwrap(), n);
                    }
                }
            });
            run.unwrap();
        }
    });
}

#[test]
fn stacks_of_many_sizes_keep_a_bounded_address_space() {
    child::must_succeed("stacks_of_many_sizes_keep_a_bounded_address_space", || {
        let run = Builder::new().workers(1).run(|| {
            let before = (address_space(), child::Footprint::now().mappings);
            for n in 0..20_000 {
                with_stack(n * 4096).spawn_local(|| ()).unwrap().join().unwrap();
            }
            let kept = address_space() - before.0;
            assert!(kept < 2 * GIB, "{} MiB are kept", kept / MIB);
            let mappings = child::Footprint::now().mappings - before.1;
            assert!(mappings < 200, "{mappings} mappings are kept");
        });
        run.unwrap();
    });
}

#[test]
fn a_crowd_gives_its_address_space_back() {
    child::must_succeed("a_crowd_gives_its_address_space_back", || {
        let run = Builder::new().workers(1).run(|| {
            let before = address_space();
            for _ in 0..2 {
                fiber::scope(|s| {
                    (0..5000).for_each(|_| drop(s.spawn_local(fiber::yield_now)));
                    fiber::yield_now();
                    assert!(address_space() - before > 5000 * MIB);
                });
                let kept = address_space() - before;
                assert!(kept < 2 * GIB, "{} MiB are kept", kept / MIB);
            }
        });
        run.unwrap();
    });
}

#[test]
fn a_fiber_without_a_stack_is_an_error_of_its_join() {
    child::must_succeed("a_fiber_without_a_stack_is_an_error_of_its_join", || {
        for workers in [2, 1] {
            let run = Builder::new().workers(workers).run(|| {
                if workers == 2 {
                    leave(100 * MIB);
                }
                let refused = with_stack(GIB).spawn_local(|| ()).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
                for placed in 0..workers {
                    let handle = with_stack(GIB).worker(placed).spawn(|| ()).unwrap();
                    no_stack(&*handle.join().unwrap_err());
                }
                let handle = with_stack(GIB).spawn(|| ()).unwrap();
                no_stack(&*handle.join().unwrap_err());
                // The runtime goes on.
                assert_eq!(fiber::spawn(|| 1).join().unwrap(), 1);
            });
            run.unwrap();
        }
    });
}

/// What waits for the one that cannot be started may be anything; and there is always somebody else who runs.
#[test]
fn a_fiber_without_a_stack_fails_though_others_run() {
    child::must_succeed("a_fiber_without_a_stack_fails_though_others_run", || {
        let run = Builder::new().workers(1).run(|| {
            leave(100 * MIB);
            fiber::scope(|s| {
                s.spawn_daemon_local(|| {
                    loop {
                        fiber::sleep(Duration::from_millis(1));
                    }
                });
                let (sender, receiver) = sync::mpsc::channel::<u8>();
                let handle = with_stack(GIB).spawn(move || sender.send(1)).unwrap();
                // Its closure is dropped, and with it the only sender.
                assert!(receiver.recv().is_err());
                no_stack(&*handle.join().unwrap_err());
            });
        });
        run.unwrap();
    });
}

#[test]
fn a_scope_ends_by_the_panic_of_a_fiber_without_a_stack() {
    child::must_succeed("a_scope_ends_by_the_panic_of_a_fiber_without_a_stack", || {
        let run = Builder::new().workers(1).run(|| {
            leave(100 * MIB);
            let scope = || {
                fiber::scope(|s| {
                    drop(with_stack(GIB).spawn_scoped(s, || ()).unwrap());
                });
            };
            let payload = fiber::catch_unwind(scope).unwrap_err();
            assert_eq!(*payload.downcast::<&str>().unwrap(), "a scoped fiber panicked");
        });
        run.unwrap();
    });
}

/// Each drops a value that waits, which takes a stack: there is one for all.
#[test]
fn many_fibers_without_stacks_all_fail() {
    struct Waits<'a>(&'a AtomicUsize);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            time::sleep(Duration::from_micros(1)).unwrap();
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    child::must_succeed("many_fibers_without_stacks_all_fail", || {
        let dropped = AtomicUsize::new(0);
        let run = Builder::new().workers(1).run(|| {
            leave(50 * MIB);
            fiber::scope(|s| {
                let spawn = |_| {
                    let waits = Waits(&dropped);
                    with_stack(GIB).spawn_scoped(s, move || drop(waits)).unwrap()
                };
                let handles: Vec<_> = (0..500).map(spawn).collect();
                for handle in handles {
                    no_stack(&*handle.join().unwrap_err());
                }
            });
        });
        run.unwrap();
        assert_eq!(dropped.into_inner(), 500);
    });
}

/// Those that have stacks do not end before all have come.
#[test]
fn fibers_that_wait_for_one_without_a_stack_see_it_fail() {
    child::must_succeed("fibers_that_wait_for_one_without_a_stack_see_it_fail", || {
        let run = Builder::new().workers(1).run(|| {
            leave(100 * MIB);
            let (leave, all_left) = sync::mpsc::channel::<()>();
            let handles: Vec<_> = (0..200)
                .map(|_| {
                    let leave = leave.clone();
                    with_stack(MIB).spawn(move || {
                        let _member = leave;
                        fiber::park();
                    })
                })
                .collect::<io::Result<_>>()
                .unwrap();
            drop(leave);
            let failed: Vec<_> = handles.iter().collect();
            while !failed.iter().any(|handle| handle.is_finished()) {
                fiber::sleep(Duration::from_millis(1));
            }
            failed.iter().for_each(|handle| handle.thread().unpark());
            assert!(all_left.recv().is_err());
            let results = handles.into_iter().map(fiber::JoinHandle::join);
            let failures = results.filter_map(Result::err).inspect(|e| _ = no_stack(&**e)).count();
            assert!((1..200).contains(&failures), "{failures}");
        });
        run.unwrap();
    });
}
