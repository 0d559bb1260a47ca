//! `sync` and `threads`: a loop of `pread` on each of N threads. With one thread it is the simplest
//! program, to which the others are compared. Many threads are the usual way to have several reads
//! in flight.

use crate::disk::job::{Job, LaneResult, drive};
use crate::disk::plan::Access;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    super::on_threads(job, |thread, mut party| {
        let file = job.open()?;
        let mut buffer = job.buffers(1)?;
        party.enter()?;
        let lane = job.plan.lane(thread, job.setting.threads, 0, 1);
        Ok(vec![drive(job, lane, &mut buffer, |access, block| {
            transfer(job, &file, access, block)
        })?])
    })
}

/// Performs an access with blocking system calls.
#[inline]
pub(super) fn transfer(
    job: &Job,
    file: &File,
    access: &Access,
    block: &mut [u8],
) -> io::Result<usize> {
    if !access.write {
        return file.read_at(block, access.offset);
    }
    let written = file.write_at(block, access.offset)?;
    if job.commits() {
        file.sync_data()?;
    }
    Ok(written)
}
