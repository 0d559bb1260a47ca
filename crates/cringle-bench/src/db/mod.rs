//! `cringle bench db`: the ladder of the paper "io_uring for high-performance DBMSs" (Jasny and
//! others, arXiv 2512.04859). A storage engine on one core performs the same transactions on each
//! rung, from `pread` to registered buffers; each rung changes one thing in the rung below it.
//!
//! The engine is a B-tree ([`tree`]) in a file several times larger than the buffer pool
//! ([`pool`]). A transaction is plain code ([`engine`]) and updates a random row. A rung
//! ([`rungs`]) performs the reads, writes and waits. The tree is written anew before each run and
//! read after it: its checksum must equal that of a model in memory.

mod args;
mod engine;
mod fio;
mod pool;
mod report;
mod rungs;
mod sentences;
mod store;
mod tree;
mod wal;
mod workload;

pub use args::DbArgs;

use crate::experiment::{self, Named, Notes, Report};
use crate::meter::Usage;
use crate::rounds::{Progress, turns};
use cringle::runtime::Driver;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::Machine;
use cringle_report::stats;
use pool::Counts;
use rungs::{Outcome, Rung};
use std::sync::Arc;
use store::Store;
use tree::Tree;
use workload::Workload;

/// What every rung performs.
struct Job {
    tree: Tree,
    workload: Workload,
    store: Store,
    /// Pages in the buffer pool.
    frames: usize,
    /// Transactions at once.
    fibers: usize,
    evict_batch: usize,
    /// Whether a transaction ends when the log has its change.
    durable: bool,
}

impl Job {
    /// Returns the pages that are in the pool when a run begins: the inner ones, and leaves from
    /// the whole tree.
    fn first_pages(&self) -> impl Iterator<Item = u32> + use<> {
        let (leaves, pages) = (self.tree.leaves(), self.tree.pages());
        let inner = (pages - leaves).min(self.frames as u64);
        let rest = self.frames as u64 - inner;
        let spread = (0..rest).map(move |index| index * leaves / rest);
        (leaves..pages).rev().take(inner as usize).chain(spread).map(|page| page as u32)
    }
}

/// A run of a rung.
struct RungSample {
    usage: Usage,
    counts: Counts,
    calls: Option<u64>,
}

impl RungSample {
    /// Reads and writes a second.
    fn iops(&self) -> f64 {
        (self.counts.reads + self.counts.writes) as f64 / self.usage.seconds
    }
}

type Line = experiment::Line<Rung, RungSample>;

struct DbFindings<'a> {
    args: &'a DbArgs,
    tree: Tree,
    /// Whether the fibers have no ring, so that threads perform their calls.
    without_ring: bool,
    checksum: u64,
    lines: Vec<Line>,
    /// Operations a second of each round of fio, at the mix of the rungs.
    fio: Vec<f64>,
}

/// A change of the rate by at most this part is called none.
const NOTICEABLE: f64 = 0.05;

/// The number of rounds from which a difference is explained.
const ENOUGH_ROUNDS: usize = 3;

/// How the rate of a rung differs from that of the rung below it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// In every round.
    Rise,
    None,
    Fall,
    /// It rose in some rounds and fell in others.
    Unclear,
    /// There are too few rounds.
    Unknown,
}

impl DbFindings<'_> {
    fn line(&self, rung: Rung) -> Option<&Line> {
        self.lines.iter().find(|line| line.subject == rung)
    }

    fn per_transaction(&self, line: &Line, of: impl Fn(&RungSample) -> f64) -> f64 {
        line.figure(of) / self.args.transactions as f64
    }

    /// Transactions a second.
    fn rate(&self, sample: &RungSample) -> f64 {
        self.args.transactions as f64 / sample.usage.seconds
    }

    /// Returns the rate of a rung as a multiple of another's in each round, if both were measured.
    fn ratios(&self, rung: Rung, base: Rung) -> Option<Vec<f64>> {
        let (ours, theirs) = (&self.line(rung)?.samples, &self.line(base)?.samples);
        let pairs = ours.iter().zip(theirs);
        Some(pairs.map(|(ours, theirs)| theirs.usage.seconds / ours.usage.seconds).collect())
    }

    /// Returns the median of the [`ratios`](Self::ratios).
    fn ratio(&self, rung: Rung, base: Rung) -> Option<f64> {
        stats::median(self.ratios(rung, base)?)
    }

    /// Returns the change of the rate from one rung to another, if both were measured.
    fn change(&self, rung: Rung, base: Rung) -> Option<Change> {
        let ratio = self.ratio(rung, base)?;
        let ratios = self.ratios(rung, base)?;
        let rounds = ratios.len();
        let (least, most) = stats::range(ratios)?;
        Some(if rounds < ENOUGH_ROUNDS {
            Change::Unknown
        } else if (ratio - 1.0).abs() <= NOTICEABLE {
            Change::None
        } else if least > 1.0 {
            Change::Rise
        } else if most < 1.0 {
            Change::Fall
        } else {
            Change::Unclear
        })
    }

    /// Returns the operations a second of a rung as a multiple of fio's in the same round.
    fn ratio_to_fio(&self, line: &Line) -> Option<f64> {
        let pairs = line.samples.iter().zip(&self.fio);
        stats::median(pairs.map(|(sample, fio)| sample.iops() / fio))
    }

    fn fio_iops(&self) -> Option<f64> {
        stats::median(self.fio.iter().copied())
    }
}

fn measure(args: &DbArgs) -> Result<Report, Failure> {
    store::must_be_directory(&args.path)?;
    let storage = crate::storage_under(&args.path)?;
    let mut notes = Notes::default();
    notes.if_in_memory(&storage, &args.path, "this does not measure a disk");
    let (rungs, without_ring) = available(args, &mut notes)?;
    let tree = args.shape();
    let job = Arc::new(Job {
        workload: Workload::new(&tree, args.transactions, args.seed),
        store: Store::create(&args.path, args.tree)?,
        frames: args.frames(),
        fibers: args.fibers,
        evict_batch: args.evict_batch,
        durable: args.durable,
        tree,
    });
    if 2 * job.frames as u64 > job.tree.pages() {
        notes.add("the pool holds more than half of the tree: many updates do not read a page");
    }
    let checksum = job.workload.final_checksum(&job.tree);
    let (lines, fio) = in_rounds(args, &job, &rungs, checksum)?;
    let tree = job.tree.clone();
    let findings = DbFindings { args, tree, without_ring, checksum, lines, fio };
    Ok(report::of(&findings, Machine::of(&storage), notes))
}

/// Returns the chosen rungs that this machine can run, and whether their fibers have no ring. Notes
/// the others.
fn available(args: &DbArgs, notes: &mut Notes) -> Result<(Vec<Rung>, bool), Failure> {
    let (mut available, mut reasons, mut is_contradictory) = (Vec::new(), Vec::new(), true);
    for rung in args.rungs() {
        let contradiction = rung.contradiction(args.durable, args.fibers);
        is_contradictory &= contradiction.is_some() || rung == Rung::Fio;
        match contradiction.or_else(|| rung.missing()) {
            None => available.push(rung),
            Some(why) => reasons.push(format!("{} is left out: {why}", rung.name())),
        }
    }
    if available.iter().all(|rung| *rung == Rung::Fio) {
        reasons.push("choose rungs that can run with --rungs".into());
        let text = format!("no rung of the ladder or beside it is left: {}", reasons.join("; "));
        return Err(if is_contradictory { Failure::usage(text) } else { Failure::failed(text) });
    }
    reasons.into_iter().for_each(|reason| notes.add(reason));
    let driver = || cringle::Builder::new().workers(1).run(cringle::runtime::driver);
    let mut without_ring = false;
    if available.iter().any(|rung| rung.has_fibers())
        && let Ok(Driver::Epoll(why)) = driver()
    {
        without_ring = true;
        notes.add(format!(
            "fibers have no ring here ({why}): +fibers, +batch and +registered perform the same \
             calls on threads"
        ));
    }
    Ok((available, without_ring))
}

/// Runs the rungs in turns, round by round. fio is the last one of each round: it overwrites the
/// tree.
fn in_rounds(
    args: &DbArgs,
    job: &Arc<Job>,
    rungs: &[Rung],
    checksum: u64,
) -> Result<(Vec<Line>, Vec<f64>), Failure> {
    let engines = rungs.iter().copied().filter(|rung| *rung != Rung::Fio);
    let mut lines: Vec<Line> = engines.map(Line::new).collect();
    let mut fios = Vec::new();
    let bar = Progress::new(!args.outputs.quiet).runs(args.rounds.total() * rungs.len());
    for (round, is_measured) in args.rounds.all() {
        let mut last = Counts::default();
        turns((round, is_measured), &mut lines, &bar, |rung| {
            let outcome = run_rung(job, *rung, checksum)?;
            last = outcome.0.counts;
            Ok(outcome)
        })?;
        if rungs.contains(&Rung::Fio) {
            bar.set_message("fio");
            let rate = fio::rate(job, last).map_err(Failure::because("fio, the reference"))?;
            fios.extend(is_measured.then_some(rate));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok((lines, fios))
}

/// Builds the tree, runs a rung, and checks what it has left. With `--durable` the pool is lost, as
/// in a crash, and the log is replayed.
fn run_rung(job: &Arc<Job>, rung: Rung, checksum: u64) -> Result<Outcome, Failure> {
    let name = rung.name();
    let with = |what: &str, error| Failure::failed(format!("{name}: cannot {what}: {error}"));
    job.store.build(&job.tree).map_err(|error| with("write the tree", error))?;
    let outcome = rung.run(job).map_err(|error| with("perform the transactions", error))?;
    if job.durable {
        wal::recover(job).map_err(|error| with("recover the tree from the log", error))?;
    }
    let found = job.store.checksum(&job.tree).map_err(|error| with("check the tree", error))?;
    check(&name, found, checksum)?;
    Ok(outcome)
}

/// Fails if the tree is not the one that the transactions lead to.
fn check(rung: &str, found: u64, expected: u64) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    fail(format!(
        "{rung}: wrong result: the tree's checksum is {found:016x}, and the same transactions on a \
         copy in memory lead to {expected:016x}: an update was lost or repeated"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_checksum_fails_and_names_the_rung() {
        assert!(check("+evict", 7, 7).is_ok());
        let failure = check("+evict", 7, 8).unwrap_err();
        assert_eq!(failure.status, cringle_report::failure::FAILED);
        assert!(failure.message.starts_with("+evict: wrong result"), "{failure}");
    }
    #[test]
    fn no_rung_left_is_explained() {
        let failure = |line: &[&str]| {
            let Ok(crate::Bench::Db(args)) = crate::Bench::parse(&[&["db"], line].concat()) else {
                panic!("{line:?} is not a command line of bench db");
            };
            available(&args, &mut Notes::default()).unwrap_err()
        };
        for (line, reason) in [
            (&["--rungs", "threads", "--fibers", "16384"][..], "choose fewer --fibers"),
            (&["--rungs", "twin+batch", "--durable"], "block all others in the log"),
            (&["--rungs", "fio"], "choose rungs that can run"),
        ] {
            let failure = failure(line);
            assert_eq!(failure.status, cringle_report::failure::USAGE, "{failure}");
            assert!(failure.message.contains(reason), "{failure}");
        }
    }
}
