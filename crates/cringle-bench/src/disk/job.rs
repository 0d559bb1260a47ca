//! One run of one strategy: its input, its result, and the loop that the blocking strategies share.

use super::plan::{Access, Lane, Plan, term};
use super::results::Setting;
use super::wal::Log;
use crate::content;
use crate::latency::Sampling;
use crate::meter::Gate;
use crate::target::Target;
use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// How a file is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Profile {
    /// Random blocks with O_DIRECT: the device itself.
    Direct,
    /// Random blocks from the page cache: pure overhead.
    Cached,
    /// Appends, each followed by fdatasync: a write-ahead log.
    Wal,
}

impl Profile {
    pub(super) fn is_direct(self) -> bool {
        self == Profile::Direct
    }
}

/// The input of a run, shared by all its threads.
pub(crate) struct Job {
    pub(super) setting: Setting,
    pub(super) plan: Arc<Plan>,
    pub(super) target: Arc<Target>,
    /// Whether strategies that can do so poll the device for completions.
    pub(super) iopoll: bool,
    pub(super) writes: bool,
    pub(super) sampling: Sampling,
    /// The number of this run, which its writes leave in their blocks.
    pub(super) generation: u64,
    /// The log of the `wal` profile.
    pub(super) log: Option<Log>,
    /// Set when the time is up or a thread has failed.
    pub(super) stop: AtomicBool,
    pub(super) gate: Gate,
}

impl Job {
    pub(super) fn open(&self) -> io::Result<File> {
        self.target.file.open(self.setting.profile.is_direct(), self.writes)
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Returns the access with this index. An append takes its place in the log now.
    #[inline]
    pub(super) fn access(&self, index: usize) -> Access {
        let planned = self.plan.accesses[index];
        match &self.log {
            None => planned,
            Some(log) => log.append(planned, self.plan.block),
        }
    }

    /// Whether each write is followed by fdatasync.
    #[inline]
    pub(super) fn commits(&self) -> bool {
        self.log.is_some()
    }

    /// Prepares `block` for the write `access`.
    #[inline]
    pub(super) fn stamp(&self, block: &mut [u8], access: &Access) {
        let seed = self.target.seed.unwrap_or(0);
        let first = content::word(seed, 0, access.offset / 8);
        content::stamp(block, first, self.generation);
    }

    /// Allocates page-aligned buffers and touches their pages, so that no page fault is measured.
    pub(super) fn buffers(&self, count: usize) -> io::Result<MmapMut> {
        let mut area = MmapOptions::new().len(count * self.plan.block).populate().map_anon()?;
        if self.writes {
            let mut rng = content::random(self.generation);
            area.chunks_mut(8).for_each(|word| {
                word.copy_from_slice(&rng.next().to_le_bytes()[..word.len()]);
            });
        }
        Ok(area)
    }

    /// Returns the error of a transfer that moved less than a block.
    pub(super) fn short(&self, access: &Access, moved: usize) -> io::Error {
        io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "{moved} of {} bytes at offset {}; was the file truncated meanwhile?",
                self.plan.block, access.offset
            ),
        )
    }
}

/// What one lane did.
#[derive(Debug)]
pub(crate) struct LaneResult {
    pub(super) lane: Lane,
    pub(super) ops: u64,
    pub(super) checksum: u64,
    pub(super) latencies_ns: Vec<u64>,
}

impl LaneResult {
    pub(super) fn new(lane: Lane) -> LaneResult {
        LaneResult { lane, ops: 0, checksum: 0, latencies_ns: Vec::with_capacity(4096) }
    }

    /// Records a transfer.
    #[inline]
    pub(super) fn add(&mut self, block: &[u8], access: &Access) {
        self.checksum = self.checksum.wrapping_add(term(content::head(block), access));
        self.ops += 1;
    }

    /// Records the latency of an operation that started at `since`.
    #[inline]
    pub(super) fn time(&mut self, since: Instant) {
        self.latencies_ns.push(since.elapsed().as_nanos() as u64);
    }
}

/// Performs the accesses of a lane, one after another, as a `pread` thread and a fiber do.
#[inline]
pub(super) fn drive(
    job: &Job,
    lane: Lane,
    buffer: &mut [u8],
    mut transfer: impl FnMut(&Access, &mut [u8]) -> io::Result<usize>,
) -> io::Result<LaneResult> {
    let mut lane_result = LaneResult::new(lane.clone());
    for index in lane {
        if job.is_stopped() {
            break;
        }
        let access = job.access(index);
        if access.write {
            job.stamp(buffer, &access);
        }
        let started = job.sampling.takes(index).then(Instant::now);
        let moved = transfer(&access, buffer).inspect_err(|_| job.stop.store(true, Relaxed))?;
        if let Some(started) = started {
            lane_result.time(started);
        }
        if moved != buffer.len() {
            return Err(job.short(&access, moved));
        }
        lane_result.add(buffer, &access);
    }
    Ok(lane_result)
}
