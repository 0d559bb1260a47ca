//! Who shares thread-locals with whom.

use super::{on_workers, with_private};
use cringle::fiber;
use cringle::net::{Server, TcpStream};
use cringle::runtime::{self, Balance, ThreadLocals};
use cringle_testing::tools::{let_others_wait, spawn_on};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn the_choice_can_be_asked_for() {
    with_private(|| assert_eq!(runtime::thread_locals(), Some(ThreadLocals::Private)));
    let shared = cringle::Builder::new().thread_locals(ThreadLocals::Shared);
    let shared = shared.balance(Balance::Fixed);
    assert_eq!(shared.run(runtime::thread_locals).unwrap(), Some(ThreadLocals::Shared));
}

#[test]
fn runs_closure_uses_the_callers() {
    NUMBER.set(5);
    on_workers(2, || {
        assert_eq!(NUMBER.replace(6), 5);
        fiber::yield_now();
        assert_eq!(NUMBER.get(), 6);
        fiber::spawn(|| assert_eq!(NUMBER.replace(9), 0)).join().unwrap();
        assert_eq!(NUMBER.get(), 6);
    });
    if cfg!(target_env = "gnu") {
        assert_eq!(NUMBER.get(), 6);
    }
}

#[test]
fn combinators_stay_within_the_family() {
    with_private(|| {
        let family = || {
            NUMBER.set(1);
            let (a, b) = fiber::join(|| NUMBER.replace(2), || NUMBER.replace(3));
            assert_eq!((a, b, NUMBER.get()), (1, 2, 3));
            let all = fiber::par_map(0..4, 4, |_| NUMBER.replace(NUMBER.get() + 1));
            assert_eq!(all.into_iter().sum::<u32>(), 3 + 4 + 5 + 6);
            fiber::scope(|s| {
                s.spawn(|| assert_eq!(NUMBER.get(), 0));
                s.spawn_local(|| assert_eq!(NUMBER.get(), 7));
            });
        };
        fiber::scope(|s| (0..3).for_each(|_| drop(s.spawn(family))));
    });
}

#[test]
fn calls_on_all_workers_have_their_own() {
    with_private(|| {
        NUMBER.set(1);
        let all = fiber::par_map_workers(0..40, 4, |_| NUMBER.replace(NUMBER.get() + 1));
        // Up to four fibers count their calls, each from 0.
        let fibers = all.iter().filter(|&&number| number == 0).count();
        assert!((1..=4).contains(&fibers), "{all:?}");
        assert_eq!(NUMBER.get(), 1);
    });
}

/// A call that is not `Send` is made as code of the family that registered it, though its scope
/// belongs to another one: what it refers to may belong to a thread-local.
#[test]
fn local_exits_are_calls_of_their_family() {
    static LOG: Mutex<Vec<(u32, u32)>> = Mutex::new(Vec::new());
    on_workers(2, || {
        LOG.lock().unwrap().clear();
        fiber::scope(|outer| {
            for (number, worker) in [(1, 0), (2, 1), (3, 0)] {
                spawn_on(worker, outer, move || {
                    NUMBER.set(number);
                    let rc = Rc::new(number);
                    outer.on_exit_local(move || {
                        LOG.lock().unwrap().push((*rc, NUMBER.get()));
                    });
                });
            }
        });
        let mut log = LOG.lock().unwrap().clone();
        log.sort_unstable();
        assert_eq!(log, [(1, 1), (2, 2), (3, 3)]);
    });
}

/// The destructors wait for the last member, and for calls that a scope makes later.
#[test]
fn thread_locals_live_as_long_as_their_family() {
    static IS_GONE: AtomicBool = AtomicBool::new(false);
    struct Sets;
    impl Drop for Sets {
        fn drop(&mut self) {
            IS_GONE.store(true, Ordering::SeqCst);
        }
    }
    thread_local! {
        static VALUE: Sets = const { Sets };
    }
    with_private(|| {
        IS_GONE.store(false, Ordering::SeqCst);
        let founder = fiber::spawn(|| {
            VALUE.with(|_| ());
            fiber::spawn_local(|| {
                let_others_wait();
                assert!(!IS_GONE.load(Ordering::SeqCst), "this member still runs");
            });
        });
        founder.join().unwrap();
        while !IS_GONE.load(Ordering::SeqCst) {
            fiber::yield_now();
        }
        IS_GONE.store(false, Ordering::SeqCst);
        fiber::scope(|s| {
            s.spawn(|| {
                VALUE.with(|_| ());
                s.on_exit_local(|| assert!(!IS_GONE.load(Ordering::SeqCst)));
            });
        });
        while !IS_GONE.load(Ordering::SeqCst) {
            fiber::yield_now();
        }
    });
}

#[test]
fn each_connection_of_a_server_is_a_family() {
    on_workers(2, || {
        let server = Server::bind("127.0.0.1:0").unwrap();
        let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
        fiber::scope(|s| {
            s.spawn(move || {
                server.run(|mut stream, _| {
                    let mut byte = [0];
                    stream.read_exact(&mut byte)?;
                    let before = NUMBER.replace(u32::from(byte[0]));
                    stream.write_all(&[u8::try_from(before).unwrap()])?;
                    stream.read_exact(&mut byte)?;
                    stream.write_all(&[u8::try_from(NUMBER.get()).unwrap()])
                })
            });
            let streams: Vec<_> = (1..=20u8)
                .map(|number| {
                    let mut stream = TcpStream::connect(address)?;
                    stream.write_all(&[number])?;
                    let mut byte = [99];
                    stream.read_exact(&mut byte)?;
                    assert_eq!(byte, [0], "no other connection's number");
                    Ok((stream, number))
                })
                .collect::<io::Result<_>>()
                .unwrap();
            for (mut stream, number) in streams {
                stream.write_all(&[0]).unwrap();
                let mut byte = [99];
                stream.read_exact(&mut byte).unwrap();
                assert_eq!(byte, [number]);
            }
            stopper.stop();
        });
    });
}

#[test]
fn panics_are_counted_by_family() {
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            for _ in 0..20 {
                fiber::yield_now();
                assert!(std::thread::panicking() && fiber::panicking());
            }
        }
    }
    with_private(|| {
        fiber::scope(|s| {
            let panics: Vec<_> = (0..5)
                .map(|_| {
                    s.spawn(|| {
                        let _waits = Waits;
                        std::panic::resume_unwind(Box::new(7));
                    })
                })
                .collect();
            for _ in 0..5 {
                s.spawn(|| {
                    for _ in 0..20 {
                        fiber::yield_now();
                        assert!(!std::thread::panicking() && !fiber::panicking());
                    }
                });
            }
            for panic in panics {
                assert_eq!(*panic.join().unwrap_err().downcast::<i32>().unwrap(), 7);
            }
        });
    });
}
