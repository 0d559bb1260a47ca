//! Many ranges of one object by `get_ranges`: Cringle's store and `object_store`'s own, by turns.

mod cache;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use common::clock::Meter;
use common::file::{Scratch, size_of, warm};
use common::plan::head;
use common::stats::{Samples, Side, alternate};
use common::table;
use cringle_object_store::LocalStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Location;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::Serialize;
use serde_json::json;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

/// Measure reads of many ranges of one object
#[derive(Parser)]
struct Options {
    /// Whether the object is in the page cache [default: both]
    states: Vec<State>,
    /// Ranges of one call
    #[arg(long, default_value_t = 20_000)]
    ranges: usize,
    /// Bytes of each range
    #[arg(long, default_value_t = 4096)]
    bytes: u64,
    /// Size of the object in MiB
    #[arg(long, default_value_t = 2048)]
    size: u64,
    /// Runs of each side
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Directory for the object; not on tmpfs
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Count the processor time of all threads instead of the time on the wall
    #[arg(long)]
    cpu: bool,
    /// Print JSON, with all samples
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
enum State {
    /// Evicted before each call
    Cold,
    /// In memory
    Warm,
    /// In memory, and each range by a call of its own
    Single,
}

struct Report {
    state: State,
    sides: Vec<(&'static str, Samples)>,
}

const OURS: &str = "cringle: LocalStore";
const THEIRS: &str = "object_store: LocalFileSystem";

fn main() {
    let options = Options::parse();
    let states = match options.states.as_slice() {
        [] => State::value_variants(),
        some => some,
    };
    let scratch = Scratch::new(&options.directory, options.size << 20).expect("a file is created");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
    let runtime = runtime.expect("tokio starts");
    for &state in states {
        let report = compare(&options, state, scratch.path(), &runtime);
        match options.json {
            true => println!("{}", report.json()),
            false => report.print(&options),
        }
    }
}

/// Runs both stores once in each round, on the same ranges.
fn compare(options: &Options, state: State, path: &Path, runtime: &Runtime) -> Report {
    let ours = LocalStore::new().expect("the store starts");
    let theirs = LocalFileSystem::new();
    if state != State::Cold {
        warm(path).expect("the object exists");
    }
    let mut checks = [Vec::new(), Vec::new()];
    let [our_checks, their_checks] = &mut checks;
    let mut sides: Vec<Side<'_>> = vec![
        Box::new(|| timed(options, state, path, runtime, &ours, our_checks)),
        Box::new(|| timed(options, state, path, runtime, &theirs, their_checks)),
    ];
    let samples = alternate(options.rounds.max(1), &mut sides);
    drop(sides);
    assert_eq!(checks[0], checks[1], "both stores return the same bytes");
    Report { state, sides: [OURS, THEIRS].into_iter().zip(samples).collect() }
}

/// Calls `get_ranges` once, and returns its milliseconds.
fn timed(
    options: &Options,
    state: State,
    path: &Path,
    runtime: &Runtime,
    store: &dyn ObjectStore,
    checks: &mut Vec<u64>,
) -> f64 {
    let ranges = draw(options, path, checks.len() as u64);
    let location = Location::from_absolute_path(path).expect("a plain path");
    if state == State::Cold {
        cache::evict(path);
    }
    let meter = Meter::start();
    let bytes = runtime.block_on(async {
        match state {
            State::Single => one_by_one(store, &location, ranges).await,
            State::Cold | State::Warm => store.get_ranges(&location, &ranges).await,
        }
    });
    let bytes = bytes.expect("ranges are read");
    let usage = meter.stop();
    assert!(bytes.iter().all(|bytes| bytes.len() as u64 == options.bytes));
    checks.push(bytes.iter().map(|bytes| head(bytes)).fold(0, u64::wrapping_add));
    let processor_seconds = usage.user_seconds + usage.system_seconds;
    1e3 * if options.cpu { processor_seconds } else { usage.seconds }
}

async fn one_by_one(
    store: &dyn ObjectStore,
    location: &Location,
    ranges: Vec<Range<u64>>,
) -> object_store::Result<Vec<Bytes>> {
    let mut all = Vec::with_capacity(ranges.len());
    for range in ranges {
        all.push(store.get_range(location, range).await?);
    }
    Ok(all)
}

/// Draws the ranges of a round, in no order, at any offset.
fn draw(options: &Options, path: &Path, round: u64) -> Vec<Range<u64>> {
    let last = size_of(path).expect("the object exists") - options.bytes;
    let mut rng = fastrand::Rng::with_seed(round);
    let starts = (0..options.ranges).map(|_| rng.u64(..last) / 4096 * 4096);
    starts.map(|start| start..start + options.bytes).collect()
}

impl Report {
    fn json(&self) -> serde_json::Value {
        let side = |(name, samples): &(&str, Samples)| json!({ "name": name, "ms": samples.0 });
        json!({ "state": self.state, "sides": self.sides.iter().map(side).collect::<Vec<_>>() })
    }

    fn print(&self, options: &Options) {
        let (state, bar) = match self.state {
            State::Cold => ("not in memory", Some(0.8)),
            State::Warm => ("in memory", Some(1.05)),
            State::Single => ("in memory, one by one", None),
        };
        let Options { ranges, bytes, size, .. } = options;
        let clock = if options.cpu { ": processor time" } else { "" };
        println!("\n### {ranges} ranges of {bytes} bytes of {size} MiB, {state}{clock}\n");
        let row = |(name, samples): &(&str, Samples)| {
            let (median, least, most) = (samples.median(), samples.min(), samples.max());
            let rate = *ranges as f64 / median * 1e3;
            let range = format!("{least:.1} – {most:.1}");
            vec![(*name).to_owned(), format!("{median:.1}"), range, format!("{rate:.0}")]
        };
        let rows: Vec<_> = self.sides.iter().map(row).collect();
        table::print(&["", "ms", "range", "ranges/s"], &rows);
        println!();
        let ratio = self.sides[0].1.over(&self.sides[1].1);
        let (median, least, most) = (ratio.median(), ratio.min(), ratio.max());
        let verdict = match bar {
            Some(bar) if median <= bar => format!("; the bar is {bar}: met"),
            Some(bar) => format!("; the bar is {bar}: MISSED"),
            None => String::new(),
        };
        println!("{OURS} / {THEIRS}: {median:.2} ({least:.2} – {most:.2}){verdict}");
    }
}
