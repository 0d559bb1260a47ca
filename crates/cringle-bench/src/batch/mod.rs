//! `cringle bench batch`: the benchmark of blockio-uring, a Haskell library with a similar API,
//! with the same parameters, so that the figures are comparable.
//!
//! `low` reads a permutation of all 4 KiB blocks on the bare ring, 32 at a time. `high` reads
//! uniformly random blocks through [`cringle::block::BlockIo`]: four submitters for each worker,
//! batches of 32. One thing differs: there the clock stops with the first submitter, while the
//! operations of all are counted; here it stops with the last one.

pub mod args;
mod high;
mod low;
mod report;
mod via;

use crate::experiment::{self, Named, Notes, Report};
use crate::fio;
use crate::latency::Latencies;
use crate::meter::{Gate, Usage};
use crate::rounds::turns;
use crate::target::{self, TestFile};
pub use args::BatchArgs;
use args::Level;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::Machine;
use cringle_report::machine::cache::{self, NEGLIGIBLE};
use cringle_report::stats;
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, Write};
use std::process::Command;
use via::{Method, Via};

const BLOCK: usize = 4096;
/// The operations of a batch.
const BATCH: usize = 32;
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

/// Cringle's own API, or another language.
#[derive(Clone, Copy)]
enum By {
    Rust(Level),
    Via(Via),
}

impl Named for By {
    fn name(&self) -> String {
        match self {
            By::Rust(level) => format!("cringle, {}", level.name()),
            By::Via(via) => format!("cringle, by {}", via.name()),
        }
    }
}

type Line = experiment::Line<By, Measured>;

/// The rounds of Cringle, those by another language, and those of fio.
struct Comparison<'a> {
    args: &'a BatchArgs,
    bytes: u64,
    rust: Line,
    via: Option<(Via, Line)>,
    /// The rate of each round of fio.
    fio: Vec<f64>,
}

impl Comparison<'_> {
    /// Returns the round with the median rate (the lower one of two).
    fn median(&self) -> &Measured {
        let mut order: Vec<&Measured> = self.rust.samples.iter().collect();
        order.sort_by(|a, b| a.iops().total_cmp(&b.iops()));
        order[(order.len() - 1) / 2]
    }

    fn fio_iops(&self) -> Option<f64> {
        stats::median(self.fio.iter().copied())
    }

    /// Returns the median of the figures by the other language, each divided by that of the round
    /// beside it.
    fn via_ratio(&self, figure: fn(&Measured) -> f64) -> Option<f64> {
        let pairs = self.via.as_ref()?.1.samples.iter().zip(&self.rust.samples);
        let ratios = pairs.map(|(via, rust)| figure(via) / figure(rust));
        stats::median(ratios.filter(|ratio| ratio.is_finite()))
    }

    /// Returns the number of threads that submit.
    fn submitters(&self) -> usize {
        match self.args.level {
            Level::Low => self.args.workers,
            Level::High => self.args.submitters(),
        }
    }
}

/// The file, and the parameters of a round.
struct RoundConfig<'a> {
    args: &'a BatchArgs,
    file: TestFile,
    blocks: u64,
}

impl RoundConfig<'_> {
    fn open(&self) -> io::Result<File> {
        self.file.open(!self.args.cached, false)
    }
}

/// What one thread of a round did.
#[derive(Default)]
struct ThreadResult {
    ops: u64,
    latencies_ns: Vec<u64>,
}

/// What a user may do if the system refuses a thread.
const FEWER: &str = "choose fewer --workers, or ";

/// Measures the rounds, in an order in which none is always the first.
fn measure(args: &BatchArgs) -> Result<Report, Failure> {
    let command = args.via_program.as_deref();
    let method = args.via.map(|via| Method::new(via, command)).transpose()?;
    let config = config(args)?;
    let mut notes = Notes::default();
    let with_fio = !args.no_fio && fio::is_installed();
    if !args.no_fio && !with_fio {
        notes.add("fio is not installed, so there is no comparison with it");
    }
    let storage = crate::storage_under(&args.file)?;
    notes.if_in_memory(&storage, &args.file, "this does not measure a disk");
    let mut fio = Vec::new();
    // The other language is first, so that a program that is missing is noticed at once.
    let subjects = args.via.map(By::Via).into_iter().chain([By::Rust(args.level)]);
    let mut lines: Vec<Line> = subjects.map(Line::new).collect();
    for (round, is_measured) in args.rounds.all() {
        turns((round, is_measured), &mut lines, &ProgressBar::hidden(), |by| {
            prepare_cache(&config, &mut notes)?;
            match (by, &method) {
                (By::Via(_), Some(Method::Program(program))) => {
                    Ok((program.round(&config)?, Latencies::new()))
                }
                _ => perform(*by, &config),
            }
        })?;
        if with_fio && is_measured {
            prepare_cache(&config, &mut notes)?;
            fio.push(fio_iops(&config)?);
        }
    }
    let rust = lines.pop().expect("there is a line for Rust");
    let (bytes, via) = (config.blocks * BLOCK as u64, args.via.zip(lines.pop()));
    let comparison = Comparison { args, bytes, rust, via, fio };
    Ok(report::of(&comparison, Machine::of(&storage), notes))
}

fn config(args: &BatchArgs) -> Result<RoundConfig<'_>, Failure> {
    let shown = args.file.display();
    let file =
        File::open(&args.file).map_err(Failure::because(format_args!("{shown}: cannot open")))?;
    let bytes = target::end_of(&file)
        .map_err(Failure::because(format_args!("{shown}: cannot determine the size")))?;
    let blocks = bytes / BLOCK as u64;
    let config = RoundConfig { args, file: TestFile(file), blocks };
    let least = (args.submitters() * BATCH + 1) as u64;
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
fn prepare_cache(config: &RoundConfig<'_>, notes: &mut Notes) -> Result<(), Failure> {
    let file = &config.file.0;
    let bytes = config.blocks * BLOCK as u64;
    if config.args.warm {
        return Ok(cache::warm(file, bytes)?);
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

/// Performs a round in this process.
fn perform(by: By, config: &RoundConfig<'_>) -> Result<(Measured, Latencies), Failure> {
    let parties = match by {
        By::Rust(Level::Low) => config.args.workers,
        By::Rust(Level::High) | By::Via(_) => config.args.submitters(),
    };
    let gate = Gate::new(parties).counting_allocations();
    let results = match by {
        By::Rust(Level::Low) => low::run(config, &gate),
        By::Rust(Level::High) => high::run(config, &gate),
        By::Via(_) => via::run_c(config, &gate),
    };
    let results = results.map_err(Failure::because("the benchmark failed"))?;
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
fn fio_iops(config: &RoundConfig<'_>) -> Result<f64, Failure> {
    let mut job = tempfile::Builder::new().prefix("cringle-").suffix(".fio").tempfile()?;
    job.write_all(FIO_JOB.as_bytes())?;
    let figures = fio::execute(
        Command::new("fio")
            .arg("--output-format=json")
            .arg(job.path())
            .env("FILE", config.file.name_for_others())
            .env("DIRECT", u8::from(!config.args.cached).to_string())
            .env("WORKERS", config.args.workers.to_string())
            .env("PART", (config.blocks / config.args.workers as u64 * BLOCK as u64).to_string()),
    )?;
    let report = fio::report(&figures)?;
    Ok(report.ops as f64 / report.usage.seconds)
}

/// Returns the error of an incomplete read, which ends the benchmark.
fn short_read(moved: usize, offset: u64) -> io::Error {
    let text = format!("a read at offset {offset} returned {moved} of {BLOCK} bytes");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
