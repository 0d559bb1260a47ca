//! Locks of std that block a worker.

use super::{assert_one, lines_with, named, output};
use cringle::{Builder, fiber};
use cringle_testing::child;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program that the detector aborts: fiber 'waits' is suspended in `hold`, and fiber 'blocked'
/// blocks the worker in `block`. Returns the reports.
#[track_caller]
fn hang(test: &str, hold: fn(), block: fn()) -> Option<Vec<String>> {
    let body = || {
        let run = || {
            let _holder = named("waits").spawn(hold).unwrap();
            // One that has nothing to do with it.
            let _other = named("other").spawn(fiber::park).unwrap();
            fiber::yield_now();
            named("blocked").spawn(block).unwrap().join().unwrap();
        };
        Builder::new().workers(1).run(run).unwrap();
    };
    let abort = |command: &mut Command| {
        command.env("CRINGLE_DETECT", "abort").env("CRINGLE_WATCHDOG", "locks");
    };
    let output = output(
        test,
        |command| {
            abort(command);
            command
        },
        body,
    )?;
    let printed = child::transcript(&output);
    assert!(!output.status.success(), "{printed}");
    Some(lines_with(&printed, "cringle: hazard: "))
}

#[track_caller]
fn assert_hang(reports: &[String], texts: [&str; 3]) {
    let [what, wait, remedy] = texts;
    let blocked = ["fiber 'blocked'", "blocks worker 0", what, "by fiber 'waits'", wait, remedy];
    assert_one(reports, &blocked);
    assert!(!reports[0].contains("'other'"), "{reports:?}");
}

#[test]
fn holder_of_std_mutex_is_found() {
    static LOCK: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
    let hold = || {
        let _guard = LOCK.lock().unwrap();
        fiber::sleep(Duration::from_secs(1000));
    };
    if let Some(reports) = hang("holder_of_std_mutex_is_found", hold, || drop(LOCK.lock())) {
        assert_hang(&reports, ["is probably held", "a timer", "before the wait"]);
    }
}

#[test]
fn reader_that_blocks_std_writer_is_found() {
    static LOCK: std::sync::RwLock<u64> = std::sync::RwLock::new(0);
    let hold = || {
        let _guard = LOCK.read().unwrap();
        fiber::park();
    };
    let name = "reader_that_blocks_std_writer_is_found";
    if let Some(reports) = hang(name, hold, || drop(LOCK.write())) {
        assert_hang(&reports, ["is probably held", "an unpark", "before the wait"]);
    }
}

#[test]
fn writer_that_blocks_std_reader_is_found() {
    static LOCK: std::sync::RwLock<u64> = std::sync::RwLock::new(0);
    let hold = || {
        let _guard = LOCK.write().unwrap();
        fiber::park();
    };
    let name = "writer_that_blocks_std_reader_is_found";
    if let Some(reports) = hang(name, hold, || drop(LOCK.read())) {
        assert_hang(&reports, ["is probably held", "an unpark", "before the wait"]);
    }
}

#[test]
fn initialiser_that_waits_is_found() {
    static VALUE: std::sync::LazyLock<u64> = std::sync::LazyLock::new(|| {
        fiber::park();
        1
    });
    let first = || assert_eq!(*VALUE, 1);
    if let Some(reports) = hang("initialiser_that_waits_is_found", first, first) {
        assert_hang(&reports, ["is probably initialised", "an unpark", "cringle::sync"]);
    }
}

/// Two fibers have what looks like a guard: one holds the lock, and the other one has dropped its
/// guard. The report names both, and the process goes on.
#[test]
fn several_candidates_are_no_reason_to_abort() {
    let name = "several_candidates_are_no_reason_to_abort";
    let Some(mut command) = child::command(name) else {
        static LOCK: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
        let (release, is_released) = std::sync::mpsc::channel::<()>();
        let run = || {
            // What a guard is on a stack: the lock's address and a flag.
            let looks_like_holder = || {
                let words = std::hint::black_box([&raw const LOCK as usize, 0]);
                fiber::park();
                std::hint::black_box(&words);
            };
            let _one = named("one").spawn_local(looks_like_holder).unwrap();
            let _two = named("two").spawn_local(looks_like_holder).unwrap();
            fiber::yield_now();
            drop(LOCK.lock());
        };
        let guard = LOCK.lock().unwrap();
        let runs = std::thread::spawn(move || {
            Builder::new().workers(1).run(run).unwrap();
            release.send(()).unwrap();
        });
        io::stdin().read_line(&mut String::new()).unwrap();
        drop(guard);
        is_released.recv().unwrap();
        return runs.join().unwrap();
    };
    command.env("CRINGLE_WATCHDOG", "locks").env("CRINGLE_DETECT", "abort");
    let (piped, null) = (Stdio::piped, Stdio::null);
    let mut child = command.stdin(piped()).stdout(null()).stderr(piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let report = lines.into_iter().find(|line| line.contains("may be held by one of 2 fibers"));
    let report = report.expect("a report");
    assert!(report.contains("'one'") && report.contains("'two'"), "{report}");
    assert!(!report.contains("hazard"), "{report}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn lock_that_thread_holds_is_no_hazard() {
    let name = "lock_that_thread_holds_is_no_hazard";
    let Some(mut command) = child::command(name) else {
        static LOCK: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
        let guard = LOCK.lock().unwrap();
        let (release, is_released) = std::sync::mpsc::channel();
        let run = || {
            let _other = fiber::spawn(fiber::park);
            fiber::yield_now();
            drop(LOCK.lock());
        };
        let runs = std::thread::spawn(move || {
            Builder::new().workers(1).run(run).unwrap();
            release.send(()).unwrap();
        });
        io::stdin().read_line(&mut String::new()).unwrap();
        drop(guard);
        is_released.recv().unwrap();
        return runs.join().unwrap();
    };
    command.env("CRINGLE_WATCHDOG", "locks").env("CRINGLE_DETECT", "abort");
    let (piped, null) = (Stdio::piped, Stdio::null);
    let mut child = command.stdin(piped()).stdout(null()).stderr(piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("a lock of std or libc")));
    drop(child.stdin.take());
    assert_eq!(lines.find(|line| line.contains("hazard")), None);
    assert!(child.wait().unwrap().success());
}
