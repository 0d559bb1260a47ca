//! `threads`: N threads with a `pread` loop each, the usual way to have several reads in flight.

use super::sync::transfer;
use crate::disk::job::{Job, LaneResult, drive};
use std::io;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    super::on_threads(job, |thread, mut party| {
        // Each thread opens the files itself, because readahead works per open file description.
        let files = job.open_files()?;
        let mut buffer = job.buffers(1)?;
        party.enter()?;
        let lane = job.plan.lane(thread, job.threads, 0, 1);
        Ok(vec![drive(job, lane, &mut buffer, |access, block| {
            transfer(job, &files, access, block)
        })?])
    })
}
