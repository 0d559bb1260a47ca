//! What a fiber is told when the runtime ends before it.

mod child;

use cringle::fs::File;
use cringle::io::{Interest, ready};
use cringle::{Builder, Cancelled, fiber};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(1).run(f).unwrap()
}

/// Both ends of a pipe, the reading one ours.
fn pipe() -> (File, io::PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    (OwnedFd::from(reader).into(), writer)
}

fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Cancelled>())
}

/// A fiber that waits so when the closure of `run` returns is unwound by a `Cancelled`.
fn unwinds(wait: impl FnOnce() + 'static) {
    let handle = on_one_worker(|| {
        let handle = fiber::spawn_local(wait);
        (0..3).for_each(|_| fiber::yield_now());
        assert!(!handle.is_finished());
        handle
    });
    assert!(handle.join().unwrap_err().is::<Cancelled>());
}

#[test]
fn a_park_is_unwound() {
    unwinds(|| {
        loop {
            fiber::park();
        }
    });
    unwinds(|| {
        loop {
            fiber::park_timeout(Duration::from_secs(3600));
        }
    });
}

#[test]
fn a_sleep_is_unwound() {
    unwinds(|| fiber::sleep(Duration::from_secs(3600)));
    unwinds(|| fiber::sleep(Duration::MAX));
}

#[test]
fn a_yield_is_unwound() {
    unwinds(|| {
        loop {
            fiber::yield_now();
        }
    });
}

#[test]
fn a_join_is_unwound_and_the_other_fiber_too() {
    let other = Rc::new(RefCell::new(None));
    let theirs = Rc::clone(&other);
    unwinds(move || {
        let forever = fiber::spawn_local(|| fiber::sleep(Duration::MAX));
        *theirs.borrow_mut() = Some(forever.thread().clone());
        drop(forever.join());
        unreachable!("a cancelled join does not return");
    });
    other.borrow().as_ref().unwrap().unpark();
}

/// No panic message is written for it: none of these is a panic of the program's.
#[test]
fn a_scope_whose_fibers_are_cancelled_is_unwound_silently() {
    let name = "a_scope_whose_fibers_are_cancelled_is_unwound_silently";
    let Some(output) = child::run(name) else {
        unwinds(|| {
            fiber::scope(|s| {
                s.spawn_local(|| fiber::sleep(Duration::MAX));
                s.spawn(fiber::park);
            });
            unreachable!("its fibers did not end by themselves");
        });
        return;
    };
    assert!(output.status.success(), "{}", child::transcript(&output));
    assert!(!child::transcript(&output).contains("panicked"), "{}", child::transcript(&output));
}

#[test]
fn a_scope_with_a_cancelled_and_a_panicked_fiber_tells_of_the_panic() {
    let handle = on_one_worker(|| {
        let handle = fiber::spawn_local(|| {
            fiber::scope(|s| {
                s.spawn_local(|| fiber::sleep(Duration::MAX));
                s.spawn_local(|| resume_unwind(Box::new(1)));
            });
        });
        (0..3).for_each(|_| fiber::yield_now());
        handle
    });
    let payload = handle.join().unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(*payload, "a scoped fiber panicked");
}

#[test]
fn an_operation_returns_an_error_that_holds_cancelled() {
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
    assert_eq!(error.kind(), ErrorKind::Other, "not `Interrupted`: std's loops would go on");
}

#[test]
fn a_wait_for_readiness_returns_cancelled() {
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
fn a_cancel_is_sticky() {
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

/// Whichever comes first: what was read is returned, what was not is still to be read.
#[test]
fn no_byte_that_was_read_is_lost_to_a_cancel() {
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

/// An accept loop that logs its errors and goes on cannot spin for ever.
#[test]
fn a_loop_that_ignores_refusals_is_unwound_after_a_thousand() {
    let refusals = Rc::new(Cell::new(0));
    let theirs = Rc::clone(&refusals);
    let (reader, _writer) = pipe();
    let handle = on_one_worker(|| {
        fiber::spawn_local(move || {
            loop {
                if (&reader).read(&mut [0]).is_err() {
                    theirs.set(theirs.get() + 1);
                }
            }
        })
    });
    assert!(handle.join().unwrap_err().is::<Cancelled>());
    assert_eq!(refusals.get(), 1000);
}

/// Not even if it logs each of them where no cancel reaches.
#[test]
fn a_protected_call_does_not_make_a_loop_s_refusals_forgotten() {
    let refusals = Rc::new(Cell::new(0));
    let theirs = Rc::clone(&refusals);
    let (reader, _writer) = pipe();
    let handle = on_one_worker(|| {
        fiber::spawn_local(move || {
            while theirs.get() < 5000 {
                (&reader).read(&mut [0]).unwrap_err();
                fiber::protect(|| fiber::scope(|_| theirs.set(theirs.get() + 1)));
            }
        })
    });
    assert!(handle.join().unwrap_err().is::<Cancelled>());
    assert_eq!(refusals.get(), 1000);
}

#[test]
fn unblock_is_not_interrupted_and_its_value_arrives() {
    let (tell, told) = std::sync::mpsc::channel();
    let handle = Builder::new().workers(2).run(|| {
        let handle = fiber::spawn_local(|| fiber::unblock(move || told.recv().unwrap()));
        fiber::yield_now();
        // Sent only when `run` is ending: this fiber is cancelled before.
        fiber::spawn(move || {
            catch_unwind(fiber::park).unwrap_err();
            tell.send("whole").unwrap();
        });
        handle
    });
    assert_eq!(handle.unwrap().join().unwrap(), "whole");
}

// ----- destructors -----

/// Waits in its destructor, in each way there is.
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

/// Several of one worker unwind at once, each suspended in its destructor while the others begin.
#[test]
fn destructors_of_cancelled_fibers_wait_undisturbed() {
    child::must_succeed("destructors_of_cancelled_fibers_wait_undisturbed", || {
        let completed = Arc::new(AtomicUsize::new(0));
        Builder::new()
            .workers(2)
            .run(|| {
                for n in 0..40 {
                    let waits = Waits(Arc::clone(&completed));
                    let waits_for_ever = move || {
                        let _waits = waits;
                        match n % 4 {
                            0 => fiber::park(),
                            1 => fiber::sleep(Duration::MAX),
                            2 => drop(fiber::spawn(fiber::park).join()),
                            _ => loop {
                                fiber::yield_now();
                            },
                        }
                    };
                    fiber::Builder::new().worker(n % 2).spawn(waits_for_ever).unwrap();
                }
                (0..3).for_each(|_| fiber::yield_now());
            })
            .unwrap();
        assert_eq!(completed.load(Ordering::SeqCst), 40);
    });
}

/// A fiber that once waited in a destructor while it unwound, and whose panic was caught, is
/// cancelled as any other: also if others unwound when it was caught, and it was uncertain whether
/// it still did.
#[test]
fn a_fiber_that_unwound_once_can_be_cancelled_later() {
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
            // They begin in one order, and are caught in another.
            (0..3).for_each(|_| fiber::yield_now());
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

/// While one fiber waits in its destructor for another, that one's endless sleep is interrupted.
#[test]
fn a_destructor_may_join_a_fiber_that_is_cancelled_too() {
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
fn a_scope_in_a_destructor_of_a_cancelled_fiber_ends() {
    struct ScopeOnDrop;
    impl Drop for ScopeOnDrop {
        fn drop(&mut self) {
            fiber::scope(|s| {
                s.spawn_local(fiber::yield_now);
            });
        }
    }
    child::must_succeed("a_scope_in_a_destructor_of_a_cancelled_fiber_ends", || {
        unwinds(|| {
            let _scope = ScopeOnDrop;
            fiber::park();
        });
    });
}
