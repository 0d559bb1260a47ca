//! The memory of idle fibers: resident pages, and page tables.
//!
//! Each count is taken in its own process, so that earlier allocations do not matter. It includes
//! everything that belongs to a fiber: the touched pages of its stack, its control block, its
//! handle, and the state that it shares with the handle.

use crate::report::Report;
use common::memory::{self, Memory};
use cringle::fiber;
use cringle::runtime::ThreadLocals;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const BAR_KIB: f64 = 8.5;
const KIB: f64 = 1024.0;

/// The output of the child.
#[derive(Serialize, Deserialize)]
struct Count {
    fibers: u64,
    /// The time until all fibers were parked.
    spawn_seconds: f64,
    resident_bytes: u64,
    page_table_bytes: u64,
    /// The time to unpark and join all fibers.
    join_seconds: f64,
}

/// Whose thread-locals the fibers use.
#[derive(Clone, Copy)]
pub(crate) enum Locals {
    Shared,
    /// Their own. Each fiber has allocated once.
    PrivateWithMalloc,
}

/// Measures this number of parked fibers, which share their worker's thread-locals.
pub(crate) fn run_shared(title: &'static str, fibers: u64) -> Report {
    run(title, fibers, Locals::Shared, BAR_KIB)
}

/// Measures this number of parked fibers.
pub(crate) fn run(title: &'static str, fibers: u64, locals: Locals, bar_kib: f64) -> Report {
    eprintln!("{title} …");
    let count = in_child(fibers, locals);
    let each = |bytes: u64| bytes as f64 / count.fibers as f64 / KIB;
    let resident = each(count.resident_bytes);
    let microseconds = |seconds: f64| seconds * 1e6 / count.fibers as f64;
    let figures = vec![
        ("fibers, all parked".to_owned(), count.fibers as f64),
        ("resident, KiB per fiber".to_owned(), resident),
        ("page tables, KiB per fiber".to_owned(), each(count.page_table_bytes)),
        ("resident, MiB total".to_owned(), count.resident_bytes as f64 / KIB / KIB),
        ("page tables, MiB total".to_owned(), count.page_table_bytes as f64 / KIB / KIB),
        ("spawned and parked, s".to_owned(), count.spawn_seconds),
        ("spawned and parked, us per fiber".to_owned(), microseconds(count.spawn_seconds)),
        ("unparked and joined, s".to_owned(), count.join_seconds),
        ("unparked and joined, us per fiber".to_owned(), microseconds(count.join_seconds)),
    ];
    let report = Report::of_single_figures(title, "", figures);
    report.figure_bar("resident memory of an idle fiber", "KiB", resident, bar_kib)
}

fn in_child(fibers: u64, locals: Locals) -> Count {
    let option = match locals {
        Locals::Shared => "--count-memory",
        Locals::PrivateWithMalloc => "--count-private-memory",
    };
    let program = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(program)
        .args([option, &fibers.to_string()])
        .stderr(std::process::Stdio::inherit())
        .output()
        .expect("this program starts");
    assert!(output.status.success(), "the child that counts memory failed: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("the child prints a count")
}

/// Runs in the child: prints its [`Count`].
pub(crate) fn count(fibers: u64, locals: Locals) {
    let builder = cringle::Builder::new().workers(1);
    let builder = match locals {
        Locals::Shared => builder.thread_locals(ThreadLocals::Shared),
        Locals::PrivateWithMalloc => builder.thread_locals(ThreadLocals::Private),
    };
    let count = builder.run(|| {
        match locals {
            Locals::Shared => fiber::spawn_local(|| ()).join().expect("no panic"),
            Locals::PrivateWithMalloc => fiber::spawn(|| ()).join().expect("no panic"),
        }
        let before = memory::now();
        let start = Instant::now();
        let parked = AtomicU64::new(0);
        fiber::scope(|s| {
            let park = || {
                parked.fetch_add(1, Relaxed);
                fiber::park();
            };
            let allocate_and_park = move || {
                drop(black_box(Box::new([0u8; 100])));
                park();
            };
            let spawn = |_| match locals {
                Locals::Shared => s.spawn_local(park),
                Locals::PrivateWithMalloc => s.spawn(allocate_and_park),
            };
            let handles: Vec<_> = (0..fibers).map(spawn).collect();
            while parked.load(Relaxed) < fibers {
                fiber::yield_now();
            }
            let spawn_seconds = start.elapsed().as_secs_f64();
            let Memory { resident_bytes, page_table_bytes } = memory::now() - before;
            let start = Instant::now();
            handles.iter().for_each(|handle| handle.thread().unpark());
            handles.into_iter().for_each(|handle| handle.join().expect("no panic"));
            let join_seconds = start.elapsed().as_secs_f64();
            Count { fibers, spawn_seconds, resident_bytes, page_table_bytes, join_seconds }
        })
    });
    let count = count.expect("a runtime starts");
    println!("{}", serde_json::to_string(&count).expect("plain numbers"));
}
