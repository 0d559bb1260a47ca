//! The simulation: the same library in virtual time, over files in memory, with faults, and the same
//! again for the same seed.

use cringle::fs::{File, OpenOptions};
use cringle::sim::{self, Checker, Fault, Faults, Options, Stats, World};
use cringle::{fiber, io::Interest, time};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Fibers that sleep, write, read, sync and talk; whatever the faults, they try again.
fn busy() -> u64 {
    let file = OpenOptions::new().read(true).write(true).create(true).open("/busy").unwrap();
    let (mut near, mut far) = sim::stream_pair().unwrap();
    fiber::scope(|s| {
        for n in 0..8u64 {
            let file = &file;
            s.spawn_local(move || {
                fiber::sleep(Duration::from_micros(n * 50));
                let bytes = [n as u8; 700];
                file.write_all_at(&bytes, n * 700).unwrap();
                file.sync_data().unwrap();
                let mut read = [0; 700];
                file.read_exact_at(&mut read, n * 700).unwrap();
                assert_eq!(read, bytes);
            });
        }
        s.spawn_local(|| near.write_all(&[7; 3000]).unwrap());
        s.spawn_local(|| far.read_exact(&mut [0; 3000]).unwrap());
    });
    file.metadata().unwrap().len()
}

fn stats_of(seed: u64) -> Stats {
    let options = Options::new().faults(Faults::hidden());
    let report = sim::run(seed, &options, busy).unwrap();
    assert_eq!(report.value, 5600);
    report.stats
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    for seed in 0..50 {
        let stats = stats_of(seed);
        assert_eq!(stats, stats_of(seed));
        assert_ne!(stats.trace, stats_of(seed + 1000).trace);
    }
}

#[test]
fn time_is_virtual() {
    let started = std::time::Instant::now();
    let report = sim::run(1, &Options::new(), || {
        let before = time::now();
        fiber::sleep(Duration::from_secs(86_400));
        fiber::park_timeout(Duration::from_secs(3600));
        time::now() - before
    })
    .unwrap();
    let day_and_hour = Duration::from_secs(90_000);
    assert!(report.value >= day_and_hour && report.elapsed >= day_and_hour);
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn try_many() {
    let from: u64 = std::env::var("FROM").ok().and_then(|t| t.parse().ok()).unwrap_or(0);
    let n: u64 = std::env::var("N").ok().and_then(|t| t.parse().ok()).unwrap_or(200);
    let start = std::time::Instant::now();
    let mut bad = 0;
    let mut total = 0;
    for seed in from..from + n {
        match sim::program::check(seed) {
            Ok(c) => total += c.stats.operations,
            Err(f) => {
                bad += 1;
                if bad < 8 {
                    println!("{f}");
                }
            }
        }
    }
    println!("{bad} bad; {total} ops; {} seeds/s", n as f64 / start.elapsed().as_secs_f64());
}
