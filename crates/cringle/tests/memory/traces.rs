//! Counts allocations: recording an event allocates nothing.

use super::OF_THIS_THREAD;
use cringle::fs::File;
use cringle::{Builder, fiber, trace};
use cringle_testing::child;
use std::os::unix::fs::FileExt;

/// Returns the allocations of this thread in one round of work. (The thread that writes the trace
/// allocates.)
fn round(file: &File) -> usize {
    let before = OF_THIS_THREAD.get();
    for _ in 0..1_000 {
        let _span = trace::span("round");
        let mut buf = [0; 64];
        file.read_exact_at(&mut buf, 0).unwrap();
        fiber::yield_now();
    }
    OF_THIS_THREAD.get() - before
}

#[test]
fn events_allocate_nothing() {
    child::must_succeed("events_allocate_nothing", || {
        let directory = tempfile::tempdir().unwrap();
        Builder::new()
            .workers(1)
            .run(|| {
                let file = File::open("/proc/self/exe").unwrap();
                fiber::scope(|s| {
                    // Another fiber, so that reads go through the ring.
                    s.spawn_daemon_local(|| {
                        loop {
                            fiber::yield_now();
                        }
                    });
                    round(&file);
                    let without = round(&file);
                    let trace = trace::start(directory.path().join("memory.pftrace")).unwrap();
                    round(&file);
                    let with = round(&file);
                    let written = trace.finish().unwrap();
                    assert!(written.events > 4_000, "the trace was on: {written:?}");
                    assert_eq!(with, without, "an event allocates nothing");
                    assert_eq!(without, 0, "nor does a read or a yield");
                });
            })
            .unwrap();
    });
}
