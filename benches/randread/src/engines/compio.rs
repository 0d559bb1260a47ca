//! compio, on its io_uring driver.

use super::owned::read_by_local_tasks;
use crate::job::Job;
use common::clock::Usage;
use compio::io::AsyncReadAt;

pub(super) fn run(job: &Job, deferred: bool) -> (Usage, u64) {
    let mut proactor = compio::driver::ProactorBuilder::new();
    if deferred {
        proactor.single_issuer(true);
        proactor.defer_taskrun(true);
    }
    let runtime = compio::runtime::Runtime::builder().with_proactor(proactor).build();
    runtime.expect("a runtime").block_on(async {
        let mut options = compio::fs::OpenOptions::new();
        let opened = options.read(true).custom_flags(job.open_flags()).open(&job.task.file);
        let file = opened.await.expect("the file can be opened");
        read_by_local_tasks!(job, file, compio::runtime::spawn, |sum: Result<u64, _>| {
            sum.unwrap_or_else(|_| panic!("no panic"))
        })
    })
}
