//! monoio, on its io_uring driver.

use super::owned::{read_by_local_tasks, tuned};
use crate::job::Job;
use common::clock::Usage;
use monoio::{IoUringDriver, RuntimeBuilder};

pub(super) fn run(job: &Job, deferred: bool) -> (Usage, u64) {
    let mut builder = RuntimeBuilder::<IoUringDriver>::new();
    if deferred {
        builder = builder.uring_builder(tuned(true));
    }
    builder.build().expect("a runtime").block_on(async {
        let file = monoio::fs::File::from_std(job.open()).expect("a file");
        read_by_local_tasks!(job, file, monoio::spawn, |sum: u64| sum)
    })
}
