//! The ways of reading that are compared, one file each.
//!
//! All do the same: prepare, pass the gate of [`crate::meter`], work off the lanes of the
//! plan, and hand back one [`LaneResult`] a lane. A strategy that measures itself (fio) hands back
//! its own figures instead.

mod batch;
mod fibers;
mod fio;
mod mmap;
mod sync;
mod threads;
mod tokio;
mod uring;

use super::job::{Job, LaneResult, Profile};
use super::plan::Direction;
use crate::fio::Report;
use crate::meter::{GAVE_UP, Party};
use std::io;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Strategy {
    /// A pread loop on one thread: one read in flight.
    Sync,
    /// A pread loop on each of N threads (--threads; without it as many as the queue depth).
    Threads,
    /// Copies out of a memory mapping.
    Mmap,
    /// tokio::fs, or with O_DIRECT tokio's blocking pool.
    Tokio,
    /// A hand-written loop on the bare io_uring.
    Uring,
    /// Cringle's fibers, one read_at loop each.
    Fibers,
    /// Cringle's batches.
    Batch,
    /// fio with the same settings, when it is installed.
    Fio,
}

pub const ALL: [Strategy; 8] = [
    Strategy::Sync,
    Strategy::Threads,
    Strategy::Mmap,
    Strategy::Tokio,
    Strategy::Uring,
    Strategy::Fibers,
    Strategy::Batch,
    Strategy::Fio,
];

/// What a run hands back.
pub enum Outcome {
    /// Tallies to be checked; the gate has the time.
    Measured(Vec<LaneResult>),
    /// Another program's own figures.
    Reported(Report),
}

impl Strategy {
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Sync => "sync",
            Strategy::Threads => "threads",
            Strategy::Mmap => "mmap",
            Strategy::Tokio => "tokio",
            Strategy::Uring => "uring",
            Strategy::Fibers => "fibers",
            Strategy::Batch => "batch",
            Strategy::Fio => "fio",
        }
    }

    /// What it needs and is not there, if so.
    pub fn missing(self) -> Option<String> {
        match self {
            Strategy::Fio => {
                crate::fio::installed().is_none().then(|| "fio is not installed".to_string())
            }
            Strategy::Uring => crate::ring::build(1).err().map(|error| error.to_string()),
            Strategy::Fibers | Strategy::Batch => {
                let runtime = cringle::Builder::new().workers(1);
                runtime.run(|| ()).err().map(|error| error.to_string())
            }
            Strategy::Sync | Strategy::Threads | Strategy::Mmap | Strategy::Tokio => None,
        }
    }

    /// Whether `--fixed` changes it.
    pub fn can_register(self) -> bool {
        matches!(self, Strategy::Uring | Strategy::Batch | Strategy::Fio)
    }

    /// Whether it keeps a number of operations in flight on each thread.
    pub fn has_queue(self) -> bool {
        !matches!(self, Strategy::Sync | Strategy::Threads | Strategy::Mmap)
    }

    /// Why it cannot do this, if it cannot.
    pub fn unfit(self, profile: Profile, direction: Direction) -> Option<&'static str> {
        match (self, profile) {
            (Strategy::Mmap, Profile::Wal) => {
                Some("a store into a mapping is no append, and has no moment of its own to commit")
            }
            (Strategy::Mmap, Profile::Direct) if direction.writes() => {
                Some("a store into a mapping does not say when it reaches the device")
            }
            _ => None,
        }
    }

    /// What to know about its figures here.
    pub fn remark(self, profile: Profile) -> Option<&'static str> {
        match (self, profile) {
            (Strategy::Mmap, Profile::Direct) => Some(
                "mmap: reads through the page cache (emptied before each run): a block that \
                 was read before in the same run comes from memory",
            ),
            (Strategy::Tokio, Profile::Direct) => Some(
                "tokio: preads on its blocking pool; tokio::fs::File reads into a buffer of \
                 its own that is not aligned, and O_DIRECT answers EINVAL to that",
            ),
            (Strategy::Batch, Profile::Wal) => Some(
                "batch: group commit; one fdatasync makes the appends of a whole batch durable",
            ),
            (Strategy::Fio, Profile::Wal) => Some(
                "fio: one psync job with fdatasync=1 for each committer; its latency has no \
                 single figure for append and sync together",
            ),
            (Strategy::Fio, _) => Some(
                "fio: chooses its own offsets and checks no content; its clock counts whole \
                 milliseconds, and its CPU time leaves out the kernel's workers",
            ),
            _ => None,
        }
    }

    /// How many parties meet at the gate.
    pub fn parties(self, threads: usize) -> usize {
        match self {
            Strategy::Tokio | Strategy::Fio | Strategy::Sync => 1,
            _ => threads,
        }
    }

    pub fn run(self, job: &Arc<Job>) -> io::Result<Outcome> {
        let lanes = match self {
            Strategy::Sync => sync::run(job),
            Strategy::Threads => threads::run(job),
            Strategy::Mmap => mmap::run(job),
            Strategy::Tokio => tokio::run(job),
            Strategy::Uring => uring::run(job),
            Strategy::Fibers => fibers::run(job),
            Strategy::Batch => batch::run(job),
            Strategy::Fio => return fio::run(job).map(Outcome::Reported),
        };
        lanes.map(Outcome::Measured)
    }
}

/// Runs `work` on `job.threads` new threads, each tied to its processor and a party of the gate.
fn on_threads<F>(job: &Job, work: F) -> io::Result<Vec<LaneResult>>
where
    F: Fn(usize, Party<'_>) -> io::Result<Vec<LaneResult>> + Sync,
{
    std::thread::scope(|scope| {
        let start = |thread: usize| {
            let (party, work) = (job.gate.party(), &work);
            std::thread::Builder::new().name(format!("bench-{thread}")).spawn_scoped(
                scope,
                move || {
                    job.pinning.pin(thread, job.threads)?;
                    work(thread, party)
                },
            )
        };
        // A thread that cannot be started drops its party, so that the others give up too.
        let started: Vec<_> = (0..job.threads).map(start).collect();
        collect(
            started.into_iter().map(|thread| {
                thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }),
        )
    })
}

/// All lanes, or the error that was the first cause.
fn collect(
    results: impl Iterator<Item = io::Result<Vec<LaneResult>>>,
) -> io::Result<Vec<LaneResult>> {
    let mut all = Vec::new();
    let mut failed: Option<io::Error> = None;
    for result in results {
        match result {
            Ok(lanes) => all.extend(lanes),
            Err(error) => {
                let better = failed.as_ref().is_none_or(|first| first.to_string() == GAVE_UP);
                failed = if better { Some(error) } else { failed };
            }
        }
    }
    failed.map_or(Ok(all), Err)
}
