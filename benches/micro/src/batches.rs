//! The overhead of a batch over the bare ring: 32 reads of 64 cached bytes at a time.
//!
//! The kernel completes such reads within the call that submits them (on ext4, XFS, Btrfs; not on
//! tmpfs), so no op waits, and the difference is overhead.

use crate::report::{Contest, Report};
use common::clock::cpu_ns_per_op;
use common::plan::{head, offsets};
use common::ring::{Options, Reader};
use common::{buffer::AlignedBuf, file};
use cringle::block::{Batch, FixedBufs, FixedFile};
use cringle::fs::File;
use std::path::Path;

const DEPTH: usize = 32;
const BLOCK: usize = 64;
const READS: u64 = 200_000;
const FILE_BYTES: u64 = 256 << 20;
/// The time of 0.97 of the bare ring's rate.
const BAR: f64 = 1.0 / 0.97;

pub(crate) fn run(rounds: usize, directory: &Path) -> Report {
    let scratch = file::Scratch::new(directory, FILE_BYTES).expect("a file can be created");
    let path = scratch.path();
    if file::is_on_tmpfs(path).expect("the file exists") {
        eprintln!("warning: {} is on tmpfs: see --directory", path.display());
    }
    let plan = offsets(1, READS as usize, FILE_BYTES, BLOCK as u64);
    let options = |fixed| Options { fixed, ..Options::default() };
    let sum = bare(path, &plan, options(false)).1;
    let checked = |(nanoseconds, other): (f64, u64)| {
        assert_eq!(other, sum, "the sides read different bytes");
        nanoseconds
    };
    let (batch, batch_fixed) = ("cringle: Batch of 32, recycled", "cringle: Batch of 32, fixed");
    let (ring, ring_fixed) = ("bare ring, 32 at a time", "bare ring, fixed");
    Contest::new("a read of 64 cached bytes, 32 at a time")
        .side(batch, || checked(batches(path, &plan)))
        .side(ring, || checked(bare(path, &plan, options(false))))
        .side(batch_fixed, || checked(batches_fixed(path, &plan)))
        .side(ring_fixed, || checked(bare(path, &plan, options(true))))
        .run(rounds)
        .ratio(batch, &[ring], Some(BAR))
        .ratio(batch_fixed, &[ring_fixed], Some(BAR))
}

/// Returns the nanoseconds per read, and the sum of the blocks' heads.
fn bare(path: &Path, plan: &[u64], options: Options) -> (f64, u64) {
    let file = file::open(path, false).expect("the file exists");
    let mut reader = Reader::new(file, DEPTH, BLOCK, options).expect("a ring");
    reader.read(&plan[..1000]).expect("the file can be read");
    let mut sum = 0;
    let nanoseconds =
        cpu_ns_per_op(READS, || sum = reader.read(plan).expect("the file can be read"));
    (nanoseconds, sum)
}

fn batches(path: &Path, plan: &[u64]) -> (f64, u64) {
    crate::on_one_worker(|| {
        let file = File::open(path).expect("the file exists");
        let mut area = AlignedBuf::new(DEPTH * BLOCK);
        let mut reading = |plan: &[u64]| {
            let mut spare: Batch<'static> = Batch::with_capacity(DEPTH);
            let mut sum = 0u64;
            for offsets in plan.chunks(DEPTH) {
                let mut batch = spare;
                for (block, &offset) in area.bytes_mut().chunks_mut(BLOCK).zip(offsets) {
                    batch.read(&file, block, offset);
                }
                let results = batch.submit();
                results
                    .iter()
                    .for_each(|count| assert_eq!(count.expect("the read succeeds"), BLOCK));
                spare = results.recycle();
                let blocks = area.bytes().chunks(BLOCK).take(offsets.len());
                sum = blocks.fold(sum, |sum, block| sum.wrapping_add(head(block)));
            }
            sum
        };
        reading(&plan[..1000]);
        let mut sum = 0;
        let nanoseconds = cpu_ns_per_op(READS, || sum = reading(plan));
        (nanoseconds, sum)
    })
}

fn batches_fixed(path: &Path, plan: &[u64]) -> (f64, u64) {
    crate::on_one_worker(|| {
        let file = File::open(path).expect("the file exists");
        let file = FixedFile::register(&file).expect("a file can be registered");
        let mut area = FixedBufs::new(DEPTH, BLOCK).expect("memory can be registered");
        let mut reading = |plan: &[u64]| {
            let mut spare: Batch<'static> = Batch::with_capacity(DEPTH);
            let mut sum = 0u64;
            for offsets in plan.chunks(DEPTH) {
                let mut batch = spare;
                for (block, &offset) in area.iter_mut().zip(offsets) {
                    batch.read_fixed(&file, block, offset);
                }
                let results = batch.submit();
                results
                    .iter()
                    .for_each(|count| assert_eq!(count.expect("the read succeeds"), BLOCK));
                spare = results.recycle();
                let blocks = area.iter().take(offsets.len());
                sum = blocks.fold(sum, |sum, block| sum.wrapping_add(head(block)));
            }
            sum
        };
        reading(&plan[..1000]);
        let mut sum = 0;
        let nanoseconds = cpu_ns_per_op(READS, || sum = reading(plan));
        (nanoseconds, sum)
    })
}
