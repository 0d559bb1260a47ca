//! `mmap`: copies each block from (or to) a memory mapping.
//!
//! `pread` copies, too. Without the copy, a large block would count as read after an access to its
//! first page.

use crate::disk::job::{Job, LaneResult, drive};
use memmap2::{Advice, MmapMut, MmapOptions};
use std::io;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    super::on_threads(job, |thread, mut party| {
        let mut map = map(job)?;
        let mut buffer = job.buffers(1)?;
        party.enter()?;
        let lane = job.plan.lane(thread, job.setting.threads, 0, 1);
        let lane_result = drive(job, lane, &mut buffer, |access, block| {
            let start = access.offset as usize;
            let mapped = &mut map[start..start + block.len()];
            if access.write {
                mapped.copy_from_slice(block);
            } else {
                block.copy_from_slice(mapped);
            }
            Ok(block.len())
        });
        Ok(vec![lane_result?])
    })
}

fn map(job: &Job) -> io::Result<MmapMut> {
    let file = job.target.file.open(false, job.writes)?;
    let mut options = MmapOptions::new();
    options.len(job.target.file_bytes as usize);
    // SAFETY: a temporary file has no name, so no other process maps it or writes to it. A user's
    // file may be changed by another process during the run: a changed byte gives a wrong checksum,
    // and truncation raises SIGBUS. Both are the user's responsibility, as with every mapping of a
    // file. Two threads of a run may write the same block at once, through mappings of their own:
    // they store the same head, and the rest of the block is never interpreted.
    let map =
        unsafe { if job.writes { options.map_mut(&file)? } else { options.map_copy(&file)? } };
    map.advise(Advice::Random)?;
    Ok(map)
}
