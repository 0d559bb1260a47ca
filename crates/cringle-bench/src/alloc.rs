//! The global allocator: the system's, which counts while it is asked to.
//!
//! `bench batch` reports allocations per operation. Everything else runs with counting off,
//! and then pays one relaxed load of a read-only cache line per allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What a program has to declare as its `#[global_allocator]`, else `bench batch` counts nothing.
pub struct CountingAllocator;

static ENABLED: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// What was allocated since counting began: by every thread, freed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    pub allocations: u64,
    pub bytes: u64,
}

/// Counts from zero. Only one count at a time makes sense; the second restarts the first.
pub(crate) fn start() {
    ALLOCATIONS.store(0, Relaxed);
    BYTES.store(0, Relaxed);
    ENABLED.store(true, Relaxed);
}

pub(crate) fn stop() -> Allocated {
    ENABLED.store(false, Relaxed);
    Allocated { allocations: ALLOCATIONS.load(Relaxed), bytes: BYTES.load(Relaxed) }
}

fn note(bytes: usize) {
    if ENABLED.load(Relaxed) {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes as u64, Relaxed);
    }
}

// SAFETY: every method hands its arguments unchanged to `System`, which keeps the contract;
// counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract, and it is passed on as it is.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        // SAFETY: `block` came from `System`, for all our blocks do, with this layout.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System`, for all our blocks do, with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}
