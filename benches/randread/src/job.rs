//! The reads to perform, and their outcome: the same for every engine.

use crate::piece::Piece;
use common::clock::{Meter, Usage};
use common::{file, plan};
use cringle::block::AlignedBuf;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// The input of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) file: PathBuf,
    pub(crate) direct: bool,
    pub(crate) block: usize,
    pub(crate) depth: usize,
    pub(crate) operations: usize,
    pub(crate) seed: u64,
}

/// The output of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) operations: usize,
    pub(crate) seconds: f64,
    pub(crate) iops: f64,
    pub(crate) user_us_per_op: f64,
    pub(crate) system_us_per_op: f64,
    pub(crate) context_switches_per_op: f64,
    /// The sum of the blocks' first words.
    pub(crate) checksum: u64,
}

/// A task with its offsets.
pub(crate) struct Job {
    pub(crate) task: Task,
    pub(crate) offsets: Arc<[u64]>,
}

impl Job {
    pub(crate) fn new(task: Task) -> Job {
        let size = file::size_of(&task.file).expect("the file exists");
        let offsets = plan::offsets(task.seed, task.operations, size, task.block as u64);
        Job { task, offsets: offsets.into() }
    }

    pub(crate) fn depth(&self) -> usize {
        self.task.depth
    }

    pub(crate) fn block(&self) -> usize {
        self.task.block
    }

    pub(crate) fn open(&self) -> std::fs::File {
        file::open(&self.task.file, self.task.direct).expect("the file can be opened")
    }

    pub(crate) fn open_flags(&self) -> i32 {
        if self.task.direct { libc::O_DIRECT } else { 0 }
    }

    /// Allocates a contiguous area for `depth` blocks.
    pub(crate) fn area(&self) -> AlignedBuf {
        AlignedBuf::new(self.depth() * self.block())
    }

    /// Allocates the same area, cut into owned blocks that lie as close together as borrowed ones.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        Piece::cut(self.area(), self.block())
    }

    pub(crate) fn share(&self, index: usize) -> impl Iterator<Item = u64> {
        plan::share(&self.offsets, index, self.depth())
    }

    /// Returns the offsets that task `index` of `depth` reads, for a closure that outlives the job.
    pub(crate) fn own_share(&self, index: usize) -> Share {
        Share { offsets: Arc::clone(&self.offsets), index, depth: self.depth() }
    }
}

/// The offsets of one task; see [`Job::own_share`].
pub(crate) struct Share {
    offsets: Arc<[u64]>,
    index: usize,
    depth: usize,
}

impl Share {
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        plan::share(&self.offsets, self.index, self.depth)
    }
}

/// Stops the clock, and returns the result of an engine.
pub(crate) fn finish(meter: Meter, checksum: u64) -> (Usage, u64) {
    (meter.stop(), checksum)
}

impl Outcome {
    pub(crate) fn new(usage: Usage, checksum: u64, operations: usize) -> Outcome {
        let each = |figure: f64| figure / operations as f64;
        Outcome {
            operations,
            seconds: usage.seconds,
            iops: operations as f64 / usage.seconds,
            user_us_per_op: each(usage.user_seconds * 1e6),
            system_us_per_op: each(usage.system_seconds * 1e6),
            context_switches_per_op: each(usage.context_switches as f64),
            checksum,
        }
    }

    pub(crate) fn cpu_us_per_op(&self) -> f64 {
        self.user_us_per_op + self.system_us_per_op
    }
}
