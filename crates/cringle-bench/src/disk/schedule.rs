//! What is run, how long, and in which order.

use super::job::Profile;
use super::plan::{Direction, Limit, Order, Plan, Shape};
use super::results::Cell;
use super::strategies::Strategy;
use crate::disk::args::DiskArgs;
use crate::latency::Sampling;
use crate::notes::Notes;
use crate::target::Target;

/// Operations of a run when neither `--ops` nor `--seconds` is given: a fraction of a second
/// on a fast device.
const DIRECT_OPS: usize = 20_000;
const CACHED_OPS: usize = 100_000;
const COMMITS: usize = 1_000;
/// A warm-up does one of so many operations of a measured run.
const WARMUP_SHARE: usize = 8;

/// The rows, in the order of a round: neighbours in depth are neighbours in time.
pub(super) fn cells(
    args: &DiskArgs,
    strategies: &[Strategy],
    profile: Profile,
    direction: Direction,
    notes: &mut Notes,
) -> Vec<Cell> {
    let chosen = fit(strategies, profile, direction, notes);
    let mut cells: Vec<Cell> = Vec::new();
    for threads in args.thread_counts() {
        for &queue_depth in &args.qd {
            for &strategy in &chosen {
                let (queue_depth, threads) = match strategy {
                    Strategy::Sync => (1, 1),
                    Strategy::Threads if args.threads.is_empty() => (1, queue_depth),
                    Strategy::Threads | Strategy::Mmap => (1, threads),
                    _ => (queue_depth, threads),
                };
                let fixed = args.fixed && strategy.can_register() && profile != Profile::Wal;
                let block = args.block_of(profile);
                let cell = Cell { strategy, profile, queue_depth, threads, block, fixed };
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
            }
        }
    }
    cells
}

/// Those that can do it; of the others, and of what is particular, the reader is told.
fn fit(
    strategies: &[Strategy],
    profile: Profile,
    direction: Direction,
    notes: &mut Notes,
) -> Vec<Strategy> {
    let mut chosen = strategies.to_vec();
    chosen.retain(|strategy| {
        let unfit = strategy.unfit(profile, direction);
        if let Some(why) = unfit {
            let (name, profile) = (strategy.name(), profile.name());
            notes.add(format!("{name} is left out of `{profile}`: {why}"));
        } else if let Some(remark) = strategy.remark(profile) {
            notes.add(remark);
        }
        unfit.is_none()
    });
    chosen
}

pub(super) fn limit(args: &DiskArgs, profile: Profile, target: &Target) -> Limit {
    let block = args.block_of(profile) as u64;
    let blocks = target.file_bytes / block * target.files.len() as u64;
    match (args.seconds, args.ops, profile) {
        (Some(seconds), ..) => Limit::Seconds(seconds),
        (None, Some(ops), _) => Limit::Ops(ops),
        (None, None, Profile::Direct) => Limit::Ops(DIRECT_OPS),
        (None, None, Profile::Cached) => Limit::Ops(CACHED_OPS),
        (None, None, Profile::BufferedSeq) => Limit::Ops(blocks as usize),
        (None, None, Profile::Wal) => Limit::Ops(COMMITS),
    }
}

/// The limit of a warm-up.
pub(super) fn share(limit: Limit) -> Limit {
    match limit {
        Limit::Ops(ops) => Limit::Ops(ops.div_ceil(WARMUP_SHARE)),
        Limit::Seconds(seconds) => Limit::Seconds(seconds / WARMUP_SHARE as f64),
    }
}

pub(super) fn shape(
    args: &DiskArgs,
    profile: Profile,
    direction: Direction,
    target: &Target,
    limit: Limit,
) -> Shape {
    Shape {
        order: match profile {
            Profile::BufferedSeq | Profile::Wal => Order::Sequential,
            Profile::Direct | Profile::Cached => Order::Random,
        },
        direction,
        block: args.block_of(profile),
        files: target.files.len(),
        file_bytes: target.file_bytes,
        limit,
        seed: args.seed,
    }
}

/// Appends go to the logs in turn.
pub(super) fn spread_over_files(plan: &mut Plan, files: usize) {
    for (index, access) in plan.accesses.iter_mut().enumerate() {
        access.file = (index % files) as u32;
    }
}

pub(super) fn sampling(profile: Profile) -> Sampling {
    match profile {
        Profile::Wal => Sampling::EVERY,
        Profile::Direct | Profile::BufferedSeq => Sampling::ONE_IN_8,
        Profile::Cached => Sampling::ONE_IN_64,
    }
}

/// The order of a round: forth, then back.
pub(super) fn turn(round: usize, len: usize) -> Vec<usize> {
    let forth = 0..len;
    if round.is_multiple_of(2) { forth.collect() } else { forth.rev().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bench;

    fn rows(arguments: &[&str], profile: Profile) -> Vec<(String, usize, usize)> {
        let Bench::Disk(args) = Bench::parse(&[&["disk"], arguments].concat()).unwrap() else {
            unreachable!("it is bench disk")
        };
        let direction = if profile == Profile::Wal { Direction::Write } else { args.rw };
        let mut notes = Notes::default();
        cells(&args, &args.strategies(), profile, direction, &mut notes)
            .iter()
            .map(|cell| (cell.label(), cell.queue_depth, cell.threads))
            .collect()
    }

    fn row(label: &str, queue_depth: usize, threads: usize) -> (String, usize, usize) {
        (label.into(), queue_depth, threads)
    }

    #[test]
    fn what_has_no_queue_runs_once_and_threads_are_as_many_as_the_depth() {
        let rows = rows(&["--qd", "1,8", "--strategies", "sync,threads,uring"], Profile::Direct);
        let expected = [
            row("sync", 1, 1),
            row("threads", 1, 1),
            row("uring", 1, 1),
            row("threads", 1, 8),
            row("uring", 8, 1),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_number_of_threads_is_taken_as_it_is() {
        let args = ["--qd", "8", "--threads", "1,2", "--strategies", "threads,mmap,fibers"];
        let expected = [
            row("threads", 1, 1),
            row("mmap", 1, 1),
            row("fibers", 8, 1),
            row("threads", 1, 2),
            row("mmap", 1, 2),
            row("fibers", 8, 2),
        ];
        assert_eq!(rows(&args, Profile::Cached), expected);
    }

    #[test]
    fn only_those_who_can_register_are_called_fixed() {
        let args = ["--qd", "8", "--fixed", "--strategies", "fibers,uring,batch"];
        let expected =
            [row("uring --fixed", 8, 1), row("fibers", 8, 1), row("batch --fixed", 8, 1)];
        assert_eq!(rows(&args, Profile::Direct), expected);
        assert_eq!(rows(&args, Profile::Wal)[0], row("uring", 8, 1));
    }

    #[test]
    fn mmap_appends_nothing() {
        assert!(rows(&["--strategies", "mmap"], Profile::Wal).is_empty());
    }

    #[test]
    fn rounds_alternate_their_direction() {
        assert_eq!(turn(0, 3), [0, 1, 2]);
        assert_eq!(turn(1, 3), [2, 1, 0]);
    }
}
