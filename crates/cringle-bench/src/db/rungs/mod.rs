//! The rungs of the ladder, a file for each kind. Each runs the engine on a platform of its own,
//! and measures the transactions only.

mod fibers;
mod posix;
mod ring;

use super::Job;
use super::engine::{Engine, Eviction, Platform, whole};
use super::pool::Counts;
use super::tree::PAGE_BYTES;
use crate::latency::Latencies;
use crate::meter::{Meter, Usage};
use cringle::block::AlignedBuf;
use std::io;

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
    /// A reference: reads and writes at the same mix.
    Fio,
}

pub(super) const ALL: [Rung; 5] = [Rung::Posix, Rung::Ring, Rung::Evict, Rung::Fibers, Rung::Fio];

/// The figures of a run.
pub(super) struct Outcome {
    pub(super) usage: Usage,
    pub(super) counts: Counts,
    /// System calls that read, write, submit or wait. `None` if they are not counted.
    pub(super) calls: Option<u64>,
    pub(super) latencies: Latencies,
}

impl Rung {
    pub(super) fn name(self) -> &'static str {
        match self {
            Rung::Posix => "posix",
            Rung::Ring => "ring",
            Rung::Evict => "+evict",
            Rung::Fibers => "+fibers",
            Rung::Fio => "fio",
        }
    }

    /// Whether each of its kind changes one thing in the one below it.
    pub(super) fn is_on_ladder(self) -> bool {
        matches!(self, Rung::Posix | Rung::Ring | Rung::Evict | Rung::Fibers)
    }

    /// Returns the rung that this one is compared with.
    pub(super) fn base(self) -> Option<Rung> {
        match self {
            Rung::Posix | Rung::Fio => None,
            Rung::Ring => Some(Rung::Posix),
            Rung::Evict => Some(Rung::Ring),
            Rung::Fibers => Some(Rung::Evict),
        }
    }

    /// Returns why this machine cannot run the rung, if it cannot.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            Rung::Ring | Rung::Evict => crate::ring::build(1).err().map(|error| error.to_string()),
            Rung::Fibers => {
                let runtime = cringle::Builder::new().workers(1);
                runtime.run(|| ()).err().map(|error| error.to_string())
            }
            Rung::Fio => (!crate::fio::is_installed()).then(|| "fio is not installed".to_string()),
            Rung::Posix => None,
        }
    }

    /// Performs the transactions of a run. The tree is as it was built.
    pub(super) fn run(self, job: &Job) -> io::Result<Outcome> {
        match self {
            Rung::Posix => posix::run(job),
            Rung::Ring => ring::run(job, 1),
            Rung::Evict => ring::run(job, job.evict_batch),
            Rung::Fibers => fibers::run(job),
            Rung::Fio => Err(io::Error::other("fio is no engine")),
        }
    }
}

/// The memory of a pool, each page aligned for direct I/O and touched.
fn memory(job: &Job) -> AlignedBuf {
    AlignedBuf::new(job.frames * PAGE_BYTES)
}

/// Runs one transaction after the other on this thread. `calls` counts the system calls.
fn one_by_one<'a, P: Platform<Page = &'a mut [u8]>>(
    job: &Job,
    platform: P,
    memory: &'a mut AlignedBuf,
    evict_batch: usize,
    calls: impl Fn(&P) -> u64,
) -> io::Result<Outcome> {
    let eviction = Eviction::ByTransactions { batch: evict_batch };
    let engine = Engine::new(job, platform, memory.chunks_mut(PAGE_BYTES), eviction);
    let meter = Meter::start();
    let latencies = engine.work();
    let usage = meter.stop();
    outcome(job, &engine, usage, latencies.map(|one| vec![one]), Some(calls(engine.platform())))
}

/// Writes what is left in the pool, and returns the figures.
fn outcome<P: Platform>(
    job: &Job,
    engine: &Engine<'_, P>,
    usage: Usage,
    latencies: io::Result<Vec<Vec<u64>>>,
    calls: Option<u64>,
) -> io::Result<Outcome> {
    let mut all = Latencies::new();
    latencies?.into_iter().for_each(|some| all.record(some));
    engine.flush(job.store.cached())?;
    job.store.cached().sync_data()?;
    Ok(Outcome { usage, counts: engine.counts(), calls, latencies: all })
}

/// Returns all values, or the first error that is a cause and not a consequence.
fn collect<T>(results: impl Iterator<Item = io::Result<T>>) -> io::Result<Vec<T>> {
    let (mut values, mut failed) = (Vec::new(), None::<io::Error>);
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(error) => {
                let is_cause = failed.as_ref().is_none_or(|one| one.to_string() == super::GAVE_UP);
                failed = if is_cause { Some(error) } else { failed };
            }
        }
    }
    failed.map_or(Ok(values), Err)
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
