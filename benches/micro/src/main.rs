//! Micro-benchmarks of single operations of fibers. Each prints the ratio to the fastest simpler
//! alternative; the sides alternate in one run.

mod bounces;
mod channels;
mod cores;
mod hashes;
mod mapped;
mod memory;
mod moving;
mod mutexes;
mod private;
mod report;
mod spawns;
mod timeouts;
mod yields;

use clap::{Parser, ValueEnum};
use report::Report;
use std::path::PathBuf;

/// Measure single operations of fibers, and compare them with other runtimes
#[derive(Parser)]
struct Options {
    /// Benchmarks to run, in this order [default: all]
    benchmarks: Vec<Benchmark>,
    /// Runs of each side
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Number of fibers that `memory` parks
    #[arg(long, default_value_t = 100_000)]
    fibers: u64,
    /// Number of fibers that `million` parks
    #[arg(long, default_value_t = 1_000_000)]
    million: u64,
    /// Directory for the files of `bounce`, `mapped`, `hash`, `timeout` and `moving`; not on tmpfs
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Print JSON, with all samples
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true)]
    count_memory: Option<u64>,
    #[arg(long, hide = true)]
    count_private_memory: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Benchmark {
    /// Yield between fibers
    Yield,
    /// Spawn and join fibers
    Spawn,
    /// Lock and unlock an uncontended mutex
    Mutex,
    /// Send values between two fibers of one worker
    Channel,
    /// Send values between fibers of two workers
    ChannelAcross,
    /// Read and write ranges that are not aligned, past the page cache
    Bounce,
    /// Read blocks of a file that fits the page cache
    Mapped,
    /// Hash a tree of small files, and the same with rayon
    Hash,
    /// Read cached blocks under a deadline
    Timeout,
    /// Count the memory of idle fibers
    Memory,
    /// Yield, spawn and idle with thread-locals of the fibers' own
    Private,
    /// Serve an uneven load with two workers
    Cores,
    /// Yield, spawn and read with fibers that may move
    Moving,
    /// Park a million fibers at once
    Million,
}

fn main() {
    let options = Options::parse();
    if let Some(fibers) = options.count_memory {
        return memory::count(fibers, memory::Locals::Shared);
    }
    if let Some(fibers) = options.count_private_memory {
        return memory::count(fibers, memory::Locals::PrivateWithMalloc);
    }
    let benchmarks = if options.benchmarks.is_empty() {
        Benchmark::value_variants()
    } else {
        &options.benchmarks
    };
    let reports: Vec<Report> = benchmarks.iter().flat_map(|&one| run(one, &options)).collect();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&reports).expect("plain figures"));
    }
}

fn run(benchmark: Benchmark, options: &Options) -> Vec<Report> {
    let rounds = options.rounds.max(1);
    let reports = match benchmark {
        Benchmark::Yield => vec![yields::run(rounds)],
        Benchmark::Spawn => spawns::run(rounds),
        Benchmark::Mutex => vec![mutexes::run(rounds)],
        Benchmark::Channel => vec![channels::run(rounds)],
        Benchmark::ChannelAcross => channels::run_across(rounds),
        Benchmark::Bounce => bounces::run(rounds.min(7), &options.directory),
        Benchmark::Mapped => mapped::run(rounds, &options.directory),
        Benchmark::Hash => hashes::run(rounds, &options.directory),
        Benchmark::Timeout => vec![timeouts::run(rounds, &options.directory)],
        Benchmark::Memory => vec![memory::run_shared("memory of idle fibers", options.fibers)],
        Benchmark::Private => private::run(rounds, options.fibers),
        Benchmark::Cores => cores::run(rounds.min(7)),
        Benchmark::Moving => moving::run(rounds, &options.directory),
        Benchmark::Million => vec![memory::run_shared("a million fibers at once", options.million)],
    };
    if !options.json {
        reports.iter().for_each(Report::print);
    }
    reports
}

/// Runs `f` with one worker, on this thread.
fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    cringle::Builder::new().workers(1).run(f).expect("a runtime starts")
}
