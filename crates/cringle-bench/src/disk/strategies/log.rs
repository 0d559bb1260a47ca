//! `log`: queue-depth fibers on each worker, which append to one [`Log`].
//!
//! The log chooses the place of a record and adds a frame, so its content is verified by reading
//! the records, not the blocks: [`crate::disk::wal`].

use super::fibers::transfer_by_fibers;
use crate::disk::job::{Job, LaneResult};
use crate::disk::plan::Access;
use cringle::block::Log;
use std::io;

/// The frame of a record.
const FRAME_BYTES: usize = 16;
/// The default of a log.
const GROUP_BYTES: usize = 1 << 20;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    let builder = Log::builder().group_bytes((job.plan.block + FRAME_BYTES).max(GROUP_BYTES));
    let log = builder.open(job.target.file.own_name(), |_, _| Ok(()))?;
    let append = |_: &Access, block: &mut [u8]| log.append(block).map(|_offset| block.len());
    super::on_workers(job, |worker, party| transfer_by_fibers(job, worker, party, append))
}
