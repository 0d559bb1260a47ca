//! The engines. Each opens the file and allocates its buffers, starts the clock, performs all reads
//! of the job with `depth` of them in flight, and stops the clock after the last. Each checks every
//! read's length and adds up the blocks' first words.

mod compio;
mod cringle;
mod glommio;
mod monoio;
mod owned;
mod plain;
mod tokio;
mod tokio_uring;
mod uring;

use crate::job::{Job, Task};
use ::common::clock::Usage;

/// Performs the reads, and returns its usage and the checksum.
pub(crate) type Engine = fn(&Job) -> (Usage, u64);

/// All engines, by name.
pub(crate) const ALL: [(&str, Engine); 15] = [
    ("sync", plain::sync),
    ("tokio", tokio::blocking),
    ("tokio-fs", tokio::files),
    ("tokio-uring", |job| tokio_uring::run(job, false)),
    ("tokio-uring-coop", |job| tokio_uring::run(job, true)),
    ("monoio", |job| monoio::run(job, false)),
    ("monoio-defer", |job| monoio::run(job, true)),
    ("compio", |job| compio::run(job, false)),
    ("compio-defer", |job| compio::run(job, true)),
    ("glommio", glommio::run),
    ("uring", |job| uring::run(job, false)),
    ("uring-fixed", |job| uring::run(job, true)),
    ("cringle-fibers", cringle::fibers),
    ("cringle-batch", cringle::batch),
    ("cringle-batch-fixed", cringle::batch_fixed),
];

/// Returns the number of reads for an engine. An engine that takes ten times as long performs a
/// tenth of them.
pub(crate) fn operations_for(name: &str, operations: usize) -> usize {
    if name.starts_with("tokio") && !name.starts_with("tokio-uring") {
        operations.div_ceil(10)
    } else {
        operations
    }
}

pub(crate) fn named(name: &str) -> Option<Engine> {
    ALL.iter().find(|(other, _)| *other == name).map(|&(_, engine)| engine)
}

/// Returns why an engine cannot perform the task, if it cannot.
pub(crate) fn refuses(name: &str, task: &Task) -> Option<&'static str> {
    let is_refused = name == "tokio-fs" && task.direct;
    is_refused.then_some("tokio::fs reads into its own buffer, which is not aligned for O_DIRECT")
}
