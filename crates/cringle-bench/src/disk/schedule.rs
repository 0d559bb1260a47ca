//! Which settings are run, with which limits and plans.

use super::job::Profile;
use super::plan::{Direction, Limit};
use super::results::Setting;
use super::strategies::Strategy;
use crate::disk::args::DiskArgs;
use crate::experiment::{Named, Notes};
use crate::latency::Sampling;

/// The operations of a run if neither `--ops` nor `--seconds` is given: a fraction of a second on a
/// fast device.
const DIRECT_OPS: usize = 20_000;
const CACHED_OPS: usize = 100_000;
const COMMITS: usize = 1_000;
/// A measured run has this many times the operations of a warm-up run.
const WARMUP_SHARE: usize = 8;

/// Returns the rows, in the order of a round: the strategies at one depth follow each other, so
/// that they are compared at about the same time.
pub(super) fn settings(
    args: &DiskArgs,
    strategies: &[Strategy],
    profile: Profile,
    direction: Direction,
    notes: &mut Notes,
) -> Vec<Setting> {
    let chosen = suitable(args, strategies, profile, direction, notes);
    let mut settings: Vec<Setting> = Vec::new();
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
                let block = args.block();
                let setting = Setting { strategy, profile, queue_depth, threads, block, fixed };
                if !settings.contains(&setting) {
                    settings.push(setting);
                }
            }
        }
    }
    settings
}

/// Returns the strategies that support the profile and direction, and adds notes about the others.
fn suitable(
    args: &DiskArgs,
    strategies: &[Strategy],
    profile: Profile,
    direction: Direction,
    notes: &mut Notes,
) -> Vec<Strategy> {
    let mut chosen = strategies.to_vec();
    chosen.retain(|strategy| {
        let unsupported = strategy.unsupported(profile, direction);
        if let Some(why) = unsupported {
            // No user expects a log in the other profiles.
            if *strategy == Strategy::Log && !args.names(Strategy::Log) {
                return false;
            }
            let (name, profile) = (strategy.name(), profile.name());
            notes.add(format!("{name} is left out of `{profile}`: {why}"));
        } else if let Some(remark) = strategy.remark(profile) {
            notes.add(remark);
        }
        unsupported.is_none()
    });
    chosen
}

pub(super) fn limit(args: &DiskArgs, profile: Profile) -> Limit {
    match (args.seconds, args.ops, profile) {
        (Some(seconds), ..) => Limit::Seconds(seconds),
        (None, Some(ops), _) => Limit::Ops(ops),
        (None, None, Profile::Direct) => Limit::Ops(DIRECT_OPS),
        (None, None, Profile::Cached) => Limit::Ops(CACHED_OPS),
        (None, None, Profile::Wal) => Limit::Ops(COMMITS),
    }
}

/// Returns the limit of a warm-up run.
pub(super) fn warmup_limit(limit: Limit) -> Limit {
    match limit {
        Limit::Ops(ops) => Limit::Ops(ops.div_ceil(WARMUP_SHARE)),
        Limit::Seconds(seconds) => Limit::Seconds(seconds / WARMUP_SHARE as f64),
    }
}

pub(super) fn sampling(profile: Profile) -> Sampling {
    match profile {
        Profile::Wal => Sampling::EVERY,
        Profile::Direct => Sampling::ONE_IN_8,
        Profile::Cached => Sampling::ONE_IN_64,
    }
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
        settings(&args, &args.strategies(), profile, direction, &mut notes)
            .iter()
            .map(|setting| (setting.label(), setting.queue_depth, setting.threads))
            .collect()
    }

    fn row(label: &str, queue_depth: usize, threads: usize) -> (String, usize, usize) {
        (label.into(), queue_depth, threads)
    }

    #[test]
    fn threads_follow_the_queue_depth_by_default() {
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
    fn explicit_threads_apply_to_every_strategy() {
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
    fn only_strategies_that_register_are_fixed() {
        let args = ["--qd", "8", "--fixed", "--strategies", "fibers,uring,batch"];
        let expected =
            [row("uring --fixed", 8, 1), row("fibers", 8, 1), row("batch --fixed", 8, 1)];
        assert_eq!(rows(&args, Profile::Direct), expected);
        assert_eq!(rows(&args, Profile::Wal)[0], row("uring", 8, 1));
    }

    #[test]
    fn mmap_does_not_append() {
        assert!(rows(&["--strategies", "mmap"], Profile::Wal).is_empty());
    }
}
