//! Locks of std that block a worker.

use cringle::{Builder, fiber};
use cringle_testing::child;
use std::io::{self, BufRead, BufReader};
use std::process::Stdio;

#[test]
fn std_lock_that_blocks_worker_is_no_hazard() {
    let name = "std_lock_that_blocks_worker_is_no_hazard";
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
    let report = lines.find(|line| line.contains("a lock of std or libc")).expect("a report");
    assert!(report.contains("fiber 'main'") && report.contains("blocks worker 0"), "{report}");
    drop(child.stdin.take());
    assert_eq!(lines.find(|line| line.contains("hazard")), None);
    assert!(child.wait().unwrap().success());
}
