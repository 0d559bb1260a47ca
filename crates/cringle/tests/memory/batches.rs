//! Counts allocations: a batch allocates nothing for an operation.

use super::{ALLOCATIONS, OF_THIS_THREAD};
use cringle::block::{Batch, BlockIo};
use cringle::fs::File;
use cringle_testing::child;
use std::sync::atomic::Ordering;

/// Returns the allocations of `f` on this thread, and of all threads meanwhile.
fn allocations_of(f: impl FnOnce()) -> (usize, usize) {
    let now = || (OF_THIS_THREAD.get(), ALLOCATIONS.load(Ordering::Relaxed));
    let before = now();
    f();
    let after = now();
    (after.0 - before.0, after.1 - before.1)
}

/// A batch of all kinds of operations, some of which are short or refused.
fn fill<'b>(mut batch: Batch<'b>, file: &'b File, bufs: &'b mut [[u8; 64]]) -> Batch<'b> {
    let end = file.metadata().unwrap().len();
    for (n, buf) in (0u64..).zip(bufs) {
        match n % 4 {
            0 => batch.read(file, buf, n * 64),
            1 => batch.read_exact(file, buf, n * 64),
            2 => batch.read_exact(file, buf, end - 10),
            _ => batch.read(file, buf, u64::MAX),
        };
    }
    batch
}

#[test]
fn recycled_batches_allocate_nothing_per_operation() {
    child::must_succeed("recycled_batches_allocate_nothing_per_operation", || {
        const OPS: usize = 1000;
        let mut bufs = vec![[0; 64]; OPS];
        let path = std::env::current_exe().unwrap();

        let run = || {
            let file = File::open(&path).unwrap();
            let results = fill(Batch::new(), &file, &mut bufs).submit();
            let mut spare = results.recycle();
            for _ in 0..3 {
                let (count, _) = allocations_of(|| {
                    let results = fill(std::mem::take(&mut spare), &file, &mut bufs).submit();
                    assert_eq!(results.iter().filter(|count| count.is_ok()).count(), OPS / 2);
                    spare = results.recycle();
                });
                // A fiber's batch stays on its thread. The test harness's threads are not counted.
                assert_eq!(count, 0, "in a round of a fiber's batch");
            }
        };
        cringle::Builder::new().workers(1).in_flight_limit(64).run(run).unwrap();

        let io = BlockIo::builder().build().unwrap();
        let file = File::open(&path).unwrap();
        let mut spare = Batch::new();
        let mut rounds = Vec::with_capacity(4);
        for _ in 0..4 {
            let (_, count) = allocations_of(|| {
                let results =
                    io.submit(fill(std::mem::take(&mut spare), &file, &mut bufs)).unwrap();
                spare = results.recycle();
            });
            rounds.push(count);
        }
        // A batch needs some allocations for its job and its fiber, however many operations it has.
        assert!(rounds[1..].iter().all(|&count| count < 50), "{rounds:?}");
    });
}
