//! tokio-uring, which waits for its ring by epoll and so cannot use `DEFER_TASKRUN`.

use super::owned::{read_by_local_tasks, tuned};
use crate::job::Job;
use common::clock::Usage;

pub(super) fn run(job: &Job, coop: bool) -> (Usage, u64) {
    let mut builder = tokio_uring::builder();
    builder.entries(job.depth().next_power_of_two().max(256) as u32);
    if coop {
        builder.uring_builder(&tuned(false));
    }
    builder.start(async {
        let file = tokio_uring::fs::File::from_std(job.open());
        read_by_local_tasks!(job, file, tokio_uring::spawn, |sum: Result<u64, _>| {
            sum.expect("no panic")
        })
    })
}
