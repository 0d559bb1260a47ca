//! Memory is bounded while objects are read, and is freed when futures are dropped. The test runs
//! in a child process, because it counts the allocations of the whole process.

use cringle::block::BlockIo;
use cringle_object_store::LocalStore;
use cringle_testing::child;
use futures_executor::block_on;
use futures_util::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the contract of `GlobalAlloc` holds: each call goes to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the largest number of bytes that were allocated during `work`, beyond those before it.
fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (PEAK.load(Ordering::Relaxed).saturating_sub(before), result)
}

/// Returns a number of bytes that Linux reports of this process.
fn bytes_of(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Returns by how many bytes the process grew at most during `work`, with what is mapped. Linux
/// counts roughly, by up to a few MiB on large machines.
fn growth_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    // The peak is what is there now.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = bytes_of("VmRSS:");
    let result = work();
    (bytes_of("VmHWM:").saturating_sub(before), result)
}

const MIB: usize = 1 << 20;
const OBJECT_BYTES: usize = 80 * MIB;

/// One test, because the counters belong to the process.
#[test]
fn memory_is_bounded_and_freed() {
    child::must_succeed("memory_is_bounded_and_freed", each_call_in_turn);
}

fn each_call_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("object"), vec![7; OBJECT_BYTES]).unwrap();
    let io = Arc::new(BlockIo::builder().build().unwrap());
    let builder = LocalStore::builder().prefix(directory.path()).block_io(Arc::clone(&io));
    let store = builder.build().unwrap();
    ranges_with_gaps(&store);
    ranges_without_gaps(&store);
    stream(&store);
    dropped_results(&store);
    dropped_futures(&store, &io);
}

/// The reads span the whole object, of which the caller wants a fortieth.
fn ranges_with_gaps(store: &LocalStore) {
    let ranges: Vec<_> = (0..20_000u64).map(|n| n * 4096..n * 4096 + 100).collect();
    let before = LIVE.load(Ordering::Relaxed);
    let read = || block_on(store.get_ranges(&"object".into(), &ranges)).unwrap();
    let (growth, (peak, results)) = growth_of(|| peak_of(read));
    assert_eq!(results.len(), 20_000);
    assert!(peak < 8 * MIB, "{peak} bytes allocated at once, for results of 2 MB");
    assert!(growth < 48 * MIB, "{growth} bytes at once, for results of 2 MB");
    let kept = LIVE.load(Ordering::Relaxed) - before;
    assert!(kept < 5 * MIB, "{kept} bytes are kept by results of 2 MB");
}

/// The results share the buffers of the reads.
fn ranges_without_gaps(store: &LocalStore) {
    let ranges: Vec<_> = (0..20_000u64).map(|n| n * 4000..n * 4000 + 4000).collect();
    let (peak, results) =
        peak_of(|| block_on(store.get_ranges(&"object".into(), &ranges)).unwrap());
    assert_eq!(results.len(), 20_000);
    assert!(peak < 80_000_000 + 8 * MIB, "{peak} bytes at once, for results of 80 MB");
}

fn stream(store: &LocalStore) {
    let (growth, bytes) = growth_of(|| {
        block_on(async {
            let got = store.get(&"object".into()).await.unwrap();
            let chunks = got.into_stream().map_ok(|chunk| chunk.len());
            chunks.try_fold(0, async |sum, len| Ok(sum + len)).await.unwrap()
        })
    });
    assert_eq!(bytes, OBJECT_BYTES);
    assert!(growth < 40 * MIB, "{growth} bytes at once, in chunks of 1 MiB");
}

/// The store keeps a few of them, which prevent nothing from being given back.
fn dropped_results(store: &LocalStore) {
    let before = bytes_of("VmRSS:");
    let ranges: Vec<_> = (0..190u64).map(|n| n * 410_000..n * 410_000 + 400_000).collect();
    for _ in 0..3 {
        drop(block_on(store.get_ranges(&"object".into(), &ranges)).unwrap());
    }
    let kept = bytes_of("VmRSS:").saturating_sub(before);
    assert!(kept < 40 * MIB, "{kept} bytes are kept of results of 76 MB that were dropped");
}

fn dropped_futures(store: &LocalStore, io: &BlockIo) {
    let ranges: Vec<_> = (0..5000u64).map(|n| n * 9000..n * 9000 + 4096).collect();
    let location = "object".into();
    let before = LIVE.load(Ordering::Relaxed);
    block_on(async {
        for _ in 0..10 {
            let mut read = std::pin::pin!(store.get_ranges(&location, &ranges));
            let _ = futures_util::poll!(&mut read);
            let mut put = std::pin::pin!(store.put(&location, vec![1; MIB].into()));
            let _ = futures_util::poll!(&mut put);
        }
    });
    // Waits for what the futures had started.
    io.close().unwrap();
    let kept = LIVE.load(Ordering::Relaxed).saturating_sub(before);
    assert!(kept < MIB, "{kept} bytes are kept by dropped futures");
}
