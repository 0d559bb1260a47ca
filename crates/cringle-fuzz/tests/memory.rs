//! A simulated run leaves nothing: no byte of memory, no descriptor, no mapping. It is on one thread,
//! so that what it allocates and frees can be counted there.

use cringle_fuzz::check;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: it hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: handed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: handed on to the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn lines(path: &str) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn memory_descriptors_and_mappings_are_balanced() {
    // What is made once in a process.
    for seed in 0..20 {
        check(seed).unwrap();
    }
    let (open, mapped) = (descriptors(), lines("/proc/self/maps"));
    for seed in 0..500 {
        let before = LIVE_BYTES.get();
        check(seed).unwrap();
        assert_eq!(LIVE_BYTES.get(), before, "seed {seed} left memory behind");
    }
    assert_eq!(descriptors(), open);
    // The allocator may have mapped a little more.
    assert!(lines("/proc/self/maps") <= mapped + 8);
}
