//! Copies a file with many blocks in flight.
//!
//!     cargo run --release --example copy -- FROM TO [BLOCKS]
//!
//! Each round reads up to BLOCKS (default: 32) blocks of 256 KiB in one batch, and writes them in
//! another, so the disk can order that many requests. Holes are not preserved.

use cringle::{block::Batch, fs::File};
use std::io;
use std::path::Path;

const BLOCK_BYTES: usize = 256 * 1024;

/// Copies `from` to `to`, and returns the number of bytes.
fn run(from: &Path, to: &Path, blocks: usize) -> io::Result<u64> {
    // One fiber on one worker is enough: the batch provides the parallelism.
    cringle::Builder::new().workers(1).run(|| {
        let source = File::open(from)?;
        let target = File::create(to)?;
        let mut buf = vec![0; blocks.max(1) * BLOCK_BYTES];
        // All batches reuse the memory of the first one.
        let mut spare = Batch::new();
        let mut done = 0;
        loop {
            let mut reads = spare;
            for (block, at) in buf.chunks_mut(BLOCK_BYTES).zip(offsets(done)) {
                reads.read(&source, block, at);
            }
            let results = reads.submit();
            let mut counts = Vec::with_capacity(blocks);
            for count in results.iter() {
                counts.push(count?);
            }

            let mut writes = results.recycle();
            for ((block, at), &count) in buf.chunks(BLOCK_BYTES).zip(offsets(done)).zip(&counts) {
                writes.write_all(&target, &block[..count], at);
            }
            let results = writes.submit();
            for count in results.iter() {
                count?;
            }
            spare = results.recycle();

            // A short block is the end of the file, unless the file's length has changed meanwhile:
            // the next round continues behind it.
            let whole = counts.iter().take_while(|&&count| count == BLOCK_BYTES).count();
            let tail = counts.get(whole).copied().unwrap_or(0);
            let round = (whole * BLOCK_BYTES + tail) as u64;
            done += round;
            if round == 0 {
                break;
            }
        }
        // The source may have been truncated during the last round.
        target.set_len(done)?;
        target.sync_all()?;
        target.close()?;
        Ok(done)
    })?
}

/// Returns the offsets of the blocks of a round that begins at `start`.
fn offsets(start: u64) -> impl Iterator<Item = u64> {
    (start..).step_by(BLOCK_BYTES)
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ([from, to] | [from, to, _]) = args.as_slice() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: copy FROM TO [BLOCKS]"));
    };
    let blocks = args.get(2).map_or(Ok(32), |text| text.parse()).map_err(io::Error::other)?;
    let bytes = run(from.as_ref(), to.as_ref(), blocks)?;
    println!("{bytes} bytes");
    Ok(())
}
