//! Measures for a few seconds: `bench disk` with a worker's ring and a loop of `pread`, and a
//! switch between fibers.

use super::args::DoctorArgs;
use super::paths::{PathReport, Support, as_text};
use super::ring::Ring;
use super::start::Start;
use cringle::fiber;
use cringle_bench as bench;
use cringle_bench::Bench;
use cringle_bench::disk::DiskArgs;
use cringle_bench::disk::results::{Run, beside};
use cringle_bench::disk::strategies::Strategy;
use cringle_bench::rounds::Progress;
use cringle_report::failure::Failure;
use cringle_report::stats::median;

use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Serialize)]
pub(crate) struct Measured {
    pub reads: Vec<Read>,
    /// The time of a switch between two fibers of one worker.
    pub fiber_switch_ns: Option<f64>,
    /// What was not measured, with the reason.
    pub notes: Vec<String>,
}

/// Reads per second of one thread or worker, as medians of the rounds.
#[derive(Clone, Serialize)]
pub(crate) struct Read {
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    pub profile: &'static str,
    pub block_bytes: usize,
    pub queue_depth: usize,
    /// By a loop of `pread`, which has one read in flight whatever the depth.
    pub pread: Option<f64>,
    /// By the ring without fibers.
    pub ring: Option<f64>,
    pub fibers: Option<f64>,
}

/// One call of `bench disk`.
struct Part {
    profile: &'static str,
    block: &'static str,
    depths: &'static str,
    /// The number of runs in a round, if there is a ring.
    runs: usize,
}

const PARTS: [Part; 3] = [
    Part { profile: "cached", block: "4k", depths: "1,32", runs: 5 },
    Part { profile: "cached", block: "64", depths: "1,32", runs: 5 },
    Part { profile: "direct", block: "4k", depths: "1,32", runs: 5 },
];
const ROUNDS: usize = 3;
/// The share of the fiber switches in the time, in units of a run.
const SWITCHES: usize = 1;

pub(crate) fn all(args: &DoctorArgs, ring: &Ring, places: &[PathReport]) -> Measured {
    let runs: usize = PARTS.iter().map(|part| part.runs).sum::<usize>() * places.len() + SWITCHES;
    let each = args.seconds / (runs * ROUNDS) as f64;
    let bar = Progress::new(!args.quiet).runs(PARTS.len() * places.len() + SWITCHES);
    let mut measured = Measured { reads: Vec::new(), fiber_switch_ns: None, notes: Vec::new() };
    if cfg!(debug_assertions) {
        let slow = "this is a debug build: its figures mean little";
        measured.notes.push(slow.into());
    }
    for place in places {
        for part in &PARTS {
            let path = place.path.display();
            bar.set_message(format!("{} reads of {} on {path}", part.profile, part.block));
            match reads(part, place, ring.usable, each) {
                Ok(reads) => measured.reads.extend(reads),
                Err(why) => {
                    let what = format!("{} reads of {} on {path}", part.profile, part.block);
                    measured.notes.push(format!("{what} were not measured: {why}"));
                }
            }
            bar.inc(1);
        }
    }
    bar.set_message("fiber switches");
    match ring.runtime {
        Start::Ring | Start::Fallback => match switches(each) {
            Ok(ns) => measured.fiber_switch_ns = Some(ns),
            Err(error) => measured.notes.push(format!("fiber switches were not measured: {error}")),
        },
        _ => {
            let why = "fiber switches were not measured: no runtime starts here";
            measured.notes.push(why.into());
        }
    }
    bar.finish_and_clear();
    measured
}

fn reads(part: &Part, place: &PathReport, ring: bool, seconds: f64) -> Result<Vec<Read>, Failure> {
    if part.profile == "direct" && place.direct.support == Support::No {
        return Err(Failure::failed(place.direct.detail.clone()));
    }
    let runs = bench::disk::measure(&bench_arguments(part, &place.path, ring, seconds)?)?.runs;
    let sync = runs.iter().find(|run| run.subject.strategy == Strategy::Sync).map(Run::iops);
    let with = |like: &Run, strategy| beside(&runs, &like.subject, strategy).map(Run::iops);
    let read = |like: &Run| Read {
        path: place.path.clone(),
        profile: part.profile,
        block_bytes: like.subject.block,
        queue_depth: like.subject.queue_depth,
        pread: sync,
        ring: with(like, Strategy::Uring),
        fibers: with(like, Strategy::Fibers),
    };
    let rows = if ring { Strategy::Uring } else { Strategy::Sync };
    Ok(runs.iter().filter(|run| run.subject.strategy == rows).map(read).collect())
}

/// Parses a command line of `bench disk`, so that it gets the usual checks and defaults.
fn bench_arguments(
    part: &Part,
    path: &Path,
    ring: bool,
    seconds: f64,
) -> Result<DiskArgs, Failure> {
    let strategies = if ring { "sync,uring,fibers" } else { "sync" };
    let seconds = seconds.to_string();
    let rounds = ROUNDS.to_string();
    let options = [
        ["--profile", part.profile],
        ["--block", part.block],
        ["--qd", part.depths],
        ["--strategies", strategies],
        ["--threads", "1"],
        ["--size", "32m"],
        ["--repeat", &rounds],
        ["--seconds", &seconds],
    ];
    let arguments = ["disk", "--quiet"].into_iter().chain(options.into_iter().flatten());
    let arguments = arguments.map(OsString::from).chain([OsString::from("--"), path.into()]);
    match Bench::parse(&arguments.collect::<Vec<_>>()) {
        Ok(Bench::Disk(args)) => args.validate().map(|()| *args),
        Ok(_) => Err(Failure::failed("`bench disk` was parsed as another command")),
        Err(error) => Err(Failure::failed(error.to_string())),
    }
}

/// The number of yields between two readings of the clock.
const YIELDS_PER_CHECK: u32 = 1024;

/// Returns the nanoseconds of a switch, from two fibers that yield to each other.
fn switches(seconds: f64) -> std::io::Result<f64> {
    let round = Duration::from_secs_f64(seconds);
    let rounds: Vec<_> = cringle::Builder::new()
        .workers(1)
        .run(|| (0..ROUNDS).map(|_| one_round(round)).collect())?;
    median(rounds).ok_or_else(|| std::io::Error::other("no round was made"))
}

fn one_round(length: Duration) -> f64 {
    let yields = |until: Instant| {
        let mut count = 0u64;
        while Instant::now() < until {
            (0..YIELDS_PER_CHECK).for_each(|_| fiber::yield_now());
            count += u64::from(YIELDS_PER_CHECK);
        }
        count
    };
    let start = Instant::now();
    let (one, other) = fiber::join(|| yields(start + length), || yields(start + length));
    start.elapsed().as_nanos() as f64 / (one + other).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_a_valid_command_line() {
        for part in &PARTS {
            let args = bench_arguments(part, Path::new("-strange"), true, 0.25).unwrap();
            assert_eq!(args.path, Path::new("-strange"));
            assert_eq!(args.qd, [1, 32]);
            assert_eq!(args.seconds, Some(0.25));
        }
    }
}
