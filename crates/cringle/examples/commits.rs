//! Compares ways to make records durable: each fiber syncs for itself, fibers share the syncs of a
//! file, and fibers append to a log.
//!
//!     cargo run --release --example commits -- [DIRECTORY] [FIBERS] [COMMITS] [ROUNDS]
//!
//! prints the commits per second of one fiber, and of FIBERS (default: 64), each of which makes
//! COMMITS (default: 200): the medians of ROUNDS (default: 11), in which the ways take turns,
//! because the speed of a disk varies.

use cringle::block::Log;
use cringle::fs::File;
use cringle::{fiber, time};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const RECORD: [u8; 200] = [7; 200];

/// Commits a number of times on each of some fibers. Returns the commits per second.
fn measure(
    fibers: usize,
    commits: usize,
    commit: impl Fn() -> io::Result<()> + Sync,
) -> io::Result<f64> {
    let start = time::now();
    let each = || (0..commits).try_for_each(|_| commit());
    fiber::try_par_for_each(0..fibers, fibers, |_| each())?;
    Ok((fibers * commits) as f64 / (time::now() - start).as_secs_f64())
}

/// Writes to a place of its own, and syncs.
fn with_shared_syncs(path: &Path, fibers: usize, commits: usize) -> io::Result<f64> {
    let (file, end) = (File::create(path)?, AtomicU64::new(0));
    measure(fibers, commits, || {
        let at = end.fetch_add(RECORD.len() as u64, Ordering::Relaxed);
        file.write_all_at(&RECORD, at)?;
        file.sync_data()
    })
}

fn with_a_log(path: &Path, fibers: usize, commits: usize) -> io::Result<f64> {
    let log = Log::open(path, |_, _| Ok(()))?;
    measure(fibers, commits, || log.append(&RECORD).map(drop))
}

/// Makes this number of commits on each fiber, in each round. Returns the median commits per second
/// of one fiber, of fibers that share syncs, and of a log.
fn run(directory: &Path, fibers: usize, commits: usize, rounds: usize) -> io::Result<[f64; 3]> {
    let path = |name: &str| directory.join(format!("commits-{}-{name}", std::process::id()));
    let (one, shared, log) = (path("one"), path("shared"), path("log"));
    let mut rates = [const { Vec::new() }; 3];
    let measured = cringle::run(|| {
        (0..rounds).try_for_each(|_| {
            rates[0].push(with_shared_syncs(&one, 1, commits)?);
            rates[1].push(with_shared_syncs(&shared, fibers, commits)?);
            rates[2].push(with_a_log(&log, fibers, commits)?);
            Ok(())
        })
    });
    for path in [one, shared, log] {
        let _ = std::fs::remove_file(path);
    }
    measured.map(|()| rates.map(median))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| ".".into());
    let mut number =
        |default: usize| match arguments.next().map_or(Ok(default), |text| text.parse()) {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(io::Error::other("usage: commits [DIRECTORY] [FIBERS] [COMMITS] [ROUNDS]")),
        };
    let (fibers, commits, rounds) = (number(64)?, number(200)?, number(11)?);
    let rates = run(Path::new(&directory), fibers, commits, rounds)?;
    let names = [
        "one fiber".into(),
        format!("{fibers} fibers, shared syncs"),
        format!("{fibers} fibers, log"),
    ];
    for (name, rate) in names.iter().zip(rates) {
        println!("{name:<28} {rate:8.0} commits/s, {:.1} x", rate / rates[0]);
    }
    Ok(())
}
