//! The end of `run` cancels the remaining fibers: the effect on each call.

use cringle::fs::File;
use cringle::io::{Interest, ready};
use cringle::{Builder, Cancelled, fiber};
use cringle_testing::child;
use cringle_testing::tools::{is_cancelled, on_one_worker, yield_times};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Returns a pipe: the reading end is a file of the library.
fn pipe() -> (File, io::PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    (OwnedFd::from(reader).into(), writer)
}

/// Asserts that a fiber that waits when the closure of `run` returns is unwound by a `Cancelled`.
fn assert_unwinds(wait: impl FnOnce() + 'static) {
    let handle = on_one_worker(|| {
        let handle = fiber::spawn_local(wait);
        yield_times(3);
        assert!(!handle.is_finished());
        handle
    });
    assert!(handle.join().unwrap_err().is::<Cancelled>());
}

#[test]
fn park_is_unwound() {
    assert_unwinds(|| {
        loop {
            fiber::park();
        }
    });
    assert_unwinds(|| {
        loop {
            fiber::park_timeout(Duration::from_secs(3600));
        }
    });
}

#[test]
fn sleep_is_unwound() {
    assert_unwinds(|| fiber::sleep(Duration::from_secs(3600)));
    assert_unwinds(|| fiber::sleep(Duration::MAX));
}

#[test]
fn yield_is_unwound() {
    assert_unwinds(|| {
        loop {
            fiber::yield_now();
        }
    });
}

#[test]
fn join_is_unwound_together_with_its_fiber() {
    let other = Rc::new(RefCell::new(None));
    let joined = Rc::clone(&other);
    assert_unwinds(move || {
        let forever = fiber::spawn_local(|| fiber::sleep(Duration::MAX));
        *joined.borrow_mut() = Some(forever.thread().clone());
        drop(forever.join());
        unreachable!("a cancelled join does not return");
    });
    other.borrow().as_ref().unwrap().unpark();
}

/// Nothing is written to stderr, because a cancel is no panic of the program.
#[test]
fn scope_of_cancelled_fibers_is_unwound_silently() {
    let name = "scope_of_cancelled_fibers_is_unwound_silently";
    let Some(output) = child::run(name) else {
        assert_unwinds(|| {
            fiber::scope(|s| {
                s.spawn_local(|| fiber::sleep(Duration::MAX));
                s.spawn(fiber::park);
            });
            unreachable!("a cancelled scope does not return");
        });
        return;
    };
    assert!(output.status.success(), "{}", child::transcript(&output));
    assert!(!child::transcript(&output).contains("panicked"), "{}", child::transcript(&output));
}

#[test]
fn panic_wins_over_cancel_of_a_sibling() {
    let handle = on_one_worker(|| {
        let handle = fiber::spawn_local(|| {
            fiber::scope(|s| {
                s.spawn_local(|| fiber::sleep(Duration::MAX));
                s.spawn_local(|| resume_unwind(Box::new(1)));
            });
        });
        yield_times(3);
        handle
    });
    let payload = handle.join().unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(*payload, "a scoped fiber panicked");
}

#[test]
fn cancelled_read_returns_error_with_cancelled() {
    let (reader, writer) = pipe();
    let handle = on_one_worker(|| {
        let handle = fiber::spawn_local(move || (&reader).read(&mut [0]).unwrap_err());
        fiber::yield_now();
        fiber::yield_now();
        handle
    });
    drop(writer);
    let error = handle.join().unwrap();
    assert!(is_cancelled(&error), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Other, "std's loops would retry `Interrupted`");
}

#[test]
fn wait_for_readiness_returns_cancelled() {
    let (reader, _writer) = pipe();
    let handle = on_one_worker(|| {
        let handle = fiber::spawn_local(move || ready(&reader, Interest::READABLE).unwrap_err());
        fiber::yield_now();
        fiber::yield_now();
        handle
    });
    assert!(is_cancelled(&handle.join().unwrap()));
}

#[test]
fn cancel_is_sticky() {
    let exe = std::fs::File::open("/proc/self/exe").unwrap();
    let handle = on_one_worker(|| {
        let file = File::from(exe);
        fiber::spawn_local(move || {
            let parked = catch_unwind(fiber::park).unwrap_err();
            let slept = catch_unwind(|| fiber::sleep(Duration::ZERO)).unwrap_err();
            let yielded = catch_unwind(fiber::yield_now).unwrap_err();
            let errors = [
                file.read_at(&mut [0], 0).map(drop).unwrap_err(),
                file.sync_all().unwrap_err(),
                file.metadata().map(drop).unwrap_err(),
                File::open("/proc/self/exe").map(drop).unwrap_err(),
            ];
            ([parked, slept, yielded], errors)
        })
    });
    let (payloads, errors) = handle.join().unwrap();
    assert!(payloads.iter().all(|payload| payload.is::<Cancelled>()));
    assert!(errors.iter().all(is_cancelled), "{errors:?}");
}

/// The bytes are either returned by the cancelled read or still in the pipe.
#[test]
fn cancel_loses_no_byte_that_was_read() {
    let (mut read, mut cancelled) = (0, 0);
    for turns in (0..4).cycle().take(200) {
        let (reader, mut writer) = pipe();
        let handle = on_one_worker(|| {
            let handle = fiber::spawn_local(move || {
                let first = (&reader).read(&mut [0; 4]);
                (first, reader)
            });
            fiber::yield_now();
            io::Write::write_all(&mut writer, b"data").unwrap();
            (0..turns).for_each(|_| fiber::yield_now());
            handle
        });
        match handle.join().unwrap() {
            (Ok(count), _) => {
                assert_eq!(count, 4);
                read += 1;
            }
            (Err(error), reader) => {
                assert!(is_cancelled(&error), "{error:?}");
                let mut data = [0; 4];
                assert_eq!((&reader).read(&mut data).unwrap(), 4);
                assert_eq!(&data, b"data");
                cancelled += 1;
            }
        }
    }
    println!("{read} read, {cancelled} cancelled");
}

/// A loop that logs every error and retries, as an acceptor does, cannot spin for ever.
#[test]
fn loop_is_unwound_after_thousand_ignored_refusals() {
    let refusals = Rc::new(Cell::new(0));
    let counter = Rc::clone(&refusals);
    let (reader, _writer) = pipe();
    let handle = on_one_worker(|| {
        fiber::spawn_local(move || {
            loop {
                if (&reader).read(&mut [0]).is_err() {
                    counter.set(counter.get() + 1);
                }
            }
        })
    });
    assert!(handle.join().unwrap_err().is::<Cancelled>());
    assert_eq!(refusals.get(), 1000);
}

/// The refusals are counted although the loop logs each in a protected call.
#[test]
fn protected_call_does_not_reset_count_of_refusals() {
    let refusals = Rc::new(Cell::new(0));
    let counter = Rc::clone(&refusals);
    let (reader, _writer) = pipe();
    let handle = on_one_worker(|| {
        fiber::spawn_local(move || {
            while counter.get() < 5000 {
                (&reader).read(&mut [0]).unwrap_err();
                fiber::protect(|| fiber::scope(|_| counter.set(counter.get() + 1)));
            }
        })
    });
    assert!(handle.join().unwrap_err().is::<Cancelled>());
    assert_eq!(refusals.get(), 1000);
}

#[test]
fn unblock_is_not_cancelled_and_returns_its_value() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let handle = Builder::new().workers(2).run(|| {
        let handle = fiber::spawn_local(|| fiber::unblock(move || receiver.recv().unwrap()));
        fiber::yield_now();
        // This fiber sends only when `run` ends, after it was cancelled.
        fiber::spawn(move || {
            catch_unwind(fiber::park).unwrap_err();
            sender.send("value").unwrap();
        });
        handle
    });
    assert_eq!(handle.unwrap().join().unwrap(), "value");
}

// ----- destructors -----

/// A value whose destructor waits in every way.
struct Waits(Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        fiber::yield_now();
        fiber::sleep(Duration::from_millis(1));
        let (reader, mut writer) = pipe();
        io::Write::write_all(&mut writer, b"x").unwrap();
        assert_eq!((&reader).read(&mut [0]).unwrap(), 1);
        fiber::current().unpark();
        fiber::park();
        fiber::unblock(|| ());
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Many fibers of a worker unwind at the same time, each suspended in its destructor.
#[test]
fn destructors_of_cancelled_fibers_can_wait() {
    child::must_succeed("destructors_of_cancelled_fibers_can_wait", || {
        let completed = Arc::new(AtomicUsize::new(0));
        Builder::new()
            .workers(2)
            .run(|| {
                for n in 0..40 {
                    let waits = Waits(Arc::clone(&completed));
                    let wait = move || {
                        let _waits = waits;
                        match n % 4 {
                            0 => fiber::park(),
                            1 => fiber::sleep(Duration::MAX),
                            2 => {
                                drop(fiber::spawn(fiber::park).join());
                                // If the other one was cancelled first.
                                fiber::park();
                            }
                            _ => loop {
                                fiber::yield_now();
                            },
                        }
                    };
                    fiber::Builder::new().worker(n % 2).spawn(wait).unwrap();
                }
                yield_times(3);
            })
            .unwrap();
        assert_eq!(completed.load(Ordering::SeqCst), 40);
    });
}

/// The fiber has waited in a destructor while it unwound, and has caught the panic. Other fibers
/// may unwind at that moment, so that the thread's count of panics does not show that it has ended.
#[test]
fn fiber_can_be_cancelled_after_a_caught_panic() {
    struct WaitsFor<'a>(&'a Cell<bool>);
    impl Drop for WaitsFor<'_> {
        fn drop(&mut self) {
            while !self.0.get() {
                fiber::yield_now();
            }
        }
    }
    fn read() {
        let (reader, _writer) = pipe();
        assert!(is_cancelled(&(&reader).read(&mut [0]).unwrap_err()));
        fiber::yield_now();
    }
    let waits: [fn(); 3] = [fiber::park, || fiber::sleep(Duration::MAX), read];
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let handles = on_one_worker(|| {
            let go: Rc<[Cell<bool>; 3]> = Rc::default();
            let caught = Rc::new(Cell::new(0));
            let handles = [0, 1, 2].map(|n| {
                let (go, caught) = (Rc::clone(&go), Rc::clone(&caught));
                fiber::spawn_local(move || {
                    let unwinds = AssertUnwindSafe(|| {
                        let _waits = WaitsFor(&go[n]);
                        resume_unwind(Box::new(1));
                    });
                    catch_unwind(unwinds).unwrap_err();
                    caught.set(caught.get() + 1);
                    waits[n]();
                })
            });
            // They unwind in one order, and catch in another.
            yield_times(3);
            for (count, n) in (1..).zip(order) {
                go[n].set(true);
                while caught.get() < count {
                    fiber::yield_now();
                }
            }
            handles
        });
        for handle in handles {
            assert!(handle.join().unwrap_err().is::<Cancelled>());
        }
    }
}

/// A destructor joins a fiber whose endless sleep the same cancel ends.
#[test]
fn destructor_can_join_a_cancelled_fiber() {
    struct JoinOnDrop(Option<fiber::JoinHandle<()>>);
    impl Drop for JoinOnDrop {
        fn drop(&mut self) {
            let payload = self.0.take().unwrap().join().unwrap_err();
            assert!(payload.is::<Cancelled>());
        }
    }
    on_one_worker(|| {
        for _ in 0..10 {
            fiber::spawn_local(|| {
                let child = fiber::spawn_local(|| {
                    loop {
                        fiber::sleep(Duration::from_secs(3600));
                    }
                });
                let _join = JoinOnDrop(Some(child));
                fiber::park();
            });
        }
        fiber::yield_now();
        fiber::yield_now();
    });
}

#[test]
fn scope_in_destructor_of_cancelled_fiber_ends() {
    struct ScopeOnDrop;
    impl Drop for ScopeOnDrop {
        fn drop(&mut self) {
            fiber::scope(|s| {
                s.spawn_local(fiber::yield_now);
            });
        }
    }
    child::must_succeed("scope_in_destructor_of_cancelled_fiber_ends", || {
        assert_unwinds(|| {
            let _scope = ScopeOnDrop;
            fiber::park();
        });
    });
}
