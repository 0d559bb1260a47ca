//! Reads of cached bytes by several ready fibers.

use cringle::fs::{Advice, File, ReadFlags};
use cringle::{fiber, runtime};
use cringle_testing::disk::{directory, make_cold, pattern};
use std::cell::Cell;
use std::os::unix::fs::FileExt;

const FIBERS: usize = 8;
const BLOCK: usize = 4096;

/// Inline calls that succeeded and that failed.
fn inline_calls() -> (u64, u64) {
    let total = runtime::stats().unwrap().total();
    (total.inline_hits, total.inline_misses)
}

/// Runs `f` on one worker with a file of a block for each fiber, if its reads may be inline.
fn with_file(f: impl FnOnce(&File)) {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(FIBERS * BLOCK)).unwrap();
    cringle::Builder::new()
        .workers(1)
        .run(|| {
            let file = File::open(&path).unwrap();
            let cached = file.read_at_with(&mut [0; 16], 0, ReadFlags::NOWAIT);
            match (runtime::driver(), cached) {
                (runtime::Driver::Uring(_), Ok(16)) => f(&file),
                other => eprintln!("skipped: {other:?}"),
            }
        })
        .unwrap();
}

/// Each fiber reads its block this many times.
fn read_by_fibers(file: &File, times: usize) {
    let expected = pattern(FIBERS * BLOCK);
    fiber::scope(|s| {
        for block in expected.chunks(BLOCK) {
            let offset = block.as_ptr() as usize - expected.as_ptr() as usize;
            s.spawn_local(move || {
                for _ in 0..times {
                    let mut buf = [0; BLOCK];
                    file.read_exact_at(&mut buf, offset as u64).unwrap();
                    assert!(buf == block);
                }
            });
        }
    });
}

#[test]
fn cached_reads_of_ready_fibers_are_plain_calls() {
    with_file(|file| {
        let before = inline_calls();
        read_by_fibers(file, 20);
        let after = inline_calls();
        assert_eq!((after.0 - before.0, after.1 - before.1), (20 * FIBERS as u64, 0));
    });
}

#[test]
fn one_miss_sends_the_reads_of_ready_fibers_to_the_ring() {
    with_file(|file| {
        file.advise(Advice::Random, 0, 0).unwrap();
        make_cold(file);
        if file.read_at_with(&mut [0; 16], 0, ReadFlags::NOWAIT).is_ok() {
            return eprintln!("skipped: the pages stay in memory");
        }
        let before = inline_calls();
        read_by_fibers(file, 1);
        let after = inline_calls();
        // The ring submits four reads to a disk at once. If they end meanwhile, the next read is
        // tried inline again.
        let misses = after.1 - before.1;
        assert!((1..=2).contains(&misses), "{misses} misses");
        // The first reads go to the ring, which shows that the page cache has all blocks now.
        read_by_fibers(file, 20);
        let hits = inline_calls().0 - after.0;
        assert!(hits >= 19 * FIBERS as u64, "{hits} hits");
    });
}

#[test]
fn others_run_between_cached_reads_of_a_fiber() {
    with_file(|file| {
        let (reads, is_done) = (Cell::new(0), Cell::new(false));
        fiber::scope(|s| {
            s.spawn_local(|| {
                for _ in 0..200 {
                    file.read_exact_at(&mut [0; 64], 0).unwrap();
                    reads.set(reads.get() + 1);
                }
                is_done.set(true);
            });
            let mut most = 0;
            while !is_done.get() {
                let before = reads.get();
                fiber::yield_now();
                most = most.max(reads.get() - before);
            }
            assert!((2..=16).contains(&most), "{most} reads in a turn");
        });
    });
}
