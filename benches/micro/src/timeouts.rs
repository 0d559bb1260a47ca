//! The cost that a deadline adds to a read that completes in time: 4 KiB from the page cache, on
//! one fiber alone and on 32 fibers.

use crate::report::{Contest, Report};
use common::clock::cpu_ns_per_op;
use common::file;
use common::plan::offsets;
use cringle::fiber;
use cringle::fs::File;
use cringle::time::timeout;
use std::cell::Cell;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const BLOCK: usize = 4096;
const READS: u64 = 100_000;
const FILE_BYTES: u64 = 256 << 20;
const LIMIT: Duration = Duration::from_secs(60);
const BAR: f64 = 1.10;

pub(crate) fn run(rounds: usize, directory: &Path) -> Report {
    let scratch = file::Scratch::new(directory, FILE_BYTES).expect("a file can be created");
    file::warm(scratch.path()).expect("the file exists");
    let plan = offsets(1, READS as usize, FILE_BYTES, BLOCK as u64);
    let plain: Read = |file, buf, at| file.read_at(buf, at);
    let bounded: Read = |file, buf, at| timeout(LIMIT, || file.read_at(buf, at));
    let path = scratch.path();
    Contest::new("a read of 4 KiB from the page cache under a deadline")
        .side("alone", || reads(path, &plan, 1, plain))
        .side("alone, within a timeout", || reads(path, &plan, 1, bounded))
        .side("each of 32 fibers", || reads(path, &plan, 32, plain))
        .side("each of 32 fibers, within a timeout", || reads(path, &plan, 32, bounded))
        .run(rounds)
        .ratio("alone, within a timeout", &["alone"], Some(BAR))
        .ratio("each of 32 fibers, within a timeout", &["each of 32 fibers"], Some(BAR))
}

type Read = fn(&File, &mut [u8], u64) -> io::Result<usize>;

/// Returns the nanoseconds per read.
fn reads(path: &Path, plan: &[u64], fibers: usize, read: Read) -> f64 {
    crate::on_one_worker(|| {
        let file = File::open(path).expect("the file exists");
        let next = Cell::new(0);
        let read_all = || {
            let mut buf = [0; BLOCK];
            while let Some(&at) = plan.get(next.get()) {
                next.set(next.get() + 1);
                assert_eq!(read(&file, &mut buf, at).expect("the read succeeds"), BLOCK);
            }
        };
        cpu_ns_per_op(READS, || {
            fiber::scope(|s| (0..fibers).for_each(|_| drop(s.spawn_local(read_all))));
        })
    })
}
