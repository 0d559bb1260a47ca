//! When `run` returns, the kernel writes into none of its fibers' buffers any more.
//!
//! Closing a ring does not wait for its disk reads: a runtime that frees the buffers of reads in
//! flight when it is dropped has them written to by the device later, when they are others'. Here
//! detached fibers read by `O_DIRECT` while the closure of `run` returns or panics; then memory of
//! the same sizes is allocated, and must stay as it was.
#![forbid(unsafe_code)]

use cringle::fs::{File, OpenOptions};
use cringle::{Builder, fiber};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const READS: usize = 384;
/// Below the size from which malloc maps memory of its own: so that what is freed is used again.
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

/// What a detached fiber does: it reads into memory of its own, and ends with it.
fn read(file: &File, place: usize, whole: &AtomicUsize, cancelled: &AtomicUsize) {
    let mut memory = vec![0u8; BYTES + ALIGN];
    let start = memory.as_ptr().align_offset(ALIGN);
    let buf = &mut memory[start..start + BYTES];
    match file.read_at(buf, (place * BYTES) as u64) {
        Ok(count) => {
            assert_eq!(count, BYTES);
            assert!(buf == [0x5A; BYTES]);
            whole.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => {
            assert!(error.get_ref().unwrap().is::<cringle::Cancelled>(), "{error:?}");
            cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ends a run with hundreds of reads in flight, again and again.
fn end_while_reading(workers: usize, end: impl Fn()) {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    make(file.path());
    let (whole, cancelled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for round in 0..4 {
        let run = || {
            Builder::new().workers(workers).run(|| {
                let file = Arc::new(direct(file.path()));
                for place in 0..READS {
                    let (file, whole) = (Arc::clone(&file), Arc::clone(&whole));
                    let cancelled = Arc::clone(&cancelled);
                    fiber::spawn(move || read(&file, place, &whole, &cancelled));
                }
                // In flight, and few of them back: the device needs some milliseconds for all.
                fiber::sleep(Duration::from_micros(400 * round));
                end();
            })
        };
        drop(catch_unwind(AssertUnwindSafe(run)));
        let fresh: Vec<Vec<u8>> = (0..READS).map(|_| vec![0u8; BYTES + ALIGN]).collect();
        let clean = vec![0u8; BYTES + ALIGN];
        let dirty = || fresh.iter().filter(|&memory| *memory != clean).count();
        assert_eq!(dirty(), 0);
        // What the device still wrote would come now.
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(dirty(), 0);
        let ended = whole.load(Ordering::Relaxed) + cancelled.load(Ordering::Relaxed);
        assert_eq!(ended, READS * (round as usize + 1), "each fiber was told how its read ended");
    }
    println!("{whole:?} reads were done, {cancelled:?} were given up");
}

#[test]
fn memory_is_not_written_to_after_run_returned() {
    end_while_reading(1, || ());
}

#[test]
fn memory_is_not_written_to_after_run_returned_from_two_workers() {
    end_while_reading(2, || ());
}

#[test]
fn memory_is_not_written_to_after_run_panicked() {
    end_while_reading(1, || resume_unwind(Box::new("the closure of run")));
}

#[test]
fn memory_is_not_written_to_after_a_fiber_panicked_beside_the_reads() {
    end_while_reading(1, || {
        fiber::spawn_local(|| resume_unwind(Box::new("a fiber")));
        fiber::yield_now();
    });
}
