//! Tests of the sentences, with invented figures.

use super::*;
use crate::disk::results::{Cell, Sample};
use crate::latency::Latencies;
use crate::meter::Usage;

fn run(strategy: Strategy, profile: Profile, depth: usize, iops: f64, cpu_us: f64) -> Run {
    let threads = if strategy == Strategy::Threads { depth } else { 1 };
    let queue_depth = if strategy.has_queue() { depth } else { 1 };
    let cell = Cell { strategy, profile, queue_depth, threads, block: 4096, fixed: false };
    let usage = Usage {
        seconds: 1.0,
        user_seconds: 0.0,
        system_seconds: cpu_us * iops / 1e6,
        context_switches: 0,
    };
    let latency = Some(1e6 * depth as f64 / iops);
    let sample =
        Sample { ops: iops as u64, usage, checksum: Some(1), p50_us: latency, p99_us: latency };
    Run { cell, samples: vec![sample], latencies: Latencies::new() }
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
fn readahead_and_group_commit_are_reported() {
    let text = all(&[
        run(Strategy::Sync, Profile::BufferedSeq, 1, 10_000.0, 9.0),
        run(Strategy::Fibers, Profile::BufferedSeq, 32, 10_200.0, 9.0),
    ]);
    assert!(text.contains("none is clearly faster"), "{text}");
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
