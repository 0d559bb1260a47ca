//! `mmap`: each block is copied out of (or into) a memory mapping.
//!
//! The copy is what `pread` makes too. Without it, a large block would count as read when
//! only the page with its first bytes was.

use crate::disk::job::{Job, LaneResult, Profile, drive};
use memmap2::{Advice, MmapMut, MmapOptions};
use std::io;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    super::on_threads(job, |thread, mut party| {
        let mut maps = maps(job)?;
        let mut buffer = job.buffers(1)?;
        party.enter()?;
        let lane = job.plan.lane(thread, job.threads, 0, 1);
        let lane_result = drive(job, lane, &mut buffer, |access, block| {
            let start = access.offset as usize;
            let place = &mut maps[access.file as usize][start..start + block.len()];
            if access.write {
                place.copy_from_slice(block);
            } else {
                block.copy_from_slice(place);
            }
            Ok(block.len())
        });
        Ok(vec![lane_result?])
    })
}

fn maps(job: &Job) -> io::Result<Vec<MmapMut>> {
    let advice = match job.profile {
        Profile::BufferedSeq => Advice::Sequential,
        _ => Advice::Random,
    };
    let map = |file: &crate::target::TestFile| {
        let file = file.open(false, job.writes)?;
        let mut options = MmapOptions::new();
        options.len(job.target.file_bytes as usize);
        // SAFETY: the mapping is shared with whoever else has the file open. An anonymous
        // file is ours alone; in a user's file another process may change bytes while they
        // are copied, which gives wrong bytes, and then a wrong checksum. The file must not
        // be truncated during the run: the process would get SIGBUS.
        let map =
            unsafe { if job.writes { options.map_mut(&file)? } else { options.map_copy(&file)? } };
        map.advise(advice)?;
        Ok(map)
    };
    job.target.files.iter().map(map).collect()
}
