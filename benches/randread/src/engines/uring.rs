//! The bare ring; see [`common::ring`].

use crate::job::{Job, finish};
use common::clock::{Meter, Usage};
use common::ring::Reader;

pub(super) fn run(job: &Job, fixed: bool) -> (Usage, u64) {
    let mut reader = Reader::new(job.open(), job.depth(), job.block(), fixed).expect("a ring");
    let meter = Meter::start();
    let sum = reader.read(&job.offsets).expect("the reads succeed");
    finish(meter, sum)
}
