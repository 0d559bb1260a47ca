//! Cringle, on one worker: fibers that read one block after the other, and batches of `depth`
//! reads.

use crate::job::{Job, finish};
use common::clock::{Meter, Usage};
use common::plan::head;
use cringle::block::{Batch, FixedBufs, FixedFile};
use cringle::fiber;
use cringle::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    cringle::Builder::new().workers(1).run(f).expect("a runtime")
}

fn open(job: &Job) -> File {
    let flags = job.open_flags();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(&job.task.file);
    opened.expect("the file can be opened")
}

pub(super) fn fibers(job: &Job) -> (Usage, u64) {
    on_one_worker(|| {
        let file = &open(job);
        let mut area = job.area();
        let meter = Meter::start();
        let sum = fiber::scope(|s| {
            let blocks = area.chunks_mut(job.block()).enumerate();
            let fibers = blocks.map(|(index, block)| {
                let offsets = job.share(index);
                s.spawn_local(move || {
                    let mut sum = 0u64;
                    for offset in offsets {
                        assert_eq!(
                            file.read_at(block, offset).expect("the read succeeds"),
                            block.len()
                        );
                        sum = sum.wrapping_add(head(block));
                    }
                    sum
                })
            });
            let fibers: Vec<_> = fibers.collect();
            let sums = fibers.into_iter().map(|fiber| fiber.join().expect("no panic"));
            sums.fold(0, u64::wrapping_add)
        });
        finish(meter, sum)
    })
}

pub(super) fn batch(job: &Job) -> (Usage, u64) {
    on_one_worker(|| {
        let file = open(job);
        let mut area = job.area();
        let (depth, block) = (job.depth(), job.block());
        let mut spare: Batch<'static> = Batch::with_capacity(depth);
        let mut sum = 0u64;
        let meter = Meter::start();
        for offsets in job.offsets.chunks(depth) {
            let mut batch = spare;
            for (bytes, &offset) in area.chunks_mut(block).zip(offsets) {
                batch.read(&file, bytes, offset);
            }
            let results = batch.submit();
            results.iter().for_each(|count| assert_eq!(count.expect("the read succeeds"), block));
            spare = results.recycle();
            let blocks = area.chunks(block).take(offsets.len());
            sum = blocks.fold(sum, |sum, bytes| sum.wrapping_add(head(bytes)));
        }
        finish(meter, sum)
    })
}

pub(super) fn batch_fixed(job: &Job) -> (Usage, u64) {
    on_one_worker(|| {
        let file = FixedFile::register(&open(job)).expect("a file can be registered");
        let (depth, block) = (job.depth(), job.block());
        let mut area = FixedBufs::new(depth, block).expect("memory can be registered");
        let mut spare: Batch<'static> = Batch::with_capacity(depth);
        let mut sum = 0u64;
        let meter = Meter::start();
        for offsets in job.offsets.chunks(depth) {
            let mut batch = spare;
            for (bytes, &offset) in area.iter_mut().zip(offsets) {
                batch.read_fixed(&file, bytes, offset);
            }
            let results = batch.submit();
            results.iter().for_each(|count| assert_eq!(count.expect("the read succeeds"), block));
            spare = results.recycle();
            let blocks = area.iter().take(offsets.len());
            sum = blocks.fold(sum, |sum, bytes| sum.wrapping_add(head(bytes)));
        }
        finish(meter, sum)
    })
}
