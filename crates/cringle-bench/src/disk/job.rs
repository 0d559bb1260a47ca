//! One run of one strategy: what it is given, and the loop that the blocking ones share.

use super::plan::{Access, Lane, Plan, term};
use super::wal::Log;
use crate::content;
use crate::latency::Sampling;
use crate::meter::Gate;
use crate::target::Target;
use cringle_report::machine::cpus::Pinning;
use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// What a profile asks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Random blocks with O_DIRECT: the device itself.
    Direct,
    /// Random blocks of a file in the page cache: pure overhead, nothing waits.
    Cached,
    /// In sequence through an empty page cache: the kernel reads ahead.
    BufferedSeq,
    /// Appends, each followed by fdatasync: a write-ahead log.
    Wal,
}

impl Profile {
    pub fn name(self) -> &'static str {
        match self {
            Profile::Direct => "direct",
            Profile::Cached => "cached",
            Profile::BufferedSeq => "buffered-seq",
            Profile::Wal => "wal",
        }
    }

    pub fn direct(self) -> bool {
        self == Profile::Direct
    }
}

/// Shared by all threads of the run, hence behind an `Arc`.
pub struct Job {
    pub profile: Profile,
    pub plan: Arc<Plan>,
    pub target: Arc<Target>,
    /// Operations in flight per thread.
    pub queue_depth: usize,
    /// OS threads, or workers where there are fibers.
    pub threads: usize,
    /// Registered files and buffers, for those who can.
    pub fixed: bool,
    /// Completions are polled for, by those who can.
    pub iopoll: bool,
    pub writes: bool,
    pub pinning: Pinning,
    pub sampling: Sampling,
    /// Which run this is; writes leave the number in their blocks.
    pub generation: u64,
    /// Where the next append goes, in the `wal` profile.
    pub log: Option<Log>,
    pub stop: AtomicBool,
    pub gate: Gate,
}

impl Job {
    pub fn open_files(&self) -> io::Result<Vec<File>> {
        let open = |file: &crate::target::TestFile| file.open(self.profile.direct(), self.writes);
        self.target.files.iter().map(open).collect()
    }

    #[inline]
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// The access number `index`; an append gets its place only now.
    #[inline]
    pub fn access(&self, index: usize) -> Access {
        let planned = self.plan.accesses[index];
        match &self.log {
            None => planned,
            Some(log) => log.append(planned, self.plan.block),
        }
    }

    /// Whether each write is followed by fdatasync.
    #[inline]
    pub fn commits(&self) -> bool {
        self.log.is_some()
    }

    /// Makes `block` ready to be written at `access`.
    #[inline]
    pub fn stamp(&self, block: &mut [u8], access: &Access) {
        let seed = self.target.seed.unwrap_or(0);
        let first = content::word(seed, access.file, access.offset / 8);
        content::stamp(block, first, self.generation);
    }

    /// Page-aligned, zeroed, and touched, so that no first use is in the measured time.
    pub fn buffers(&self, count: usize) -> io::Result<MmapMut> {
        let mut area = MmapOptions::new().len(count * self.plan.block).populate().map_anon()?;
        if self.writes {
            let mut rng = content::Rng::new(self.generation);
            area.chunks_mut(8).for_each(|word| {
                word.copy_from_slice(&rng.next().to_le_bytes()[..word.len()]);
            });
        }
        Ok(area)
    }

    /// The error of a transfer that moved less than a block.
    pub fn short(&self, access: &Access, moved: usize) -> io::Error {
        io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "{moved} of {} bytes at offset {} of file {}: was it truncated meanwhile?",
                self.plan.block, access.offset, access.file
            ),
        )
    }
}

/// What one lane did.
#[derive(Debug)]
pub struct LaneResult {
    pub lane: Lane,
    pub ops: u64,
    pub checksum: u64,
    pub latencies_ns: Vec<u64>,
}

impl LaneResult {
    pub fn new(lane: Lane) -> LaneResult {
        LaneResult { lane, ops: 0, checksum: 0, latencies_ns: Vec::with_capacity(4096) }
    }

    #[inline]
    pub fn add(&mut self, block: &[u8], access: &Access) {
        self.checksum = self.checksum.wrapping_add(term(content::head(block), access));
        self.ops += 1;
    }

    #[inline]
    pub fn time(&mut self, since: Instant) {
        self.latencies_ns.push(since.elapsed().as_nanos() as u64);
    }
}

/// Works off a lane, one access after the other: what a `pread` thread does, and a fiber.
#[inline]
pub(super) fn drive(
    job: &Job,
    lane: Lane,
    buffer: &mut [u8],
    mut transfer: impl FnMut(&Access, &mut [u8]) -> io::Result<usize>,
) -> io::Result<LaneResult> {
    let mut lane_result = LaneResult::new(lane.clone());
    for index in lane {
        if job.stopped() {
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
