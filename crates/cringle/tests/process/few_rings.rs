//! Hosts that grant rings to some workers and not to the others. Then no worker keeps a ring.

use cringle::runtime::{self, Driver, DriverChoice};
use cringle::{Builder, fiber, io};
use cringle_testing::child::{self, Footprint};
use std::io::{ErrorKind, Read, Write};

const WORKERS: usize = 16;
/// Some rings of 148 KiB.
const LOCKED_BYTES: u64 = 800 << 10;

/// A pipe on each worker, whose reader waits.
fn exchanges_on_every_worker() -> Driver {
    fiber::scope(|s| {
        for worker in 0..WORKERS {
            let started = fiber::Builder::new().worker(worker).spawn_scoped(s, move || {
                assert_eq!(runtime::worker(), Some(worker));
                let (mut reader, mut writer) = io::pipe().unwrap();
                let (read, written) = fiber::join(
                    || {
                        let mut bytes = [0; 3];
                        reader.read_exact(&mut bytes).map(|()| bytes)
                    },
                    || writer.write_all(b"eye"),
                );
                written.unwrap();
                assert_eq!(&read.unwrap(), b"eye");
            });
            started.unwrap();
        }
    });
    runtime::driver()
}

/// Becomes a user whose rings no other process has, because the kernel counts them together.
fn become_another_user() {
    let user = 56_000 + std::process::id() % 4000;
    // SAFETY: no pointers are passed. Without the privilege, the calls fail and change nothing.
    unsafe {
        libc::setgid(user);
        libc::setuid(user);
    }
}

#[test]
fn workers_without_rings_leave_none_to_the_others() {
    let name = "workers_without_rings_leave_none_to_the_others";
    let output = child::run_with(name, |command| command.env_remove("CRINGLE_DRIVER"));
    if let Some(output) = output {
        let text = child::transcript(&output);
        assert!(output.status.success(), "{text}");
        let lines = text.matches("cringle: ").count();
        let reports = text.matches("got a ring, so none uses one: cannot make an io_uring").count();
        let skipped = usize::from(text.contains("skipped"));
        assert_eq!((lines, reports + skipped), (1 - skipped, 1), "two runs, one line: {text}");
        return;
    }
    child::limit(libc::RLIMIT_MEMLOCK, LOCKED_BYTES).unwrap();
    become_another_user();
    let run = || Builder::new().workers(WORKERS).run(exchanges_on_every_worker).unwrap();
    let first = run();
    let before = Footprint::now();
    for driver in [first, run()] {
        let Driver::Epoll(why) = driver else {
            println!("skipped: this kernel does not count rings, or not those of this user");
            return;
        };
        let why = why.to_string();
        let (made, _) = why.split_once(" of 16 workers got a ring").expect(&why);
        assert!((0..16).contains(&made.parse().unwrap()), "{why}");
        assert!(why.contains("RLIMIT_MEMLOCK") && why.contains("cringle doctor"), "{why}");
    }
    assert_eq!(Footprint::now().descriptors, before.descriptors, "a ring is left");
    let mut has_run = false;
    let rings = Builder::new().workers(WORKERS).driver(DriverChoice::Uring);
    let error = rings.run(|| has_run = true).unwrap_err();
    assert_eq!((error.kind(), has_run), (ErrorKind::OutOfMemory, false));
    assert!(error.to_string().contains("raise RLIMIT_MEMLOCK"), "{error}");
}

/// Wherever in the start the last descriptor is taken, all workers have rings, none has, or nothing
/// runs; and no descriptor is left.
#[test]
fn a_run_without_descriptors_starts_whole_or_not() {
    child::must_succeed_with(
        "a_run_without_descriptors_starts_whole_or_not",
        |command| command.env_remove("CRINGLE_DRIVER").env("CRINGLE_WATCHDOG", "off"),
        || {
            // What a process opens once.
            Builder::new().workers(WORKERS).run(exchanges_on_every_worker).unwrap();
            let before = Footprint::now().descriptors;
            let (mut started, mut refused) = (0, 0);
            for limit in (before..before + 5 * WORKERS).rev() {
                child::limit(libc::RLIMIT_NOFILE, limit as u64).unwrap();
                let mut has_run = false;
                let result = Builder::new().workers(WORKERS).run(|| {
                    has_run = true;
                    fiber::scope(|s| {
                        for worker in 0..WORKERS {
                            let fiber = fiber::Builder::new().worker(worker);
                            fiber.spawn_scoped(s, fiber::yield_now).unwrap();
                        }
                    });
                });
                assert_eq!(has_run, result.is_ok());
                match result {
                    Ok(()) => started += 1,
                    Err(error) => {
                        assert!(error.to_string().contains("RLIMIT_NOFILE"), "{limit}: {error}");
                        refused += 1;
                    }
                }
                assert_eq!(Footprint::now().descriptors, before, "at {limit}");
            }
            assert!(started > 0 && refused > 0, "{started} {refused}");
        },
    );
}
