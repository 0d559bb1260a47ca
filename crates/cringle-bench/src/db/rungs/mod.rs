//! The rungs of the ladder, a file for each kind. Each runs the engine on a platform of its own,
//! and measures the transactions only.

mod fibers;
mod posix;
mod ring;
mod threads;
mod tokio;
mod twin;

use super::engine::{Engine, Eviction, Platform, offset, whole};
use super::tree::PAGE_BYTES;
use super::{Job, RungSample};
use crate::latency::Latencies;
use crate::meter::{Meter, Usage};
use cringle::block::AlignedBuf;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use twin::Style;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Rung {
    /// pread and pwrite, one after the other.
    Posix,
    /// The same by a bare ring.
    Ring,
    /// Changed pages are written back many at a time.
    #[value(name = "+evict")]
    Evict,
    /// Many transactions at once, on fibers.
    #[value(name = "+fibers")]
    Fibers,
    /// The operations of all fibers are submitted together.
    #[value(name = "+batch")]
    Batch,
    /// The file and the pool's memory are registered with the ring.
    #[value(name = "+registered")]
    Registered,
    /// A thread for each transaction at once.
    Threads,
    /// A tokio task for each transaction at once.
    Tokio,
    /// +fibers, hand-written on coroutines and a bare ring.
    #[value(name = "twin+fibers")]
    TwinFibers,
    /// +batch, hand-written.
    #[value(name = "twin+batch")]
    TwinBatch,
    /// +registered, hand-written.
    #[value(name = "twin+registered")]
    TwinRegistered,
    /// A reference: reads and writes at the same mix.
    Fio,
}

/// The most threads of the rung `threads`: if memory for one more is missing, std aborts.
const MOST_THREADS: usize = 4096;

/// The figures of a run, and the times of its transactions.
pub(super) type Outcome = (RungSample, Latencies);

impl Rung {
    /// Whether it changes one thing in the rung below it.
    pub(super) fn is_on_ladder(self) -> bool {
        !matches!(self, Rung::Threads | Rung::Tokio | Rung::Fio) && self.twin_of().is_none()
    }

    /// Returns the rung of which this one is the hand-written twin.
    pub(super) fn twin_of(self) -> Option<Rung> {
        match self {
            Rung::TwinFibers => Some(Rung::Fibers),
            Rung::TwinBatch => Some(Rung::Batch),
            Rung::TwinRegistered => Some(Rung::Registered),
            _ => None,
        }
    }

    /// Whether it runs on fibers.
    pub(super) fn has_fibers(self) -> bool {
        matches!(self, Rung::Fibers | Rung::Batch | Rung::Registered)
    }

    /// Returns the rung that this one is compared with.
    pub(super) fn base(self) -> Option<Rung> {
        match self {
            Rung::Posix | Rung::Fio => None,
            Rung::Ring | Rung::Threads => Some(Rung::Posix),
            Rung::Evict => Some(Rung::Ring),
            Rung::Fibers => Some(Rung::Evict),
            Rung::Batch => Some(Rung::Fibers),
            Rung::Registered => Some(Rung::Batch),
            Rung::Tokio => Some(Rung::Threads),
            Rung::TwinFibers | Rung::TwinBatch | Rung::TwinRegistered => self.twin_of(),
        }
    }

    /// Returns why the rung cannot run with these options, if it cannot.
    pub(super) fn contradiction(self, durable: bool, fibers: usize) -> Option<String> {
        if durable && self.twin_of().is_some() {
            return Some("with --durable a coroutine would block all others in the log".into());
        }
        if durable && self == Rung::Fio {
            return Some("it has no log of transactions".into());
        }
        (self == Rung::Threads && fibers > MOST_THREADS).then(|| {
            format!(
                "it would start {fibers} threads, one for each transaction at once, and {MOST_THREADS} \
                 are the most; choose fewer --fibers"
            )
        })
    }

    /// Returns why the rung cannot run on this machine, if it cannot.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            Rung::Posix | Rung::Threads | Rung::Tokio => None,
            Rung::Fibers | Rung::Batch | Rung::Registered => {
                let runtime = cringle::Builder::new().workers(1);
                runtime.run(|| ()).err().map(|error| error.to_string())
            }
            Rung::Fio => (!crate::fio::is_installed()).then(|| "fio is not installed".to_string()),
            Rung::TwinRegistered => twin::missing().map(|error| error.to_string()),
            _ => crate::ring::build(1).err().map(|error| error.to_string()),
        }
    }

    /// Performs the transactions of a run. The tree is as it was built.
    pub(super) fn run(self, job: &Arc<Job>) -> io::Result<Outcome> {
        match self {
            Rung::Posix => posix::run(job),
            Rung::Ring => ring::run(job, 1),
            Rung::Evict => ring::run(job, job.evict_batch),
            Rung::Fibers => fibers::plain(job, fibers::ONE_BY_ONE),
            Rung::Batch => fibers::plain(job, fibers::BATCHED),
            Rung::Registered => fibers::registered(job),
            Rung::Threads => threads::run(job),
            Rung::Tokio => tokio::run(job),
            Rung::TwinFibers => twin::run(job, Style::OneByOne),
            Rung::TwinBatch => twin::run(job, Style::Batched),
            Rung::TwinRegistered => twin::run(job, Style::Registered),
            Rung::Fio => Err(io::Error::other("fio is no engine")),
        }
    }
}

/// The memory of a pool, each page aligned for direct I/O and touched.
fn memory(job: &Job) -> AlignedBuf {
    AlignedBuf::new(job.frames * PAGE_BYTES)
}

/// Runs one transaction after the other on this thread. Each read is a system call, and each
/// write-back.
fn one_by_one<'a, P: Platform<Page = &'a mut [u8]>>(
    job: &Job,
    platform: P,
    memory: &'a mut AlignedBuf,
    evict_batch: usize,
) -> io::Result<Outcome> {
    let eviction = Eviction::ByTransactions { batch: evict_batch };
    let engine = Engine::new(job, platform, memory.chunks_mut(PAGE_BYTES), eviction)?;
    let meter = Meter::start();
    let latencies = engine.work();
    let usage = meter.stop();
    let counts = engine.counts();
    // Those of the log are not counted.
    let calls = (!job.durable).then_some(counts.reads + counts.evictions);
    outcome(job, &engine, usage, latencies.map(|one| vec![one]), calls)
}

/// Writes what is left in the pool, unless the log has it, and returns the figures.
fn outcome<P: Platform>(
    job: &Job,
    engine: &Engine<'_, P>,
    usage: Usage,
    latencies: io::Result<Vec<Vec<u64>>>,
    calls: Option<u64>,
) -> io::Result<Outcome> {
    let mut all = Latencies::new();
    latencies?.into_iter().for_each(|some| all.record(some));
    if !job.durable {
        engine.flush(job.store.cached())?;
        job.store.cached().sync_data()?;
    }
    Ok((RungSample { usage, counts: engine.counts(), calls }, all))
}

/// Writes pages one after the other.
fn write_each(file: &File, pages: &[(u32, &&mut [u8])]) -> io::Result<()> {
    let write =
        |(number, page): &(u32, &&mut [u8])| whole(file.write_at(page, offset(*number))?, *number);
    pages.iter().try_for_each(write)
}

/// Converts the result of a completion for a page.
fn moved(result: i32, page: u32) -> io::Result<()> {
    match usize::try_from(result) {
        Ok(moved) => whole(moved, page),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}

/// Checks the result of entering the kernel, which is to be repeated. Aborts if the ring is
/// unusable: operations that cannot be waited for may still write to the pool.
fn ring_works(entered: io::Result<usize>) {
    let Err(error) = entered else { return };
    if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) {
        cringle_report::complain(&format!("the ring cannot be entered: {error}; aborting"));
        std::process::abort();
    }
}
