//! The reference: fio with as many reads and writes in flight, at the mix that the rungs had.

use super::Job;
use super::args::EVICTORS;
use super::pool::Counts;
use super::tree::PAGE_BYTES;
use crate::fio::{execute, report};
use std::io;
use std::process::Command;

/// Returns the operations a second of fio. It overwrites the tree.
pub(super) fn rate(job: &Job, counts: Counts) -> io::Result<f64> {
    let report = report(&execute(Command::new("fio").args(arguments(job, counts)))?)?;
    Ok(report.ops as f64 / report.usage.seconds)
}

fn arguments(job: &Job, counts: Counts) -> Vec<String> {
    let total = (counts.reads + counts.writes).max(1);
    let depth = job.fibers + EVICTORS * job.evict_batch;
    vec![
        "--name=cringle".into(),
        "--output-format=json".into(),
        "--thread".into(),
        "--ioengine=io_uring".into(),
        "--rw=randrw".into(),
        format!("--rwmixread={}", (100 * counts.reads + total / 2) / total),
        format!("--bs={PAGE_BYTES}"),
        "--direct=1".into(),
        "--norandommap".into(),
        "--allow_file_create=0".into(),
        "--registerfiles".into(),
        "--fixedbufs".into(),
        format!("--iodepth={depth}"),
        "--iodepth_batch_submit=32".into(),
        "--iodepth_batch_complete_min=1".into(),
        "--iodepth_batch_complete_max=32".into(),
        format!("--filename={}", job.store.name_for_others()),
        format!("--size={}", job.tree.pages() * PAGE_BYTES as u64),
        format!("--io_size={}", total * PAGE_BYTES as u64),
    ]
}
