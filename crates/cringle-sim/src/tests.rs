//! Canaries: each checker must detect a bug of its kind, which the test injects.

use super::{Checker, Options, World, run};
use crate::driver::Sabotage;
use cringle_std::fiber;
use cringle_std::fs::OpenOptions;
use cringle_std::os::unix::net::UnixStream;
use std::os::unix::fs::FileExt;
use std::time::Duration;

#[test]
fn lost_completion_is_reported_as_a_deadlock() {
    let mut world = World::new(5, &Options::new());
    world.sabotage(Sabotage::NeverCompleted);
    let read = || {
        let file = OpenOptions::new().read(true).write(true).create(true).open("/a")?;
        file.write_all_at(b"lost", 0)?;
        file.read_exact_at(&mut [0; 4], 0)
    };
    let failure = world.run(read).unwrap_err();
    assert_eq!(failure.checker, Checker::Deadlock);
    assert!(failure.message.contains("a read"), "{failure}");
    assert!(failure.message.contains("'main'"), "{failure}");
}

#[test]
fn lost_wake_up_of_a_worker_is_reported_as_a_deadlock() {
    let mut world = World::new(5, &Options::new().workers(2));
    let handover = || {
        let (sender, receiver) = cringle_std::sync::mpsc::channel();
        let named = fiber::Builder::new().name("receiver".into()).worker(1);
        let receives = named.spawn(move || receiver.recv()).unwrap();
        fiber::sleep(Duration::from_millis(1));
        sender.send(7).unwrap();
        receives.join().unwrap().unwrap()
    };
    assert_eq!(world.run(handover).unwrap(), 7);
    world.sabotage(Sabotage::WakeUpLost);
    let failure = world.run(handover).unwrap_err();
    assert_eq!(failure.checker, Checker::Deadlock);
    assert!(failure.message.contains("'main' waits for: another fiber's end"), "{failure}");
    assert_eq!(world.run(handover).unwrap(), 7);
}

#[test]
fn changing_a_buffer_during_zero_copy_send_is_detected() {
    let mut world = World::new(5, &Options::new());
    world.sabotage(Sabotage::SentChanged);
    let send = || {
        let (ours, _theirs) = UnixStream::pair()?;
        let bytes = [7; 64];
        ours.send_zc(&bytes)
    };
    assert_eq!(world.run(send).unwrap_err().checker, Checker::Buffers);
}

#[test]
fn fiber_that_is_never_unparked_is_a_deadlock() {
    let failure = run(3, &Options::new(), || {
        let name = fiber::Builder::new().name("forgotten".into());
        name.spawn(fiber::park).unwrap().join()
    })
    .unwrap_err();
    assert_eq!((failure.seed, failure.checker), (3, Checker::Deadlock));
    assert!(failure.message.contains("'main' waits for: another fiber's end"), "{failure}");
    assert!(failure.message.contains("'forgotten' waits for: an unpark"), "{failure}");
}

#[test]
fn endless_yielding_is_a_livelock() {
    let spin = || {
        loop {
            fiber::yield_now();
        }
    };
    let failure = run(3, &Options::new().turn_limit(1000), spin).unwrap_err();
    assert_eq!(failure.checker, Checker::Livelock);
    // A long wait is not a livelock.
    let sleep = || fiber::sleep(Duration::from_secs(1 << 30));
    run(3, &Options::new().turn_limit(1000), sleep).unwrap();
}

#[test]
fn failure_of_a_panic_names_the_seed() {
    let failure = run(9, &Options::new(), || std::panic::panic_any("on purpose")).unwrap_err();
    assert_eq!(failure.checker, Checker::Panic);
    assert!(failure.to_string().contains("seed 9") && failure.message.contains("on purpose"));
}
