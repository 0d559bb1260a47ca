//! Reads random blocks of a file, by the ring and from memory.
//!
//!     cargo run --release --example mapped -- FILE [BATCHES]
//!
//! reads batches of 64 random blocks of 4 KiB of FILE (default: 10,000 batches), as a `File` and as
//! a `MappedFile`, and prints both rates. The more of the file is in memory, the more of the mapped
//! reads are copies without a system call.

use cringle::block::{Batch, MappedFile, SigbusHandler};
use cringle::fs::File;
use fastrand::Rng;
use std::io;
use std::path::Path;
use std::time::Instant;

const BLOCK: usize = 4096;
const BATCH: usize = 64;

/// Returns the blocks per second of the file, and of the mapped file.
fn run(path: &Path, batches: usize) -> io::Result<(f64, f64)> {
    // The program agrees to a handler of SIGBUS, which the process gets if another one truncates
    // the file.
    let handler = SigbusHandler::install()?;
    cringle::Builder::new().workers(1).run(|| {
        let file = File::open(path)?;
        let mapped = MappedFile::new(File::open(path)?, handler)?;
        if let Some(reason) = mapped.unmapped() {
            println!("{}: each read goes to the ring: {reason}", path.display());
        }
        let file_rate = rate(&file, None, batches)?;
        let mapped_rate = rate(&file, Some(&mapped), batches)?;
        println!("File:       {file_rate:10.0} blocks/s");
        println!("MappedFile: {mapped_rate:10.0} blocks/s ({:.1} ×)", mapped_rate / file_rate);
        println!("in memory:  {:10} MiB", mapped.resident_bytes() >> 20);
        Ok((file_rate, mapped_rate))
    })?
}

/// Reads random blocks, of the mapped file if there is one, and returns their number per second.
fn rate(file: &File, mapped: Option<&MappedFile>, batches: usize) -> io::Result<f64> {
    let blocks = (file.metadata()?.len() / BLOCK as u64).max(1);
    let (mut area, mut spare, mut random) =
        (vec![0; BATCH * BLOCK], Batch::new(), Rng::with_seed(1));
    let start = Instant::now();
    for _ in 0..batches {
        let mut batch = spare;
        for block in area.chunks_mut(BLOCK) {
            let offset = random.u64(..blocks) * BLOCK as u64;
            match mapped {
                Some(mapped) => batch.read_mapped(mapped, block, offset),
                None => batch.read(file, block, offset),
            };
        }
        let results = batch.submit();
        results.iter().try_for_each(|count| count.map(drop))?;
        spare = results.recycle();
    }
    Ok((batches * BATCH) as f64 / start.elapsed().as_secs_f64())
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else {
        return Err(io::Error::other("which file? usage: mapped FILE [BATCHES]"));
    };
    let batches = args.next().map_or(Ok(10_000), |text| text.parse()).map_err(io::Error::other)?;
    run(path.as_ref(), batches).map(drop)
}
