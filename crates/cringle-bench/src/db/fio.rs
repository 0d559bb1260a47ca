//! The reference: fio with as many reads and writes in flight, at the mix that the rungs had.

use super::Job;
use super::args::EVICTORS;
use super::pool::Counts;
use super::tree::PAGE_BYTES;
use crate::fio;
use std::io;

/// Returns the operations a second of fio. It overwrites the tree.
pub(super) fn rate(job: &Job, counts: Counts) -> io::Result<f64> {
    let total = (counts.reads + counts.writes).max(1);
    let options = [
        "--rw=randrw".into(),
        format!("--rwmixread={}", (100 * counts.reads + total / 2) / total),
        format!("--bs={PAGE_BYTES}"),
        "--direct=1".into(),
        "--norandommap".into(),
        "--allow_file_create=0".into(),
        "--registerfiles".into(),
        "--fixedbufs".into(),
        format!("--filename={}", job.store.name_for_others()),
        format!("--size={}", job.tree.pages() * PAGE_BYTES as u64),
        format!("--io_size={}", total * PAGE_BYTES as u64),
    ];
    let queue = fio::queue(job.fibers + EVICTORS * job.evict_batch);
    let report = fio::run(queue.into_iter().chain(options))?;
    Ok(report.ops as f64 / report.usage.seconds)
}
