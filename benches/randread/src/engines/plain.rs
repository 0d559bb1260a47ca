//! `pread` on one thread.

use crate::job::{Job, finish};
use common::clock::{Meter, Usage};
use common::plan::head;
use std::os::unix::fs::FileExt;

pub(super) fn sync(job: &Job) -> (Usage, u64) {
    let file = job.open();
    let mut area = job.area();
    let block = &mut area[..job.block()];
    let mut sum = 0u64;
    let meter = Meter::start();
    for &offset in job.offsets.iter() {
        assert_eq!(file.read_at(block, offset).expect("the read succeeds"), block.len());
        sum = sum.wrapping_add(head(block));
    }
    finish(meter, sum)
}
