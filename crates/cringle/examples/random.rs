//! Reads random blocks of 4 KiB of a file without the page cache, DEPTH at a time.
//!
//!     cargo run --release --example random -- FILE [READS] [DEPTH]
//!
//! prints the reads per second, and the percentiles of the time of a read.

use cringle::block::AlignedBuf;
use cringle::fiber;
use cringle::fs::{Direct, OpenOptions};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

/// Reads, and writes the lines to `out`.
fn run(path: &Path, reads: u64, depth: usize, out: &mut dyn Write) -> io::Result<()> {
    let start = Instant::now();
    let times = cringle::run(|| {
        let file = OpenOptions::new().read(true).direct(Direct::Aligned).open(path)?;
        let blocks = file.metadata()?.len() / BLOCK as u64;
        fiber::try_par_map(0..reads, depth, |n| {
            let mut block = AlignedBuf::new(BLOCK);
            let start = Instant::now();
            file.read_exact_at(&mut block, random(n, blocks) * BLOCK as u64)?;
            io::Result::Ok(start.elapsed())
        })
    })?;
    report(times, start.elapsed(), out)
}

/// Returns the n-th of numbers below `limit` that are as good as random.
fn random(n: u64, limit: u64) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(n) % limit.max(1)
}

fn report(mut times: Vec<Duration>, took: Duration, out: &mut dyn Write) -> io::Result<()> {
    times.sort();
    writeln!(out, "{:.0} reads/s", times.len() as f64 / took.as_secs_f64())?;
    for percent in [50.0, 99.0, 99.9] {
        let index = (times.len() as f64 * percent / 100.0) as usize;
        let time = times.get(index).or(times.last()).copied().unwrap_or_default();
        writeln!(out, "p{percent}: {time:.1?}")?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize, default| args.get(n).map_or(Ok(default), |text| text.parse());
    let reads = number(1, 100_000).map_err(io::Error::other)?;
    let depth = number(2, 32).map_err(io::Error::other)?;
    let path = args.first().ok_or(io::Error::other("usage: random FILE [READS] [DEPTH]"))?;
    run(path.as_ref(), reads as u64, depth, &mut io::stdout().lock())
}
