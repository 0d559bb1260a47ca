//! A simulated run leaks no memory, no descriptor and no mapping. The test runs in a child process,
//! whose allocations, descriptors and mappings are its own: the test harness waits meanwhile.

use cringle_fuzz::check_on;
use cringle_testing::child;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

struct Counting;

static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: isize) {
    LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: every call is forwarded to the system's allocator, which keeps the trait's contract;
// counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` is from `System.alloc`.
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
fn a_simulated_run_leaks_nothing() {
    child::must_succeed("a_simulated_run_leaks_nothing", run_and_count);
}

fn run_and_count() {
    // Warm up what is made once in a process.
    for seed in 0..20 {
        check_on(seed, 1).unwrap();
    }
    let (open, mapped) = (descriptors(), lines("/proc/self/maps"));
    for seed in 0..500 {
        let before = LIVE_BYTES.load(Ordering::Relaxed);
        check_on(seed, 1).unwrap();
        assert_eq!(LIVE_BYTES.load(Ordering::Relaxed), before, "seed {seed} leaked memory");
    }
    assert_eq!(descriptors(), open);
    // The allocator itself may map a little more.
    assert!(lines("/proc/self/maps") <= mapped + 8);
}
