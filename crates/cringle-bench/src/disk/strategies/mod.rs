//! The strategies that are compared, one file each.
//!
//! Each prepares itself, enters the gate of [`crate::meter`], performs the lanes of the plan, and
//! returns a [`LaneResult`] for each lane. A program that measures itself (fio) returns its own
//! figures instead.

mod batch;
mod fibers;
mod fio;
mod log;
mod mmap;
mod threads;
mod tokio;
mod uring;

use super::job::{Job, LaneResult, Profile};
use super::plan::Direction;
use crate::fio::Report;
use crate::meter::Party;
use std::io;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum Strategy {
    /// A pread loop on one thread: one read in flight.
    Sync,
    /// A pread loop on each of N threads (--threads, or the queue depth).
    Threads,
    /// Copies from a memory mapping.
    Mmap,
    /// tokio::fs; with O_DIRECT, tokio's blocking pool.
    Tokio,
    /// A hand-written loop on a bare io_uring.
    Uring,
    /// Cringle's fibers, with a read_at loop each.
    Fibers,
    /// Cringle's batches.
    Batch,
    /// Cringle's block::Log; only for `--profile wal`.
    Log,
    /// fio with the same settings, if it is installed.
    Fio,
}

/// The result of a run.
pub(super) enum Outcome {
    /// The results of the lanes, still to be checked. The gate has the time.
    Measured(Vec<LaneResult>),
    /// The figures that another program reports.
    Reported(Report),
}

impl Strategy {
    /// Returns why this machine cannot run the strategy, if it cannot.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            Strategy::Fio => {
                (!crate::fio::is_installed()).then(|| "fio is not installed".to_string())
            }
            Strategy::Uring => crate::ring::build(1).err().map(|error| error.to_string()),
            Strategy::Fibers | Strategy::Batch | Strategy::Log => {
                let runtime = cringle::Builder::new().workers(1);
                runtime.run(|| ()).err().map(|error| error.to_string())
            }
            Strategy::Sync | Strategy::Threads | Strategy::Mmap | Strategy::Tokio => None,
        }
    }

    /// Whether `--fixed` has an effect on the strategy.
    pub(super) fn can_register(self) -> bool {
        matches!(self, Strategy::Uring | Strategy::Batch | Strategy::Fio)
    }

    /// Whether the strategy can have several operations in flight on a thread.
    pub(super) fn has_queue(self) -> bool {
        !matches!(self, Strategy::Sync | Strategy::Threads | Strategy::Mmap)
    }

    /// Returns why the strategy does not support the profile and direction, if it does not.
    pub(super) fn unsupported(
        self,
        profile: Profile,
        direction: Direction,
    ) -> Option<&'static str> {
        match (self, profile) {
            (Strategy::Mmap, Profile::Wal) => {
                Some("a store to a mapping does not append, and cannot be committed by itself")
            }
            (Strategy::Log, Profile::Direct | Profile::Cached) => {
                Some("a log has records, and no blocks to read or overwrite")
            }
            (Strategy::Fio, Profile::Wal) => {
                Some("its committers are threads, which `threads` has, and it reports no latency")
            }
            (Strategy::Mmap, Profile::Direct) if direction.writes() => {
                Some("a store to a mapping does not report when it reaches the device")
            }
            _ => None,
        }
    }

    /// Returns a remark about the strategy's figures in a profile.
    pub(super) fn remark(self, profile: Profile) -> Option<&'static str> {
        match (self, profile) {
            (Strategy::Mmap, Profile::Direct) => Some(
                "mmap: reads through the page cache, which is emptied before each run; a block \
                 that the same run has read before comes from memory",
            ),
            (Strategy::Tokio, Profile::Direct) => Some(
                "tokio: preads on its blocking pool, because tokio::fs::File reads into a buffer \
                 of its own that is not aligned for O_DIRECT (EINVAL)",
            ),
            (Strategy::Batch, Profile::Wal) => {
                Some("batch: group commit; one fdatasync makes all appends of a batch durable")
            }
            (Strategy::Log, Profile::Wal) => Some(
                "log: block::Log; appends that wait at the same time share a write and a sync, and \
                 each has a frame of 16 bytes with checksums",
            ),
            (Strategy::Fio, _) => Some(
                "fio: chooses its own offsets and checks no content; its clock counts whole \
                 milliseconds, and its CPU time excludes the kernel's io-wq workers",
            ),
            _ => None,
        }
    }

    /// Returns the number of parties that enter the gate.
    pub(super) fn parties(self, threads: usize) -> usize {
        match self {
            Strategy::Tokio | Strategy::Fio | Strategy::Sync => 1,
            _ => threads,
        }
    }

    /// Performs a run.
    pub(super) fn run(self, job: &Arc<Job>) -> io::Result<Outcome> {
        let lanes = match self {
            Strategy::Sync | Strategy::Threads => threads::run(job),
            Strategy::Mmap => mmap::run(job),
            Strategy::Tokio => tokio::run(job),
            Strategy::Uring => uring::run(job),
            Strategy::Fibers => fibers::run(job),
            Strategy::Batch => batch::run(job),
            Strategy::Log => log::run(job),
            Strategy::Fio => return fio::run(job).map(Outcome::Reported),
        };
        lanes.map(Outcome::Measured)
    }
}

/// Runs `work` on the threads of the setting, each a party of the gate.
fn on_threads<F>(job: &Job, work: F) -> io::Result<Vec<LaneResult>>
where
    F: Fn(usize, Party<'_>) -> io::Result<Vec<LaneResult>> + Sync,
{
    let lanes = job.gate.on_threads(job.setting.threads, FEWER, work);
    lanes.map(|lanes| lanes.into_iter().flatten().collect())
}

/// Runs `work` on one fiber of each worker.
fn on_workers(
    job: &Job,
    work: impl Fn(usize, Party<'_>) -> io::Result<Vec<LaneResult>> + Sync,
) -> io::Result<Vec<LaneResult>> {
    let lanes = job.gate.on_workers(job.setting.threads, work);
    lanes.map(|lanes| lanes.into_iter().flatten().collect())
}

/// What a user may do if the system refuses a thread.
pub(super) const FEWER: &str = "choose a lower --qd or --threads, or ";
