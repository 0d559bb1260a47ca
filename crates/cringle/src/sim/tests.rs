//! The canaries: each checker is shown a bug of its kind, made on purpose, and has to find it.

use super::{Checker, Options, World, run};
use crate::driver::sim::Sabotage;
use crate::fiber;
use crate::fs::OpenOptions;
use crate::os::unix::net::UnixStream;
use std::os::unix::fs::FileExt;
use std::time::Duration;

#[test]
fn a_lost_completion_is_a_deadlock_with_who_waits_for_what() {
    // (In a random program a protected call may wait for it, which nothing ends.)
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
fn memory_that_is_touched_while_the_network_has_it_is_found() {
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
fn a_fiber_that_nobody_unparks_is_a_deadlock() {
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
fn a_program_that_goes_on_for_ever_is_a_livelock() {
    let spin = || {
        loop {
            fiber::yield_now();
        }
    };
    let failure = run(3, &Options::new().turn_limit(1000), spin).unwrap_err();
    assert_eq!(failure.checker, Checker::Livelock);
    // Not one that waits for long.
    let sleep = || fiber::sleep(Duration::from_secs(1 << 30));
    run(3, &Options::new().turn_limit(1000), sleep).unwrap();
}

#[test]
fn a_panic_is_a_failure_that_names_the_seed() {
    let failure = run(9, &Options::new(), || std::panic::panic_any("on purpose")).unwrap_err();
    assert_eq!(failure.checker, Checker::Panic);
    assert!(failure.to_string().contains("seed 9") && failure.message.contains("on purpose"));
}
