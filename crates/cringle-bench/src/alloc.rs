//! A global allocator that counts allocations while `bench batch` measures.
//!
//! It passes everything to the system's allocator. With counting off, an allocation costs one
//! relaxed load more, of a cache line that is only read.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The `#[global_allocator]` that a program must declare for `bench batch` to count allocations.
pub struct CountingAllocator;

static ENABLED: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The allocations of all threads since counting began, freed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
}

/// Starts to count from zero. There is one counter: a second start resets it.
pub(crate) fn start() {
    ALLOCATIONS.store(0, Relaxed);
    BYTES.store(0, Relaxed);
    ENABLED.store(true, Relaxed);
}

/// Stops counting and returns the count.
pub(crate) fn stop() -> Allocated {
    ENABLED.store(false, Relaxed);
    Allocated { allocations: ALLOCATIONS.load(Relaxed), bytes: BYTES.load(Relaxed) }
}

fn record(bytes: usize) {
    if ENABLED.load(Relaxed) {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes as u64, Relaxed);
    }
}

// SAFETY: every method passes its arguments unchanged to `System`, which fulfils the contract;
// `record` neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: the contract is the caller's, and the layout is passed unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        record(new_size);
        // SAFETY: `block` came from `System` with this layout, as all blocks of this allocator do.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System` with this layout, as all blocks of this allocator do.
        unsafe { System.dealloc(block, layout) }
    }
}
