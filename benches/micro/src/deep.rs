//! The memory of fibers that were deep once: resident at once, and after a second of idleness.
//!
//! It is counted in a process of its own, as in [`memory`](crate::memory).

use crate::report::Report;
use common::memory;
use cringle::fiber;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

/// The fibers, and the bytes that each has used of its stack.
const FIBERS: usize = 1000;
const DEEP_BYTES: usize = 256 << 10;
const BAR_KIB: f64 = 16.0;

/// Measures the fibers of a child.
pub(crate) fn run() -> Report {
    let title = "memory of idle fibers that were deep once (256 KiB)";
    eprintln!("{title} …");
    let program = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(program).arg("--count-deep-memory").output();
    let output = output.expect("this program starts");
    assert!(output.status.success(), "the child that counts memory failed: {}", output.status);
    let [at_once, later]: [f64; 2] =
        serde_json::from_slice(&output.stdout).expect("the child prints two numbers");
    let figures = vec![
        ("fibers, all parked".to_owned(), FIBERS as f64),
        ("resident at once, KiB per fiber".to_owned(), at_once),
        ("resident after a second, KiB per fiber".to_owned(), later),
    ];
    let report = Report::of_single_figures(title, "", figures);
    report.figure_bar("resident memory after a second", "KiB", later, BAR_KIB)
}

/// Runs in the child: prints the KiB of a fiber, at once and after a second.
pub(crate) fn count() {
    let counts = cringle::Builder::new().workers(1).run(|| {
        let before = memory::now();
        let each = || (memory::now() - before).resident_bytes as f64 / FIBERS as f64 / 1024.0;
        fiber::scope(|s| {
            let park = || {
                call_deep();
                fiber::park();
            };
            let handles: Vec<_> = (0..FIBERS).map(|_| s.spawn_local(park)).collect();
            fiber::yield_now();
            let at_once = each();
            fiber::sleep(Duration::from_secs(1));
            let later = each();
            handles.iter().for_each(|handle| handle.thread().unpark());
            [at_once, later]
        })
    });
    let counts = counts.expect("a runtime starts");
    println!("{}", serde_json::to_string(&counts).expect("plain numbers"));
}

#[inline(never)]
fn call_deep() {
    black_box(&mut [1u8; DEEP_BYTES]);
}
