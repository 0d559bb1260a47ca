//! The engines. Each opens the file and allocates its buffers, starts the clock, performs all reads
//! of the job with `depth` of them in flight, and stops the clock after the last. Each checks every
//! read's length and adds up the blocks' first words.

mod compio;
mod coroutines;
mod cringle;
pub(crate) mod fio;
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
pub(crate) const ALL: [(&str, Engine); 20] = [
    ("sync", plain::sync),
    ("threads", plain::threads),
    ("tokio", tokio::blocking),
    ("tokio-2w", tokio::blocking_two_workers),
    ("tokio-fs", tokio::files),
    ("tokio-uring", |job| tokio_uring::run(job, false)),
    ("tokio-uring-coop", |job| tokio_uring::run(job, true)),
    ("monoio", |job| monoio::run(job, false)),
    ("monoio-defer", |job| monoio::run(job, true)),
    ("compio", |job| compio::run(job, false)),
    ("compio-defer", |job| compio::run(job, true)),
    ("glommio", glommio::run),
    ("uring", |job| uring::run(job, false, false)),
    ("uring-split", |job| uring::run(job, false, true)),
    ("uring-fixed", |job| uring::run(job, true, false)),
    ("uring-fixed-split", |job| uring::run(job, true, true)),
    ("coroutines", coroutines::run),
    ("cringle-fibers", cringle::fibers),
    ("cringle-batch", cringle::batch),
    ("cringle-batch-fixed", cringle::batch_fixed),
];

/// The engines that run by default.
pub(crate) const USUAL: [&str; 19] = [
    "sync",
    "threads",
    "tokio",
    "tokio-fs",
    "tokio-uring",
    "monoio",
    "monoio-defer",
    "compio",
    "compio-defer",
    "glommio",
    "uring",
    "uring-split",
    "uring-fixed",
    "coroutines",
    "cringle-fibers",
    "cringle-batch",
    "cringle-batch-fixed",
    "fio",
    "fio-fixed",
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
    match name {
        "tokio-fs" if task.direct => {
            Some("tokio::fs reads into its own buffer, which is not aligned for O_DIRECT")
        }
        _ if name.starts_with("fio") => fio::is_missing().then_some("fio is not installed"),
        _ => None,
    }
}
