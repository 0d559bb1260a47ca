//! Tests of the sentences, with invented figures.

use super::*;
use crate::disk::results::{DiskSample, Setting};
use crate::meter::Usage;

fn run(strategy: Strategy, profile: Profile, depth: usize, iops: f64, cpu_us: f64) -> Run {
    let threads = if strategy == Strategy::Threads { depth } else { 1 };
    let queue_depth = if strategy.has_queue() { depth } else { 1 };
    let setting = Setting { strategy, profile, queue_depth, threads, block: 4096, fixed: false };
    let usage = Usage {
        seconds: 1.0,
        user_seconds: 0.0,
        system_seconds: cpu_us * iops / 1e6,
        context_switches: 0,
    };
    let latency = Some(1e6 * depth as f64 / iops);
    let sample =
        DiskSample { ops: iops as u64, usage, checksum: Some(1), p50_us: latency, p99_us: latency };
    Run { samples: vec![sample], ..Run::new(setting) }
}

/// A run with a sample for each rate.
fn rounds(strategy: Strategy, profile: Profile, depth: usize, rates: &[f64]) -> Run {
    let mut all = rates.iter().map(|&iops| run(strategy, profile, depth, iops, 2.0));
    let mut first = all.next().unwrap();
    first.samples.extend(all.flat_map(|run| run.samples));
    first
}

#[test]
fn no_verdict_is_within_the_spread() {
    let wide = [20_000.0, 60_000.0, 90_000.0];
    let direct = |strategy, depth, rates: &[f64]| rounds(strategy, Profile::Direct, depth, rates);
    let text = all(&[
        direct(Strategy::Sync, 1, &[9_000.0, 10_000.0, 30_000.0]),
        direct(Strategy::Uring, 1, &[10_000.0, 12_000.0, 40_000.0]),
        direct(Strategy::Uring, 32, &wide),
        direct(Strategy::Batch, 32, &[5_000.0, 11_000.0, 25_000.0]),
        direct(Strategy::Fibers, 32, &[100.0, 110.0, 120.0]),
    ]);
    assert!(text.contains("no verdict on `batch`, whose rounds have 5,000 to 25,000"), "{text}");
    assert!(text.contains("`fibers` has 0.00 × its rate"), "{text}");
    assert_eq!(text.matches("no verdict. Repeat it on a quiet machine").count(), 2, "{text}");
    for claim in ["saturate", "× the rate of one thread", "as fast as any"] {
        assert!(!text.contains(claim), "{text}");
    }
    for profile in [Profile::Cached, Profile::Wal] {
        let text = all(&[
            rounds(Strategy::Sync, profile, 1, &[10_000.0, 40_000.0, 70_000.0]),
            rounds(Strategy::Fibers, profile, 32, &wide),
            rounds(Strategy::Batch, profile, 32, &[30_000.0, 65_000.0, 95_000.0]),
        ]);
        let claims = ["least", "fastest is", "clearly faster", "× a single", "the best that syncs"];
        assert!(claims.iter().all(|claim| !text.contains(claim)), "{text}");
    }
}

fn all(runs: &[Run]) -> String {
    sentences(runs, Direction::Read).join("\n")
}

#[test]
fn saturation_and_the_cost_of_depth_are_reported() {
    let direct = |strategy, depth, iops, cpu| run(strategy, Profile::Direct, depth, iops, cpu);
    let text = all(&[
        direct(Strategy::Sync, 1, 10_000.0, 8.0),
        direct(Strategy::Threads, 32, 79_000.0, 6.0),
        direct(Strategy::Uring, 1, 10_000.0, 8.0),
        direct(Strategy::Uring, 32, 80_000.0, 2.0),
        direct(Strategy::Fibers, 32, 80_000.0, 2.1),
        direct(Strategy::Uring, 128, 81_000.0, 2.0),
        direct(Strategy::Fio, 32, 80_000.0, 2.5),
    ]);
    assert!(text.contains("saturates at 32 in flight with 81,000 IOPS"), "{text}");
    assert!(text.contains("only the latency grows"), "{text}");
    assert!(text.contains("8.1 × the rate of one thread"), "{text}");
    assert!(text.contains("32: `fibers` has 1.00 × its rate for 1.05 × its CPU"), "{text}");
    assert!(text.contains("1.00 × fio's"), "{text}");
}

#[test]
fn a_device_below_its_limit_is_not_saturated() {
    let text = all(&[
        run(Strategy::Uring, Profile::Direct, 1, 10_000.0, 8.0),
        run(Strategy::Uring, Profile::Direct, 4, 40_000.0, 8.0),
    ]);
    assert!(text.contains("does not saturate at 4 in flight"), "{text}");
}

#[test]
fn mmap_does_not_count_as_the_device() {
    let text = all(&[
        run(Strategy::Mmap, Profile::Direct, 1, 500_000.0, 1.0),
        run(Strategy::Uring, Profile::Direct, 32, 80_000.0, 2.0),
    ]);
    assert!(!text.contains("500,000"), "{text}");
}

#[test]
fn the_least_overhead_is_named() {
    let text = all(&[
        run(Strategy::Sync, Profile::Cached, 1, 575_000.0, 1.7),
        run(Strategy::Uring, Profile::Cached, 1, 487_000.0, 2.0),
    ]);
    assert!(text.contains("plain loop of system calls (575,000 per second)"), "{text}");
    let text = all(&[
        run(Strategy::Sync, Profile::Cached, 1, 575_000.0, 1.7),
        run(Strategy::Uring, Profile::Cached, 32, 781_000.0, 1.3),
    ]);
    assert!(text.contains("`uring` at queue depth 32 has the least, with 1.36 ×"), "{text}");
}

#[test]
fn a_group_commit_is_reported() {
    let text = all(&[
        run(Strategy::Sync, Profile::Wal, 1, 4_000.0, 9.0),
        run(Strategy::Fibers, Profile::Wal, 32, 20_000.0, 9.0),
        run(Strategy::Batch, Profile::Wal, 32, 60_000.0, 9.0),
    ]);
    assert!(text.contains("`fibers` at queue depth 32 commits 20,000 times"), "{text}");
    assert!(text.contains("5.00 × a single committer"), "{text}");
    assert!(text.contains("3.0 × the best that syncs each append"), "{text}");
}

#[test]
fn no_runs_give_no_sentences() {
    assert!(sentences(&[], Direction::Read).is_empty());
    let one = [run(Strategy::Fio, Profile::Direct, 32, 80_000.0, 2.0)];
    assert_eq!(sentences(&one, Direction::Read).len(), 1);
}
