//! The example `random` of the library with tokio, to compare the lines: see `benches/lines`.

use futures_util::{StreamExt, TryStreamExt, stream};
use std::fs::OpenOptions;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

const BLOCK: usize = 4096;

#[repr(align(4096))]
struct Block([u8; BLOCK]);

#[tokio::main]
async fn run(path: &Path, reads: u64, depth: usize, out: &mut dyn Write) -> io::Result<()> {
    let start = Instant::now();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let (blocks, file) = (file.metadata()?.len() / BLOCK as u64, Arc::new(file));
    let read = |n| {
        let file = Arc::clone(&file);
        let read = spawn_blocking(move || {
            let mut block = Box::new(Block([0; BLOCK]));
            let start = Instant::now();
            file.read_exact_at(&mut block.0, random(n, blocks) * BLOCK as u64)?;
            io::Result::Ok(start.elapsed())
        });
        async { read.await? }
    };
    let times = stream::iter(0..reads).map(read).buffer_unordered(depth).try_collect().await?;
    report(times, start.elapsed(), out)
}

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
