//! `cringle bench batch`: the benchmark of blockio-uring (a Haskell library of the same shape),
//! parameter for parameter, so that figures can be laid side by side.
//!
//! `low` reads a permutation of all 4 KiB blocks on the bare ring: 64 to lead in, then 32 at
//! a time. `high` reads uniformly random blocks through [`cringle::block::BlockIo`]: four
//! submitters for each worker, batches of 32. One thing is not copied: there the clock stops
//! when the first submitter is done while all operations are counted; here it stops with the
//! last.

pub mod args;
mod high;
mod json;
mod low;
mod report;

use crate::alloc::Allocated;
use crate::fio;
use crate::latency::Latencies;
use crate::meter::{Gate, Usage};
use crate::target::TestFile;
pub use args::BatchArgs;
use args::{Level, Submitters};
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::{Machine, cache, cpus::Pinning, storage::Storage};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

pub(super) const BLOCK: usize = 4096;
/// Operations submitted, and waited for, at a time.
pub(super) const BATCH: usize = 32;
const SUBMITTERS_PER_WORKER: usize = 4;

const FIO_JOB: &str = include_str!("../../fio/randread.fio");

/// One round.
#[derive(Clone, Debug)]
pub struct Measured {
    pub ops: u64,
    pub usage: Usage,
    pub allocated: Allocated,
    pub p999_us: Option<f64>,
    pub max_us: Option<f64>,
}

impl Measured {
    pub fn iops(&self) -> f64 {
        self.ops as f64 / self.usage.seconds
    }
}

/// Our rounds, and fio's beside them.
pub struct Comparison {
    pub machine: Machine,
    level: Level,
    pub file: PathBuf,
    pub bytes: u64,
    pub cached: bool,
    pub workers: usize,
    pub submitters: usize,
    /// Never empty.
    pub rounds: Vec<Measured>,
    /// Of all rounds together.
    pub latencies: Latencies,
    pub fio: Vec<f64>,
    pub notes: Vec<String>,
}

impl Comparison {
    /// The round in the middle, by rate.
    pub fn median(&self) -> &Measured {
        let mut order: Vec<&Measured> = self.rounds.iter().collect();
        order.sort_by(|a, b| a.iops().total_cmp(&b.iops()));
        order[(order.len() - 1) / 2]
    }

    pub fn fio_iops(&self) -> Option<f64> {
        cringle_report::stats::median(self.fio.iter().copied())
    }

    pub fn title(&self) -> &'static str {
        match self.level {
            Level::Low => "Low-level API",
            Level::High => "High-level API",
        }
    }

    pub fn level_name(&self) -> &'static str {
        match self.level {
            Level::Low => "low",
            Level::High => "high",
        }
    }

    /// What a latency is of.
    pub fn unit(&self) -> &'static str {
        match self.level {
            Level::Low => "read",
            Level::High => "batch",
        }
    }
}

/// What a round is given.
pub(super) struct RoundConfig {
    pub(super) file: TestFile,
    pub(super) blocks: u64,
    pub(super) direct: bool,
    pub(super) workers: usize,
    pub(super) from_fibers: bool,
    pub(super) seed: u64,
    pub(super) pinning: Pinning,
}

impl RoundConfig {
    pub(super) fn open(&self) -> io::Result<File> {
        self.file.open(self.direct, false)
    }

    pub(super) fn submitters(&self) -> usize {
        self.workers * SUBMITTERS_PER_WORKER
    }
}

/// What one thread of a round did.
#[derive(Default)]
pub(super) struct ThreadResult {
    pub(super) ops: u64,
    pub(super) latencies_ns: Vec<u64>,
}

pub fn run(args: &BatchArgs, verbose: bool) -> Result<(), Failure> {
    if args.workers == 0 || args.repeat == 0 {
        return Err(Failure::usage("--workers and --repeat count from 1"));
    }
    args.outputs.check()?;
    if verbose {
        cringle_report::complain(&super::describe_driver());
    }
    let config = config(args)?;
    let mut notes = Vec::new();
    let with_fio = !args.no_fio && fio::installed().is_some();
    if !args.no_fio && !with_fio {
        notes.push("fio is not installed: there is no figure of it to compare with".into());
    }
    let storage = Storage::under(&args.file)?;
    if let Some(memory) = storage.in_memory() {
        notes.push(format!("{} is {memory}: this measures no disk", args.file.display()));
    }
    let (mut rounds, mut fios) = (Vec::new(), Vec::new());
    let mut latencies = Latencies::new();
    for number in 0..args.warmup + args.repeat {
        let counts = number >= args.warmup;
        drop_caches(&config, &mut notes)?;
        let (measured, theirs) = round(args.level, &config)?;
        if counts {
            rounds.push(measured);
            latencies.merge(&theirs);
        }
        if with_fio && counts {
            drop_caches(&config, &mut notes)?;
            fios.push(fio_iops(&config)?);
        }
    }
    report::write(
        &Comparison {
            machine: Machine::of(&storage),
            level: args.level,
            file: args.file.clone(),
            bytes: config.blocks * BLOCK as u64,
            cached: args.cached,
            workers: args.workers,
            submitters: match args.level {
                Level::Low => args.workers,
                Level::High => config.submitters(),
            },
            rounds,
            latencies,
            fio: fios,
            notes,
        },
        &args.outputs,
    )
}

fn config(args: &BatchArgs) -> Result<RoundConfig, Failure> {
    let shown = args.file.display();
    let mut file = File::open(&args.file)
        .map_err(|error| Failure::failed(format!("cannot open {shown}: {error}")))?;
    // The end by seeking: a block device's metadata says 0.
    let bytes = io::Seek::seek(&mut file, io::SeekFrom::End(0))
        .map_err(|error| Failure::failed(format!("cannot find the size of {shown}: {error}")))?;
    let blocks = bytes / BLOCK as u64;
    let config = RoundConfig {
        file: TestFile(file),
        blocks,
        direct: !args.cached,
        workers: args.workers,
        from_fibers: args.submitters == Submitters::Fibers,
        seed: args.seed,
        pinning: Pinning::new(args.pin),
    };
    let least = (config.submitters() * BATCH + 1) as u64;
    if blocks < least {
        return fail(format!("{shown} has {blocks} blocks of 4 KiB; {least} are needed"));
    }
    config.open().map_err(|error| {
        Failure::failed(format!("cannot open {shown} with O_DIRECT: {error}; try --cached"))
    })?;
    Ok(config)
}

/// Empties the page cache of the file, or where that does not help and we may, of the machine.
fn drop_caches(config: &RoundConfig, notes: &mut Vec<String>) -> Result<(), Failure> {
    const NEGLIGIBLE: f64 = 0.01;
    let file = &config.file.0;
    let bytes = config.blocks * BLOCK as u64;
    cache::evict(file)?;
    if cache::resident(file, bytes)? > NEGLIGIBLE {
        // Only root may; who may not is told what is left.
        let _ = cache::evict_everything();
    }
    let left = cache::resident(file, bytes)?;
    let note =
        format!("{:.0} % of the file could not be dropped from the page cache", left * 100.0);
    if left > NEGLIGIBLE && !notes.contains(&note) {
        notes.push(note);
    }
    Ok(())
}

fn round(level: Level, config: &RoundConfig) -> Result<(Measured, Latencies), Failure> {
    let parties = match level {
        Level::Low => config.workers,
        Level::High if config.from_fibers => config.workers,
        Level::High => config.submitters(),
    };
    let gate = Gate::new(parties).counting_allocations();
    let results = match level {
        Level::Low => low::run(config, &gate),
        Level::High => high::run(config, &gate),
    };
    let results =
        results.map_err(|error| Failure::failed(format!("the benchmark failed: {error}")))?;
    let (Some(usage), Some(allocated)) = (gate.usage(), gate.allocated()) else {
        return fail("the benchmark ended without having begun");
    };
    let mut latencies = Latencies::new();
    let ops = results.iter().map(|result| result.ops).sum();
    for result in results {
        latencies.record(result.latencies_ns);
    }
    let (p999_us, max_us) = (latencies.quantile_us(0.999), latencies.max_us());
    Ok((Measured { ops, usage, allocated, p999_us, max_us }, latencies))
}

/// fio's rate with the shipped job file.
fn fio_iops(config: &RoundConfig) -> Result<f64, Failure> {
    let mut job = tempfile::Builder::new().prefix("cringle-").suffix(".fio").tempfile()?;
    job.write_all(FIO_JOB.as_bytes())?;
    let figures = fio::execute(
        Command::new("fio")
            .arg("--output-format=json")
            .arg(job.path())
            .env("FILE", config.file.name_for_others())
            .env("DIRECT", u8::from(config.direct).to_string())
            .env("WORKERS", config.workers.to_string())
            .env("PART", (config.blocks / config.workers as u64 * BLOCK as u64).to_string()),
    )?;
    let report = fio::report(&figures)?;
    Ok(report.ops as f64 / report.usage.seconds)
}

/// The error of a read that was not whole; as there, it ends the benchmark.
pub(super) fn short_read(moved: usize, offset: u64) -> io::Error {
    let text = format!("a read at offset {offset} gave {moved} of {BLOCK} bytes");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
