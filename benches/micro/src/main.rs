//! Micro-benchmarks: what a fiber costs where nothing else does. Each prints the ratio to the best
//! that something simpler can do, both sides taking turns in one run.

mod batches;
mod channels;
mod copies;
mod memory;
mod mutexes;
mod parks;
mod report;
mod sends;
mod spawns;
mod timeouts;
mod yields;

use clap::{Parser, ValueEnum};
use report::Report;
use std::path::PathBuf;

/// What a fiber costs where nothing else does.
#[derive(Parser)]
struct Options {
    /// Which to run, in this order [default: all]
    benchmarks: Vec<Benchmark>,
    /// How many times each side runs
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Fibers that `memory` parks
    #[arg(long, default_value_t = 100_000)]
    fibers: u64,
    /// Fibers that `million` parks
    #[arg(long, default_value_t = 1_000_000)]
    million: u64,
    /// Where `batch`, `copy` and `send` make their files; not on tmpfs
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Print JSON, with all samples
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true)]
    count_memory: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Benchmark {
    /// Two fibers yield to each other
    Yield,
    /// Fibers are spawned and joined
    Spawn,
    /// Two fibers of two workers wake each other
    Park,
    /// A lock is taken and let go of
    Mutex,
    /// Two fibers of one worker send to each other
    Channel,
    /// Two fibers of two workers send to each other
    ChannelAcross,
    /// Batches of cached reads
    Batch,
    /// Small files are copied, with the ring and without
    Copy,
    /// A file is sent to a connection, through a buffer and without
    Send,
    /// Cached reads under a deadline
    Timeout,
    /// What an idle fiber takes
    Memory,
    /// A million fibers at once
    Million,
}

fn main() {
    let options = Options::parse();
    if let Some(fibers) = options.count_memory {
        return memory::count(fibers);
    }
    let benchmarks = match options.benchmarks.is_empty() {
        true => Benchmark::value_variants(),
        false => &options.benchmarks,
    };
    let reports: Vec<Report> = benchmarks.iter().flat_map(|&which| run(which, &options)).collect();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&reports).expect("plain figures"));
    }
}

fn run(which: Benchmark, options: &Options) -> Vec<Report> {
    let rounds = options.rounds.max(1);
    let reports = match which {
        Benchmark::Yield => vec![yields::run(rounds)],
        Benchmark::Spawn => spawns::run(rounds),
        Benchmark::Park => vec![parks::run(rounds)],
        Benchmark::Mutex => vec![mutexes::run(rounds)],
        Benchmark::Channel => vec![channels::run(rounds)],
        Benchmark::ChannelAcross => channels::run_across(rounds),
        Benchmark::Batch => vec![batches::run(rounds, &options.directory)],
        Benchmark::Copy => vec![copies::run(rounds, &options.directory)],
        Benchmark::Send => sends::run(rounds, &options.directory),
        Benchmark::Timeout => vec![timeouts::run(rounds, &options.directory)],
        Benchmark::Memory => vec![memory::run("memory of idle fibers", options.fibers)],
        Benchmark::Million => vec![memory::run("a million fibers at once", options.million)],
    };
    if !options.json {
        reports.iter().for_each(Report::print);
    }
    reports
}

/// A runtime of one worker, on this thread.
fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    cringle::Builder::new().workers(1).run(f).expect("a runtime can be started")
}
