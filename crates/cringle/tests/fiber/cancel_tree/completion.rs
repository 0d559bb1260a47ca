//! A completed wait wins over a cancel.

use cringle::runtime::Feature;
use cringle::{Builder, fiber, time};
use cringle_testing::tools::*;
use std::cell::Cell;
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn completed_wait_wins_over_later_cancel() {
    on_one_worker(|| {
        // The fiber waits; then its wait completes; then it is cancelled; then it resumes.
        fiber::scope(|s| {
            let parked = s.spawn_local(fiber::park_cancellable);
            let unwinds = s.spawn_local(fiber::park);
            let_others_wait();
            parked.thread().unpark();
            unwinds.thread().unpark();
            s.cancel();
            parked.join().unwrap().unwrap();
            unwinds.join().unwrap();
        });
        fiber::scope(|s| {
            let ends = fiber::spawn_local(|| 7);
            let joins = s.spawn_local(|| ends.join_cancellable());
            fiber::yield_now();
            // The fiber has ended and has woken the joiner, which has not resumed yet.
            s.cancel();
            assert_eq!(joins.join().unwrap().unwrap().unwrap(), 7);
        });
    });
}

/// A very short timeout around a read that completes at once: the cancel races with the completion,
/// and the next read uses the same frame.
#[test]
fn cancel_that_races_completion_hits_no_later_op() {
    race(Builder::new(), 100_000);
    // Here a completion can arrive at any time, even before the queued cancel reaches the kernel.
    let builder = Builder::new().without(Feature::DeferTaskrun).without(Feature::TaskrunFlag);
    race(builder, 20_000);
}

fn race(builder: Builder, rounds: usize) {
    let file = tempfile::NamedTempFile::new_in(cringle_testing::disk::place()).unwrap();
    std::fs::write(file.path(), [7; 4096]).unwrap();
    let (completed, cancelled) = (Cell::new(0), Cell::new(0));
    let run = builder.workers(1).run(|| {
        let (reader, writer) = pipe();
        let file = cringle::fs::File::open(file.path()).unwrap();
        let over = Cell::new(false);
        fiber::scope(|s| {
            // Another fiber is always ready, so every read goes through the ring.
            s.spawn_local(|| {
                while !over.get() {
                    fiber::yield_now();
                }
            });
            let read = |limit, byte: &mut u8| {
                // Each call uses the same frame.
                time::timeout(limit, || {
                    let byte = std::slice::from_mut(byte);
                    std::os::unix::fs::FileExt::read_at(&file, byte, 9)
                })
            };
            for round in 0..rounds {
                let mut byte = 0;
                let limit = Duration::from_nanos(round as u64 % 64 * 100);
                match read(limit, &mut byte) {
                    Ok(count) => {
                        assert_eq!((count, byte), (1, 7));
                        completed.set(completed.get() + 1);
                    }
                    Err(error) => {
                        assert_elapsed(&error, limit);
                        assert_eq!(byte, 0, "a cancelled read writes nothing");
                        cancelled.set(cancelled.get() + 1);
                    }
                }
                // If the cancel were still queued, it would hit this read.
                let mut byte = 0;
                assert_eq!(read(Duration::MAX, &mut byte).unwrap(), 1);
                if round % 16 == 0 {
                    // This read waits in the kernel until its deadline passes or its byte arrives.
                    let write = s.spawn_local(|| (&writer).write_all(&[1]));
                    let first = time::timeout(limit, || (&reader).read(&mut [0]));
                    let second = match first {
                        Ok(count) => Ok(count),
                        Err(_) => (&reader).read(&mut [0]),
                    };
                    assert_eq!(second.unwrap(), 1);
                    write.join().unwrap().unwrap();
                }
            }
            over.set(true);
        });
    });
    run.unwrap();
    println!("{} completed, {} were cancelled", completed.get(), cancelled.get());
    assert!(completed.get() > 0 && cancelled.get() > 0);
}
