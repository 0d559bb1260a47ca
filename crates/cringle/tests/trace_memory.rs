//! Counts allocations: recording an event allocates nothing.

use cringle::fs::File;
use cringle::{Builder, fiber, trace};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::unix::fs::FileExt;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread separately, because the writer thread allocates.
struct Counting;

// SAFETY: it forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the allocations of one round of work after a warm-up.
fn round(file: &File) -> u64 {
    let before = ALLOCATIONS.get();
    for _ in 0..1_000 {
        let _span = trace::span("round");
        let mut buf = [0; 64];
        file.read_exact_at(&mut buf, 0).unwrap();
        fiber::yield_now();
    }
    ALLOCATIONS.get() - before
}

#[test]
fn events_allocate_nothing() {
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
}
