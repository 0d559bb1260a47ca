//! `threads`: N threads, a `pread` loop each. What most programs do today to have more than
//! one read in flight.

use super::sync::transfer;
use crate::disk::job::{Job, LaneResult, drive};
use std::io;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    super::on_threads(job, |thread, mut party| {
        // Files of its own: the kernel's readahead is kept per open file.
        let files = job.open_files()?;
        let mut buffer = job.buffers(1)?;
        party.enter()?;
        let lane = job.plan.lane(thread, job.threads, 0, 1);
        Ok(vec![drive(job, lane, &mut buffer, |access, block| {
            transfer(job, &files, access, block)
        })?])
    })
}
