//! Panic hooks, callbacks, and the end of the process.

use crate::Bomb;
use cringle::block::{BlockIo, OwnedBatch};
use cringle::fiber;
use cringle::sync::mpsc;
use cringle_testing::child;
use cringle_testing::tools::*;
use std::cell::RefCell;
use std::io::Write;
use std::panic::panic_any;
use std::sync::Arc;
use std::time::Duration;

// ----- hooks -----

/// The hooks of three fibers wait, and run one after the other.
#[test]
fn panic_hook_blocks_its_worker() {
    child::must_succeed("panic_hook_blocks_its_worker", || {
        let hooked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let names = Arc::clone(&hooked);
        std::panic::set_hook(Box::new(move |_| {
            fiber::yield_now();
            fiber::sleep(Duration::from_millis(1));
            names.lock().unwrap().push(fiber::current().name().map(str::to_owned));
        }));
        on_one_worker(|| {
            fiber::scope(|s| {
                for name in ["a", "b", "c"] {
                    let named = fiber::Builder::new().name(name.into());
                    let panics = named.spawn_scoped_local(s, || panic!("one of three")).unwrap();
                    s.spawn_local(|| panics.join().map(drop).unwrap_err());
                }
            });
            assert!(!std::thread::panicking());
        });
        let names = hooked.lock().unwrap();
        assert_eq!(*names, ["a", "b", "c"].map(|name| Some(name.to_owned())));
    });
}

// ----- the end of the process -----

/// Exit destroys the thread's locals, so a suspended fiber with a reference to one must not run.
#[test]
fn exit_on_fiber_resumes_no_other_fiber() {
    thread_local! {
        static VALUE: RefCell<Vec<u64>> = RefCell::new(vec![1; 1000]);
        static YIELDS: OnDrop<fn()> = const { OnDrop(|| (0..9).for_each(|_| fiber::yield_now())) };
    }
    child::must_succeed("exit_on_fiber_resumes_no_other_fiber", || {
        on_one_worker(|| {
            YIELDS.with(|_| ());
            fiber::spawn_local(|| {
                VALUE.with(|value| {
                    fiber::yield_now();
                    println!("resumed {}", value.borrow().len());
                    std::process::abort();
                });
            });
            fiber::spawn_local(|| cringle::process::exit(0));
            fiber::park();
        });
    });
}

// ----- batches -----

#[test]
fn callback_payload_may_panic_in_destructor() {
    child::must_succeed("callback_payload_may_panic_in_destructor", || {
        let io = BlockIo::builder().build().unwrap();
        let nothing = || OwnedBatch::<Vec<u8>>::new();
        io.submit_then(nothing(), |_| panic_any(Bomb)).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        io.submit_then(nothing(), move |_| sender.send(()).unwrap()).unwrap();
        receiver.recv().unwrap();
        io.close().unwrap();
    });
}

#[test]
fn closing_from_callback_by_unblock_is_refused() {
    child::must_succeed("closing_from_callback_by_unblock_is_refused", || {
        let io = Arc::new(BlockIo::builder().build().unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        let shared = Arc::clone(&io);
        io.submit_then(OwnedBatch::<Vec<u8>>::new(), move |_| {
            sender.send(fiber::unblock(|| shared.close()).unwrap_err().kind()).unwrap();
            let nested = fiber::unblock(|| on_one_worker(|| fiber::unblock(|| shared.close())));
            sender.send(nested.unwrap_err().kind()).unwrap();
        })
        .unwrap();
        for _ in 0..2 {
            assert_eq!(receiver.recv().unwrap(), std::io::ErrorKind::Deadlock);
        }
        io.close().unwrap();
    });
}

// ----- many suspended fibers -----

/// The sender waits in a destructor for room in the channel, and the receiver makes that room.
#[test]
fn destructor_sends_into_full_channel() {
    child::must_succeed("destructor_sends_into_full_channel", || {
        on_one_worker(|| {
            let (sender, receiver) = mpsc::sync_channel(0);
            fiber::scope(|s| {
                let sends = s.spawn_local(move || {
                    let _sends = OnDrop(|| (0..9).for_each(|n| sender.send(n).unwrap()));
                    panic!("with nine to send");
                });
                assert_eq!(receiver.iter().take(9).count(), 9);
                sends.join().map(drop).unwrap_err();
            });
            writeln!(std::io::sink()).unwrap();
        });
    });
}
