//! Fibers that unwind: their destructors may wait for other fibers of the worker, and each fiber
//! knows whether it unwinds itself (**I8**).

use cringle::fs::File;
use cringle::{cancel, fiber, time};
use cringle_testing::child;
use cringle_testing::tools::*;
use std::cell::{Cell, RefCell};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

/// Runs `f` in a destructor of a fiber that unwinds by a panic, under a hook of the program.
fn while_unwinding(f: impl FnMut()) {
    let unwinds = AssertUnwindSafe(|| {
        let _f = OnDrop(f);
        panic!("on purpose");
    });
    catch_unwind(unwinds).unwrap_err();
}

fn wait_for(flag: &Cell<bool>) {
    while !flag.get() {
        fiber::yield_now();
    }
}

// ----- a writer that is dropped while unwinding, and its reader -----

const LEN: usize = 4 << 20;

/// The destructor of the `BufWriter` writes more than fits into the stream, so its reader, a fiber
/// of the same worker, must run meanwhile.
fn drop_full_writer(reader: File, writer: File) {
    on_one_worker(|| {
        fiber::scope(|s| {
            let reads = s.spawn_local(move || {
                let mut all = Vec::new();
                (&reader).read_to_end(&mut all).unwrap();
                all
            });
            let writes = s.spawn_local(move || {
                let mut writer = BufWriter::with_capacity(LEN + 1, writer);
                writer.write_all(&vec![7; LEN]).unwrap();
                assert_eq!(writer.buffer().len(), LEN);
                panic!("with a full buffer");
            });
            assert_eq!(message(writes.join().unwrap_err()), "with a full buffer");
            assert!(reads.join().unwrap() == vec![7; LEN]);
        });
    });
}

#[test]
fn panic_flushes_writer_to_reader_on_same_worker() {
    child::must_succeed("panic_flushes_writer_to_reader_on_same_worker", || {
        let (reader, writer) = pipe();
        drop_full_writer(reader, writer);
        let (reader, writer) = UnixStream::pair().unwrap();
        drop_full_writer(OwnedFd::from(reader).into(), OwnedFd::from(writer).into());
    });
}

/// The same for a cancel: the destructor completes its writes.
#[test]
fn cancel_flushes_writer_to_reader_on_same_worker() {
    child::must_succeed("cancel_flushes_writer_to_reader_on_same_worker", || {
        let (reader, writer) = pipe();
        on_one_worker(|| {
            let reads = fiber::spawn_local(move || {
                fiber::protect(|| {
                    let mut all = Vec::new();
                    (&reader).read_to_end(&mut all).unwrap();
                    all
                })
            });
            fiber::scope(|s| {
                let writes = s.spawn_local(move || {
                    let mut writer = BufWriter::with_capacity(LEN + 1, writer);
                    writer.write_all(&vec![7; LEN]).unwrap();
                    fiber::park();
                });
                let_others_wait();
                s.cancel();
                assert_unwound(writes.join());
            });
            assert!(reads.join().unwrap() == vec![7; LEN]);
        });
    });
}

// ----- which fiber unwinds -----

#[test]
fn third_fiber_panics_beside_two_suspended_destructors() {
    child::must_succeed("third_fiber_panics_beside_two_suspended_destructors", || {
        on_one_worker(|| {
            let (go, checks) = (Cell::new(false), Cell::new(0));
            fiber::scope(|s| {
                let suspended = [1, 2].map(|n| {
                    let (go, checks) = (&go, &checks);
                    s.spawn_local(move || {
                        let _waits = OnDrop(|| {
                            assert!(fiber::panicking());
                            wait_for(go);
                            // Still true after each wait, during which other fibers begin and end
                            // their unwinding.
                            assert!(fiber::panicking());
                            time::sleep(Duration::from_millis(n)).unwrap();
                            assert!(fiber::panicking());
                            checks.set(checks.get() + 1);
                        });
                        panic!("one of two");
                    })
                });
                fiber::yield_now();
                assert!(std::thread::panicking() && !fiber::panicking());
                for suspends in [false, true] {
                    let panics = s.spawn_local(move || {
                        assert!(!fiber::panicking());
                        let _at_the_end = OnDrop(|| assert!(fiber::panicking()));
                        let _on_the_way = OnDrop(|| {
                            assert!(fiber::panicking());
                            if suspends {
                                fiber::yield_now();
                                assert!(fiber::panicking());
                            }
                        });
                        panic!("the third");
                    });
                    assert_eq!(message(panics.join().unwrap_err()), "the third");
                    assert!(!fiber::panicking());
                }
                // A fiber that does not panic.
                s.spawn_local(|| {
                    let _at_the_end = OnDrop(|| assert!(!fiber::panicking()));
                    fiber::yield_now();
                    assert!(!fiber::panicking());
                });
                fiber::yield_now();
                go.set(true);
                for unwinds in suspended {
                    assert_eq!(message(unwinds.join().map(drop).unwrap_err()), "one of two");
                    assert!(!fiber::panicking());
                }
            });
            assert_eq!(checks.get(), 2);
            assert!(!fiber::panicking() && !std::thread::panicking());
        });
    });
}

/// Starts an unwinding in each way that the library has, while another fiber is suspended in a
/// destructor. A cancel then ends no wait of the destructors.
#[test]
fn cancel_never_ends_waits_of_destructors() {
    let name = "cancel_never_ends_waits_of_destructors";
    child::must_succeed(name, || {
        let ways: [(&str, fn()); 6] = [
            ("a panic", || panic!("its own")),
            ("a panic in unblock", || fiber::unblock(|| panic!("on a thread of the pool"))),
            ("a payload resumed by unblock", || fiber::unblock(|| resume_unwind(Box::new(1)))),
            ("a panic of a scope", || {
                fiber::scope(|s| {
                    s.spawn_local(|| resume_unwind(Box::new(1)));
                });
            }),
            ("a panic of a scope's closure", || fiber::scope(|_| panic!("the closure"))),
            ("a panic of a try_scope", || {
                let result = fiber::try_scope(|s| {
                    s.spawn_local(|| -> std::io::Result<()> { panic!("a fiber of it") });
                    Ok(())
                });
                result.unwrap();
            }),
        ];
        for (way, unwind) in ways {
            on_one_worker(|| {
                let (go, over) = (Cell::new(false), Cell::new(false));
                fiber::scope(|s| {
                    let other = s.spawn_local(|| while_unwinding(|| wait_for(&go)));
                    fiber::yield_now();
                    fiber::scope(|t| {
                        let unwinds = t.spawn_local(|| {
                            let _waits = OnDrop(|| {
                                assert!(fiber::panicking(), "{way}");
                                fiber::yield_now();
                                fiber::sleep(Duration::from_millis(1));
                                cancel::check().unwrap();
                                over.set(true);
                            });
                            unwind();
                        });
                        let_others_wait();
                        t.cancel();
                        unwinds.join().unwrap_err();
                    });
                    assert!(over.get(), "{way}");
                    go.set(true);
                    other.join().unwrap();
                });
            });
        }
    });
}

/// The fiber's panic is caught before its locals are dropped, so their destructors do not unwind.
#[test]
fn local_destructors_run_after_the_unwinding() {
    thread_local! {
        static PANICKING: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    }
    struct Records;
    impl Drop for Records {
        fn drop(&mut self) {
            PANICKING.with_borrow_mut(|states| states.push(fiber::panicking()));
        }
    }
    cringle::fiber_local! {
        static LOCAL: Records = Records;
    }
    child::must_succeed("local_destructors_run_after_the_unwinding", || {
        on_one_worker(|| {
            let go = Cell::new(false);
            fiber::scope(|s| {
                let other = s.spawn_local(|| while_unwinding(|| wait_for(&go)));
                fiber::yield_now();
                let panics = s.spawn_local(|| {
                    LOCAL.with(|_| ());
                    panic!("on purpose");
                });
                panics.join().unwrap_err();
                go.set(true);
                other.join().unwrap();
            });
            assert_eq!(PANICKING.take(), [false]);
        });
    });
}

// ----- what destructors of unwinding fibers may do -----

/// No cancel reaches such a destructor, so a deadline in it ends nothing.
#[test]
fn deadline_in_unwinding_destructor_ends_nothing() {
    const LIMIT: Duration = Duration::from_millis(1);
    child::must_succeed("deadline_in_unwinding_destructor_ends_nothing", || {
        on_one_worker(|| {
            let done = Cell::new(0);
            while_unwinding(|| {
                for limit in [Duration::ZERO, LIMIT] {
                    time::timeout(limit, || {
                        time::sleep(3 * LIMIT).unwrap();
                        fiber::sleep(LIMIT);
                        fiber::scope(|s| {
                            s.spawn_local(|| time::sleep(LIMIT)).join().unwrap().unwrap();
                        });
                        cancel::check()
                    })
                    .unwrap();
                    done.set(done.get() + 1);
                }
            });
            assert_eq!(done.get(), 2);
            // A later deadline takes effect again.
            let error = time::timeout(LIMIT, || time::sleep(Duration::MAX)).unwrap_err();
            assert_elapsed(&error, LIMIT);
        });
    });
}

#[test]
fn scope_works_in_unwinding_destructor() {
    child::must_succeed("scope_works_in_unwinding_destructor", || {
        on_two_workers(|| {
            let order = RefCell::new(Vec::new());
            while_unwinding(|| {
                let result: Result<(), std::io::Error> = fiber::try_scope(|s| {
                    s.on_exit_local(|| order.borrow_mut().push("exit"));
                    s.spawn(|| File::open("/no such file").map(drop));
                    s.spawn(|| time::sleep(Duration::MAX));
                    Ok(())
                });
                assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
                fiber::scope(|s| {
                    let panics = s.spawn_local(|| resume_unwind(Box::new(5)));
                    assert!(panics.join().is_err());
                    let sleeper = s.spawn(|| time::sleep(Duration::MAX));
                    s.cancel();
                    assert_cancelled(&sleeper.join().unwrap().unwrap_err());
                });
                assert!(fiber::panicking());
                order.borrow_mut().push("end");
            });
            assert_eq!(order.take(), ["exit", "end"]);
        });
    });
}

/// A fiber is cancelled while it is suspended in a destructor. The destructor completes, and the
/// cancel takes effect after it.
#[test]
fn cancel_takes_effect_after_unwinding() {
    child::must_succeed("cancel_takes_effect_after_unwinding", || {
        on_one_worker(|| {
            let go = Rc::new(Cell::new(false));
            fiber::scope(|s| {
                let unwinds = s.spawn_local(|| {
                    while_unwinding(|| {
                        wait_for(&go);
                        let (reader, writer) = pipe();
                        (&writer).write_all(b"x").unwrap();
                        (&reader).read_exact(&mut [0]).unwrap();
                        fiber::unblock(|| ());
                        cancel::check().unwrap();
                    });
                    assert_cancelled(&cancel::check().unwrap_err());
                    time::sleep(Duration::MAX)
                });
                let_others_wait();
                s.cancel();
                fiber::protect(let_others_wait);
                assert!(!unwinds.is_finished());
                go.set(true);
                assert_cancelled(&unwinds.join().unwrap().unwrap_err());
            });
        });
    });
}

/// The first `run` of a process sets the panic hook, which std forbids to a panicking thread.
#[test]
fn first_run_works_in_destructor_of_panic() {
    child::must_succeed("first_run_works_in_destructor_of_panic", || {
        let ran = Cell::new(0);
        while_unwinding(|| {
            on_two_workers(|| {
                fiber::scope(|s| {
                    let panics = s.spawn(|| panic!("a fiber"));
                    assert_eq!(message(panics.join().unwrap_err()), "a fiber");
                });
                ran.set(ran.get() + 1);
            });
        });
        assert_eq!(ran.get(), 1);
        on_one_worker(|| ());
    });
}

// ----- `run` while std holds the lock of the panic hook -----

fn run_something() {
    let sum = cringle::Builder::new().workers(2).run(|| {
        let fibers: Vec<_> = (0..4).map(|n| fiber::spawn(move || n)).collect();
        fiber::sleep(Duration::from_millis(1));
        fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<i32>()
    });
    assert_eq!(sum.unwrap(), 6);
}

/// The hook calls the first `run` of the process, and a later one; also the hook of a panic in a
/// destructor.
#[test]
fn panic_hook_may_call_run() {
    child::must_succeed("panic_hook_may_call_run", || {
        std::panic::set_hook(Box::new(|_| run_something()));
        std::thread::spawn(|| panic!("a first one")).join().unwrap_err();
        std::thread::spawn(|| while_unwinding(|| while_unwinding(|| ()))).join().unwrap();
        run_something();
        std::thread::spawn(|| panic!("a later one")).join().unwrap_err();
        std::thread::spawn(|| while_unwinding(|| while_unwinding(|| ()))).join().unwrap();
        assert!(!std::thread::panicking());
        // The hook of this panic calls `run` too, on the thread of a fiber's `unblock`.
        on_one_worker(|| {
            let panics = || fiber::unblock(|| panic!("on a thread of the pool"));
            catch_unwind(panics).map(drop).unwrap_err();
        });
    });
}

#[test]
fn panic_hook_may_wait_for_run_elsewhere() {
    child::must_succeed("panic_hook_may_wait_for_run_elsewhere", || {
        let chained = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            std::thread::spawn(run_something).join().unwrap();
            chained(info);
        }));
        run_something();
        std::thread::spawn(|| panic!("on a thread")).join().unwrap_err();
        on_one_worker(|| {
            fiber::spawn_local(|| panic!("on a fiber")).join().map(drop).unwrap_err();
        });
    });
}

/// std holds the hook's lock while it formats the message, too.
#[test]
fn panic_message_may_wait_for_run_elsewhere() {
    struct Receives(cringle::sync::mpsc::Receiver<u8>);
    impl std::fmt::Display for Receives {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "received {}", self.0.recv().unwrap())
        }
    }
    child::must_succeed("panic_message_may_wait_for_run_elsewhere", || {
        on_one_worker(|| {
            let (sender, receiver) = cringle::sync::mpsc::channel();
            let panics = fiber::spawn_local(move || panic!("{}", Receives(receiver)));
            let sends = fiber::spawn_local(move || {
                std::thread::spawn(move || {
                    run_something();
                    sender.send(7).unwrap();
                })
            });
            assert_eq!(message(panics.join().map(drop).unwrap_err()), "received 7");
            sends.join().unwrap().join().unwrap();
        });
    });
}

/// AddressSanitizer would end the process at the first panic of such a fiber.
#[test]
#[cfg(cringle_sanitizer)]
fn private_thread_locals_are_refused_under_a_sanitizer() {
    let private = cringle::runtime::ThreadLocals::Private;
    let e = cringle::Builder::new().thread_locals(private).run(|| ()).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::Unsupported);
    assert!(e.to_string().contains("built with AddressSanitizer"), "{e}");
}
