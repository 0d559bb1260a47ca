//! What it costs that fibers may move, where none needs to: on one worker, and on two that have
//! work all the time. Both sides have thread-locals of the fibers' own, without which fibers do not
//! move.

use crate::report::{Contest, Report};
use common::clock::Meter;
use common::file;
use common::plan::offsets;
use cringle::fiber;
use cringle::fs::File;
use cringle::runtime::{Balance, ThreadLocals};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FIBERS: u64 = 64;
const YIELDS: u64 = 2_000_000;
const SPAWNS: u64 = 400_000;
const READS: u64 = 400_000;
const BLOCK: usize = 4096;
const FILE_BYTES: u64 = 256 << 20;
const BAR: f64 = 1.05;

pub(crate) fn run(rounds: usize, directory: &Path) -> Vec<Report> {
    let scratch = file::Scratch::new(directory, FILE_BYTES).expect("a file can be created");
    file::warm(scratch.path()).expect("the file exists");
    let contest = |title, side: &dyn Fn(Balance) -> f64| {
        let (moving, fixed) = ("fibers may move", "fibers stay");
        Contest::new(title)
            .side(moving, || side(Balance::Moving))
            .side(fixed, || side(Balance::Fixed))
            .run(rounds)
            .ratio(moving, &[fixed], Some(BAR))
    };
    let reads = |balance, workers| reads(balance, workers, scratch.path());
    vec![
        contest("a yield among 64 fibers on one worker", &|balance| yields(balance, 1)),
        contest("the same on two", &|balance| yields(balance, 2)),
        contest("spawn + join by 64 fibers on one worker", &|balance| spawns(balance, 1)),
        contest("the same on two", &|balance| spawns(balance, 2)),
        contest("a cached read of 4 KiB by 64 fibers on one worker", &|balance| reads(balance, 1)),
        contest("the same on two", &|balance| reads(balance, 2)),
    ]
}

fn yields(balance: Balance, workers: usize) -> f64 {
    by_all(balance, workers, YIELDS, |_, count| (0..count).for_each(|_| fiber::yield_now()))
}

fn spawns(balance: Balance, workers: usize) -> f64 {
    by_all(balance, workers, SPAWNS, |_, count| {
        for number in 0..count {
            black_box(fiber::spawn(move || number).join().expect("no panic"));
        }
    })
}

fn reads(balance: Balance, workers: usize, path: &Path) -> f64 {
    let plan = offsets(1, READS as usize, FILE_BYTES, BLOCK as u64);
    let file = File::open(path).expect("the file exists");
    by_all(balance, workers, READS, |fiber, count| {
        let mut buf = [0; BLOCK];
        for &at in &plan[(fiber * count) as usize..][..count as usize] {
            assert_eq!(file.read_at(&mut buf, at).expect("the read succeeds"), BLOCK);
        }
    })
}

/// Runs `work` on each of the fibers with its number and its share of the operations. Returns the
/// nanoseconds of the process's CPU per operation.
fn by_all(
    balance: Balance,
    workers: usize,
    operations: u64,
    work: impl Fn(u64, u64) + Sync,
) -> f64 {
    let builder = cringle::Builder::new()
        .workers(workers)
        .thread_locals(ThreadLocals::Private)
        .balance(balance);
    let usage = builder.run(|| {
        let all = |share: u64| {
            fiber::scope(|s| {
                for fiber in 0..FIBERS {
                    let work = &work;
                    s.spawn(move || work(fiber, share));
                }
            });
        };
        all(100);
        let meter = Meter::start();
        all(operations / FIBERS);
        meter.stop()
    });
    let usage = usage.expect("a runtime starts");
    (usage.user_seconds + usage.system_seconds) * 1e9 / operations as f64
}
