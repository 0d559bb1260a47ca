//! What is to be read, and what came of it: the same for every engine.

use crate::piece::Piece;
use common::clock::{Meter, Usage};
use common::{buffer::AlignedBuf, file, plan};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// What the parent tells its child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) file: PathBuf,
    pub(crate) direct: bool,
    pub(crate) block: usize,
    pub(crate) depth: usize,
    pub(crate) operations: usize,
    pub(crate) seed: u64,
}

/// What the child tells its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) operations: usize,
    pub(crate) seconds: f64,
    pub(crate) iops: f64,
    pub(crate) user_us_per_op: f64,
    pub(crate) system_us_per_op: f64,
    pub(crate) context_switches_per_op: f64,
    /// The sum of the blocks' first words; fio has none.
    pub(crate) checksum: Option<u64>,
}

/// A task with its offsets drawn.
pub(crate) struct Job {
    pub(crate) task: Task,
    pub(crate) offsets: Arc<[u64]>,
}

impl Job {
    pub(crate) fn new(task: Task) -> Job {
        let size = file::size_of(&task.file).expect("the file is there");
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

    /// Memory for one block after the other.
    pub(crate) fn area(&self) -> AlignedBuf {
        AlignedBuf::new(self.depth() * self.block())
    }

    /// The same, cut into owned blocks: they lie as close together as the borrowed ones do.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        Piece::cut(self.area(), self.block())
    }

    pub(crate) fn share(&self, index: usize) -> impl Iterator<Item = u64> {
        plan::share(&self.offsets, index, self.depth())
    }

    /// The part of the reads that one of `depth` tasks does, for a closure that outlives the job.
    pub(crate) fn own_share(&self, index: usize) -> Share {
        Share { offsets: Arc::clone(&self.offsets), index, depth: self.depth() }
    }
}

/// See [`Job::own_share`].
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

/// The clock's and the checksum's final word.
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
            checksum: Some(checksum),
        }
    }

    pub(crate) fn cpu_us_per_op(&self) -> f64 {
        self.user_us_per_op + self.system_us_per_op
    }
}
