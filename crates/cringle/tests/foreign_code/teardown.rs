//! After `run` has returned, the kernel writes into no buffer of its fibers.
//!
//! Closing a ring does not wait for its disk reads. If a runtime frees the buffers of reads in
//! flight, the device writes to that memory later, when it belongs to other owners. Here detached
//! fibers read by `O_DIRECT` while the closure of `run` returns or panics, or fibers of a scope
//! read while the scope is cancelled, fails, or runs out of time. Then the test allocates memory of
//! the same sizes, which must not change.
#![forbid(unsafe_code)]

use cringle::fs::{File, OpenOptions};
use cringle::{Builder, cancel, fiber, time};
use cringle_testing::child;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const READS: usize = 384;
/// Below the size from which malloc makes mappings, so that freed memory is reused.
const BYTES: usize = 96 * 1024;
const ALIGN: usize = 4096;

fn make(path: &Path) {
    std::fs::write(path, vec![0x5A; READS * BYTES]).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

fn direct(path: &Path) -> File {
    const O_DIRECT: i32 = 0o40000;
    OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).unwrap()
}

/// The body of a fiber: reads a block into its own memory, and counts how the read ended.
fn read(file: &File, block: usize, completed: &AtomicUsize, cancelled: &AtomicUsize) {
    let mut memory = vec![0u8; BYTES + ALIGN];
    let start = memory.as_ptr().align_offset(ALIGN);
    let buf = &mut memory[start..start + BYTES];
    match file.read_at(buf, (block * BYTES) as u64) {
        Ok(count) => {
            assert_eq!(count, BYTES);
            assert!(buf == [0x5A; BYTES]);
            completed.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => {
            assert!(cancel::reason(&error).is_some(), "{error:?}");
            cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Allocates the memory that was just freed, and checks that nothing writes to it.
fn assert_unwritten() {
    let fresh: Vec<Vec<u8>> = (0..READS).map(|_| vec![0u8; BYTES + ALIGN]).collect();
    let clean = vec![0u8; BYTES + ALIGN];
    let dirty = || fresh.iter().filter(|&memory| *memory != clean).count();
    assert_eq!(dirty(), 0);
    // A late write of the device arrives within this time.
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(dirty(), 0);
}

/// Ends a run with hundreds of reads in flight, many times.
fn end_while_reading(workers: usize, end: impl Fn()) {
    let file = tempfile::NamedTempFile::new_in(cringle_testing::disk::place()).unwrap();
    make(file.path());
    let (completed, cancelled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for round in 0..4 {
        let run = || {
            Builder::new().workers(workers).run(|| {
                let file = Arc::new(direct(file.path()));
                for block in 0..READS {
                    let (file, completed) = (Arc::clone(&file), Arc::clone(&completed));
                    let cancelled = Arc::clone(&cancelled);
                    fiber::spawn(move || read(&file, block, &completed, &cancelled));
                }
                // Most reads are still in flight, because the device needs milliseconds for all.
                fiber::sleep(Duration::from_micros(400 * round));
                end();
            })
        };
        drop(catch_unwind(AssertUnwindSafe(run)));
        assert_unwritten();
        let ended = completed.load(Ordering::Relaxed) + cancelled.load(Ordering::Relaxed);
        assert_eq!(ended, READS * (round as usize + 1), "each fiber has the result of its read");
    }
    println!("{completed:?} reads completed, {cancelled:?} were cancelled");
}

#[test]
fn buffers_are_free_after_run_returns() {
    child::must_succeed("buffers_are_free_after_run_returns", || {
        end_while_reading(1, || ());
    });
}

#[test]
fn buffers_are_free_after_run_on_two_workers() {
    child::must_succeed("buffers_are_free_after_run_on_two_workers", || {
        end_while_reading(2, || ());
    });
}

#[test]
fn buffers_are_free_after_run_panics() {
    child::must_succeed("buffers_are_free_after_run_panics", || {
        end_while_reading(1, || resume_unwind(Box::new("the closure of run")));
    });
}

#[test]
fn buffers_are_free_after_other_fiber_panics() {
    child::must_succeed("buffers_are_free_after_other_fiber_panics", || {
        end_while_reading(1, || {
            fiber::spawn_local(|| resume_unwind(Box::new("a fiber")));
            fiber::yield_now();
        });
    });
}

// ----- reads that are cancelled during the run -----

/// Calls `cancel` several times: it starts the reads of all blocks, and cancels them after a delay.
fn cancel_while_reading(workers: usize, cancel: impl Fn(Duration, &(dyn Fn(usize) + Sync))) {
    let file = tempfile::NamedTempFile::new_in(cringle_testing::disk::place()).unwrap();
    make(file.path());
    let (completed, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let run = Builder::new().workers(workers).run(|| {
        let file = direct(file.path());
        for round in 0..4 {
            let read = |block: usize| read(&file, block, &completed, &cancelled);
            cancel(Duration::from_micros(400 * round), &read);
            assert_unwritten();
            let ended = completed.load(Ordering::Relaxed) + cancelled.load(Ordering::Relaxed);
            assert_eq!(
                ended,
                READS * (round as usize + 1),
                "each fiber has the result of its read"
            );
        }
    });
    run.unwrap();
    println!("{completed:?} reads completed, {cancelled:?} were cancelled");
}

#[test]
fn buffers_are_free_after_scope_is_cancelled() {
    child::must_succeed("buffers_are_free_after_scope_is_cancelled", || {
        for workers in [1, 2] {
            cancel_while_reading(workers, |delay, read| {
                fiber::scope(|s| {
                    for block in 0..READS {
                        s.spawn(move || read(block));
                    }
                    fiber::protect(|| fiber::sleep(delay));
                    s.cancel();
                });
            });
        }
    });
}

#[test]
fn buffers_are_free_after_deadline() {
    child::must_succeed("buffers_are_free_after_deadline", || {
        for workers in [1, 2] {
            cancel_while_reading(workers, |delay, read| {
                let result = time::timeout(delay, || {
                    fiber::scope(|s| {
                        for block in 0..READS {
                            s.spawn(move || read(block));
                        }
                    });
                    Ok(())
                });
                result.unwrap();
            });
        }
    });
}

#[test]
fn buffers_are_free_after_sibling_panics() {
    child::must_succeed("buffers_are_free_after_sibling_panics", || {
        for workers in [1, 2] {
            cancel_while_reading(workers, |delay, read| {
                let scope = AssertUnwindSafe(|| {
                    fiber::try_scope(|s| {
                        for block in 0..READS {
                            s.spawn(move || {
                                read(block);
                                io::Result::Ok(())
                            });
                        }
                        s.spawn_local(move || {
                            drop(time::sleep(delay));
                            resume_unwind(Box::new("a fiber"))
                        }) as fiber::ScopedJoinHandle<'_, io::Result<()>>;
                        Ok(())
                    })
                });
                catch_unwind(scope).unwrap_err();
            });
        }
    });
}

/// The reading fiber unwinds, and frees its buffer after the read has ended.
#[test]
fn buffers_are_free_after_readers_unwind() {
    child::must_succeed("buffers_are_free_after_readers_unwind", || {
        cancel_while_reading(2, |delay, read| {
            fiber::scope(|s| {
                for block in 0..READS {
                    let handle = s.spawn(move || {
                        read(block);
                        fiber::sleep(Duration::MAX);
                    });
                    drop(handle);
                }
                s.spawn_daemon(fiber::park);
                fiber::protect(|| fiber::sleep(delay));
                s.cancel();
            });
        });
    });
}
