//! `cringle bench batch`: the benchmark of blockio-uring, a Haskell library with a similar API,
//! with the same parameters, so that the figures are comparable.
//!
//! `low` reads a permutation of all 4 KiB blocks on the bare ring, 32 at a time. `high` reads
//! uniformly random blocks through [`cringle::block::BlockIo`]: four submitters for each worker,
//! batches of 32. One thing differs: there the clock stops with the first submitter, while the
//! operations of all are counted; here it stops with the last one.

pub mod args;
mod high;
mod json;
mod low;
mod report;
mod via;

use crate::fio;
use crate::joined;
use crate::latency::Latencies;
use crate::meter::{Gate, Usage};
use crate::notes::Notes;
use crate::target::{self, TestFile};
pub use args::BatchArgs;
use args::{Level, Submitters};
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::cache::{self, NEGLIGIBLE};
use cringle_report::machine::{Machine, cpus::Pinning};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread::ScopedJoinHandle;
use via::{Method, Via, ViaRounds};

pub(super) const BLOCK: usize = 4096;
/// The operations of a batch.
pub(super) const BATCH: usize = 32;
const SUBMITTERS_PER_WORKER: usize = 4;

const FIO_JOB: &str = include_str!("../../fio/randread.fio");

/// The figures of a round.
#[derive(Clone, Debug)]
struct Measured {
    ops: u64,
    usage: Usage,
    /// `None`: the program of `--via` does not count them.
    allocations: Option<u64>,
    allocated_bytes: Option<u64>,
    p999_us: Option<f64>,
    max_us: Option<f64>,
}

impl Measured {
    fn iops(&self) -> f64 {
        self.ops as f64 / self.usage.seconds
    }

    fn cpu_us_per_op(&self) -> f64 {
        self.usage.cpu_seconds() * 1e6 / self.ops.max(1) as f64
    }
}

/// The rounds of Cringle, and those of fio.
struct Comparison {
    machine: Machine,
    level: Level,
    file: PathBuf,
    bytes: u64,
    cached: bool,
    warm: bool,
    workers: usize,
    submitters: usize,
    /// Never empty.
    rounds: Vec<Measured>,
    /// The latencies of all rounds.
    latencies: Latencies,
    /// The rate of each round of fio.
    fio: Vec<f64>,
    via: Option<ViaRounds>,
    notes: Vec<String>,
}

impl Comparison {
    /// Returns the round with the median rate (the lower one of two).
    fn median(&self) -> &Measured {
        let mut order: Vec<&Measured> = self.rounds.iter().collect();
        order.sort_by(|a, b| a.iops().total_cmp(&b.iops()));
        order[(order.len() - 1) / 2]
    }

    fn fio_iops(&self) -> Option<f64> {
        cringle_report::stats::median(self.fio.iter().copied())
    }

    fn title(&self) -> &'static str {
        match self.level {
            Level::Low => "Low-level API",
            Level::High => "High-level API",
        }
    }

    fn level_name(&self) -> &'static str {
        match self.level {
            Level::Low => "low",
            Level::High => "high",
        }
    }

    /// Returns the operation whose latency is measured.
    fn unit(&self) -> &'static str {
        match self.level {
            Level::Low => "read",
            Level::High => "batch",
        }
    }
}

/// The parameters of a round.
pub(super) struct RoundConfig {
    pub(super) file: TestFile,
    pub(super) blocks: u64,
    pub(super) direct: bool,
    pub(super) warm: bool,
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

/// What one thread or fiber of a round did.
#[derive(Default)]
pub(super) struct ThreadResult {
    pub(super) ops: u64,
    pub(super) latencies_ns: Vec<u64>,
}

type Thread<'scope> = ScopedJoinHandle<'scope, io::Result<ThreadResult>>;

/// Waits for the threads. If one could not start, the others have given up.
fn results_of(threads: Vec<io::Result<Thread<'_>>>) -> io::Result<Vec<ThreadResult>> {
    let (mut results, mut not_started) = (Vec::new(), None);
    for thread in threads {
        match thread {
            Ok(thread) => results.push(joined(thread.join())),
            Err(error) => not_started = Some(error),
        }
    }
    if let Some(error) = not_started {
        return Err(crate::no_thread(&error, "choose fewer --workers, or "));
    }
    results.into_iter().collect()
}

pub(crate) fn run(args: &BatchArgs, verbose: bool) -> Result<(), Failure> {
    if args.workers == 0 || args.rounds.repeat == 0 {
        return Err(Failure::usage("--workers and --repeat must be at least 1"));
    }
    if args.via.is_some() && (args.level == Level::Low || args.submitters == Submitters::Fibers) {
        return Err(Failure::usage("--via measures `high` with threads as submitters"));
    }
    if args.pin && args.via.is_some_and(|via| via != Via::C) {
        return Err(Failure::usage("--pin does not reach the program of --via; leave one out"));
    }
    let command = args.via_program.as_deref();
    let method = args.via.map(|via| Method::new(via, command)).transpose()?;
    crate::begin(verbose);
    let config = config(args)?;
    let mut notes = Notes::default();
    let with_fio = !args.no_fio && fio::is_installed();
    if !args.no_fio && !with_fio {
        notes.add("fio is not installed, so there is no comparison with it");
    }
    let storage = crate::storage_under(&args.file)?;
    if let Some(memory) = storage.in_memory() {
        notes.add(format!("{} is {memory}: this does not measure a disk", args.file.display()));
    }
    let samples = measure(args, &config, method.as_ref(), with_fio, &mut notes)?;
    report::write(
        &Comparison {
            machine: Machine::of(&storage),
            level: args.level,
            file: args.file.clone(),
            bytes: config.blocks * BLOCK as u64,
            cached: args.cached,
            warm: args.warm,
            workers: args.workers,
            submitters: match args.level {
                Level::Low => args.workers,
                Level::High => config.submitters(),
            },
            rounds: samples.rounds,
            latencies: samples.latencies,
            fio: samples.fio,
            via: samples.via,
            notes: notes.all().to_vec(),
        },
        &args.outputs,
    )
}

/// The figures of all rounds.
struct Samples {
    rounds: Vec<Measured>,
    latencies: Latencies,
    via: Option<ViaRounds>,
    fio: Vec<f64>,
}

/// Measures the rounds, in an order in which none is always the first.
fn measure(
    args: &BatchArgs,
    config: &RoundConfig,
    method: Option<&Method>,
    with_fio: bool,
    notes: &mut Notes,
) -> Result<Samples, Failure> {
    let via = args.via.map(|via| ViaRounds { via, rounds: Vec::new() });
    let mut samples =
        Samples { rounds: Vec::new(), latencies: Latencies::new(), via, fio: Vec::new() };
    for number in 0..args.rounds.total() {
        let counts = args.rounds.measures(number);
        // The other language is first, so that a program that is missing is noticed at once.
        let mut order = vec![method.map(By::Other), Some(By::Rust(args.level))];
        order.rotate_left(number % 2);
        for by in order.into_iter().flatten() {
            prepare_cache(config, notes)?;
            let (measured, latencies) = round(by, config)?;
            match (by, &mut samples.via) {
                _ if !counts => {}
                (By::Other(_), Some(via)) => via.rounds.push(measured),
                _ => {
                    samples.rounds.push(measured);
                    samples.latencies.merge(&latencies);
                }
            }
        }
        if with_fio && counts {
            prepare_cache(config, notes)?;
            samples.fio.push(fio_iops(config)?);
        }
    }
    Ok(samples)
}

fn config(args: &BatchArgs) -> Result<RoundConfig, Failure> {
    let shown = args.file.display();
    let file = File::open(&args.file)
        .map_err(|error| Failure::failed(format!("{shown}: cannot open: {error}")))?;
    let bytes = target::end_of(&file)
        .map_err(|error| Failure::failed(format!("{shown}: cannot determine the size: {error}")))?;
    let blocks = bytes / BLOCK as u64;
    let config = RoundConfig {
        file: TestFile(file),
        blocks,
        direct: !args.cached,
        warm: args.warm,
        workers: args.workers,
        from_fibers: args.submitters == Submitters::Fibers,
        seed: args.seed,
        pinning: Pinning::new(args.pin),
    };
    let least = (config.submitters() * BATCH + 1) as u64;
    if blocks < least {
        return fail(format!("{shown}: too small: {blocks} blocks of 4 KiB; {least} are needed"));
    }
    config.open().map_err(|error| {
        Failure::failed(format!("{shown}: cannot open with O_DIRECT: {error}; use --cached"))
    })?;
    Ok(config)
}

/// Drops the file from the page cache; if that fails, drops the page cache of the machine, as root.
/// With `--warm` it reads the file instead.
fn prepare_cache(config: &RoundConfig, notes: &mut Notes) -> Result<(), Failure> {
    let file = &config.file.0;
    let bytes = config.blocks * BLOCK as u64;
    if config.warm {
        let mut part = vec![0; 1 << 20];
        for offset in (0..bytes).step_by(part.len()) {
            file.read_at(&mut part, offset)?;
        }
        return Ok(());
    }
    cache::evict(file)?;
    if cache::resident(file, bytes)? > NEGLIGIBLE {
        // Fails for other users than root; the note reports what is left.
        let _ = cache::evict_everything();
    }
    let left = cache::resident(file, bytes)?;
    if left > NEGLIGIBLE {
        let percent = left * 100.0;
        notes.add(format!("{percent:.0} % of the file could not be dropped from the page cache"));
    }
    Ok(())
}

/// What performs the reads of a round.
#[derive(Clone, Copy)]
enum By<'a> {
    Rust(Level),
    Other(&'a Method),
}

fn round(by: By<'_>, config: &RoundConfig) -> Result<(Measured, Latencies), Failure> {
    let parties = match by {
        By::Rust(Level::Low) => config.workers,
        By::Rust(Level::High) if config.from_fibers => config.workers,
        By::Rust(Level::High) | By::Other(_) => config.submitters(),
    };
    let gate = Gate::new(parties).counting_allocations();
    let results = match by {
        By::Rust(Level::Low) => low::run(config, &gate),
        By::Rust(Level::High) => high::run(config, &gate),
        By::Other(Method::C) => via::run_c(config, &gate),
        By::Other(Method::Program(program)) => {
            return Ok((program.round(config)?, Latencies::new()));
        }
    };
    let results =
        results.map_err(|error| Failure::failed(format!("the benchmark failed: {error}")))?;
    let (Some(usage), Some(allocated)) = (gate.usage(), gate.allocated()) else {
        return fail("the benchmark ended before it began");
    };
    let mut latencies = Latencies::new();
    let ops = results.iter().map(|result| result.ops).sum();
    for result in results {
        latencies.record(result.latencies_ns);
    }
    let (p999_us, max_us) = (latencies.quantile_us(0.999), latencies.max_us());
    let (allocations, allocated_bytes) = (Some(allocated.allocations), Some(allocated.bytes));
    let measured = Measured { ops, usage, allocations, allocated_bytes, p999_us, max_us };
    Ok((measured, latencies))
}

/// Returns the rate of fio with the job file of this crate.
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

/// Returns the error of an incomplete read, which ends the benchmark.
pub(super) fn short_read(moved: usize, offset: u64) -> io::Error {
    let text = format!("a read at offset {offset} returned {moved} of {BLOCK} bytes");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
