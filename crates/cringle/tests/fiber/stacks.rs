//! The address space of stacks, and fibers that cannot get a stack. Each test lowers a limit or
//! counts mappings, so it runs in its own process.

use cringle::{Builder, fiber, sync, time};
use cringle_testing::child;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

fn address_space() -> usize {
    child::status_kib("VmSize:") as usize * 1024
}

/// Limits the address space to `bytes` more than the process uses now.
fn limit_address_space(bytes: usize) {
    child::limit(libc::RLIMIT_AS, (address_space() + bytes) as u64).unwrap();
}

fn with_stack(bytes: usize) -> fiber::Builder {
    fiber::Builder::new().stack_size(bytes)
}

/// Asserts that the payload is the error of a fiber that got no stack.
fn assert_no_stack(payload: &(dyn Any + Send)) {
    let error = payload.downcast_ref::<io::Error>().expect("the error is the payload");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("RLIMIT_AS"), "{error}");
}

#[test]
#[cfg_attr(cringle_sanitizer, ignore = "AddressSanitizer has mappings of its own")]
fn successive_large_stacks_share_address_space() {
    child::must_succeed("successive_large_stacks_share_address_space", || {
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
fn idle_stacks_of_all_sizes_are_bounded() {
    child::must_succeed("idle_stacks_of_all_sizes_are_bounded", || {
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
fn idle_stacks_release_address_space() {
    child::must_succeed("idle_stacks_release_address_space", || {
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
fn join_returns_error_of_fiber_without_stack() {
    child::must_succeed("join_returns_error_of_fiber_without_stack", || {
        for workers in [2, 1] {
            let run = Builder::new().workers(workers).run(|| {
                if workers == 2 {
                    limit_address_space(100 * MIB);
                }
                let refused = with_stack(GIB).spawn_local(|| ()).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
                for worker in 0..workers {
                    let handle = with_stack(GIB).worker(worker).spawn(|| ()).unwrap();
                    assert_no_stack(&*handle.join().unwrap_err());
                }
                let handle = with_stack(GIB).spawn(|| ()).unwrap();
                assert_no_stack(&*handle.join().unwrap_err());
                // The runtime still works.
                assert_eq!(fiber::spawn(|| 1).join().unwrap(), 1);
            });
            run.unwrap();
        }
    });
}

/// The main fiber waits, by a channel, for the fiber that cannot start, while another fiber runs.
#[test]
fn fiber_without_stack_fails_while_others_run() {
    child::must_succeed("fiber_without_stack_fails_while_others_run", || {
        let run = Builder::new().workers(1).run(|| {
            limit_address_space(100 * MIB);
            fiber::scope(|s| {
                s.spawn_daemon_local(|| {
                    loop {
                        fiber::sleep(Duration::from_millis(1));
                    }
                });
                let (sender, receiver) = sync::mpsc::channel::<u8>();
                let handle = with_stack(GIB).spawn(move || sender.send(1)).unwrap();
                // Its closure is dropped, and the only sender with it.
                assert!(receiver.recv().is_err());
                assert_no_stack(&*handle.join().unwrap_err());
            });
        });
        run.unwrap();
    });
}

#[test]
fn scope_panics_when_fiber_has_no_stack() {
    child::must_succeed("scope_panics_when_fiber_has_no_stack", || {
        let run = Builder::new().workers(1).run(|| {
            limit_address_space(100 * MIB);
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

/// Dropping each fiber's closure waits, which needs a stack. All closures share one.
#[test]
fn all_fibers_without_stacks_fail() {
    struct Waits<'a>(&'a AtomicUsize);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            time::sleep(Duration::from_micros(1)).unwrap();
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    child::must_succeed("all_fibers_without_stacks_fail", || {
        let dropped = AtomicUsize::new(0);
        let run = Builder::new().workers(1).run(|| {
            limit_address_space(50 * MIB);
            fiber::scope(|s| {
                let spawn = |_| {
                    let waits = Waits(&dropped);
                    with_stack(GIB).spawn_scoped(s, move || drop(waits)).unwrap()
                };
                let handles: Vec<_> = (0..500).map(spawn).collect();
                for handle in handles {
                    assert_no_stack(&*handle.join().unwrap_err());
                }
            });
        });
        run.unwrap();
        assert_eq!(dropped.into_inner(), 500);
    });
}

/// The calling fiber works alone, whether the items fit into the queue or not.
#[test]
fn par_map_workers_works_without_stacks() {
    child::must_succeed("par_map_workers_works_without_stacks", || {
        let run = Builder::new().workers(2).run(|| {
            limit_address_space(100 * MIB);
            fiber::scope(|s| {
                while fiber::Builder::new().spawn_scoped_local(s, fiber::park).is_ok() {}
                for items in [5, 100] {
                    let twice = fiber::par_map_workers(0..items, 10, |n| n * 2);
                    assert!(twice.into_iter().eq((0..items).map(|n| n * 2)));
                }
                s.cancel();
            });
        });
        run.unwrap();
    });
}

/// Ends the process, unless the flag is set after some turns.
fn exit_unless(is_over: &Cell<bool>) {
    (0..10_000).take_while(|_| !is_over.get()).for_each(|_| fiber::yield_now());
    if !is_over.get() {
        eprintln!("a fiber of the crew waits for items for ever");
        std::process::exit(1);
    }
}

/// The first fiber of the crew gets no stack, and the next one does.
#[test]
fn par_map_workers_ends_when_stacks_return() {
    child::must_succeed("par_map_workers_ends_when_stacks_return", || {
        let is_over = Cell::new(false);
        let run = Builder::new().workers(1).run(|| {
            limit_address_space(100 * MIB);
            fiber::scope(|s| {
                let parked = RefCell::new(Vec::new());
                let park = || fiber::Builder::new().spawn_scoped_local(s, fiber::park).ok();
                parked.borrow_mut().extend(std::iter::from_fn(park));
                let items = (0..100).inspect(|&n| {
                    if n != 1 {
                        return;
                    }
                    // Fails after the fiber that was hired for the first item.
                    assert_no_stack(&*s.spawn(|| ()).join().unwrap_err());
                    for handle in parked.take() {
                        handle.thread().unpark();
                        handle.join().unwrap();
                    }
                    s.spawn_local(|| exit_unless(&is_over));
                });
                let twice = fiber::par_map_workers(items, 10, |n| n * 2);
                assert!(twice.into_iter().eq((0..100).map(|n| n * 2)));
                is_over.set(true);
            });
        });
        run.unwrap();
    });
}

/// The fibers that have stacks wait until all fibers have started.
#[test]
fn fiber_without_stack_wakes_its_waiters() {
    child::must_succeed("fiber_without_stack_wakes_its_waiters", || {
        let run = Builder::new().workers(1).run(|| {
            limit_address_space(100 * MIB);
            let (sender, receiver) = sync::mpsc::channel::<()>();
            let handles: Vec<_> = (0..200)
                .map(|_| {
                    let sender = sender.clone();
                    with_stack(MIB).spawn(move || {
                        let _sender = sender;
                        fiber::park();
                    })
                })
                .collect::<io::Result<_>>()
                .unwrap();
            drop(sender);
            while !handles.iter().any(|handle| handle.is_finished()) {
                fiber::sleep(Duration::from_millis(1));
            }
            handles.iter().for_each(|handle| handle.thread().unpark());
            assert!(receiver.recv().is_err());
            let results = handles.into_iter().map(fiber::JoinHandle::join);
            let failures =
                results.filter_map(Result::err).inspect(|e| assert_no_stack(&**e)).count();
            assert!((1..200).contains(&failures), "{failures}");
        });
        run.unwrap();
    });
}
