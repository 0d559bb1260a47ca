//! `pread` on one thread, and on `depth` threads.

use crate::job::{Job, finish};
use common::clock::{Meter, Usage};
use common::plan::head;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;

pub(super) fn sync(job: &Job) -> (Usage, u64) {
    let file = job.open();
    let mut area = job.area();
    let block = &mut area.bytes_mut()[..job.block()];
    let mut sum = 0u64;
    let meter = Meter::start();
    for &offset in job.offsets.iter() {
        assert_eq!(file.read_at(block, offset).expect("the read succeeds"), block.len());
        sum = sum.wrapping_add(head(block));
    }
    finish(meter, sum)
}

pub(super) fn threads(job: &Job) -> (Usage, u64) {
    let file = job.open();
    let mut area = job.area();
    let start = Barrier::new(job.depth() + 1);
    let (file, start) = (&file, &start);
    std::thread::scope(|s| {
        let blocks = area.bytes_mut().chunks_mut(job.block()).enumerate();
        let threads = blocks.map(|(index, block)| {
            let offsets = job.share(index);
            s.spawn(move || {
                start.wait();
                offsets.fold(0u64, |sum, offset| {
                    assert_eq!(
                        file.read_at(block, offset).expect("the read succeeds"),
                        block.len()
                    );
                    sum.wrapping_add(head(block))
                })
            })
        });
        let threads: Vec<_> = threads.collect();
        let meter = Meter::start();
        start.wait();
        let sums = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        let sum = sums.fold(0, u64::wrapping_add);
        finish(meter, sum)
    })
}
