//! `high`: the public API. A [`BlockIo`] with batch limit 64 and in-flight limit 256 for each
//! worker, and four submitters for each worker, which read batches of 32 uniformly random blocks
//! into a buffer of 128 KiB each.

use super::{BATCH, BLOCK, FEWER, RoundConfig, ThreadResult, short_read};
use crate::content;
use crate::meter::{Gate, Party};
use cringle::block::{AlignedBuf, Batch, BlockIo};
use cringle::fs::File;
use std::io;
use std::time::{Duration, Instant};

pub(super) const BATCH_LIMIT: u32 = 64;
pub(super) const IN_FLIGHT_LIMIT: u32 = 256;

pub(super) fn run(config: &RoundConfig<'_>, gate: &Gate) -> io::Result<Vec<ThreadResult>> {
    let block_io = BlockIo::builder()
        .workers(config.args.workers)
        .batch_limit(BATCH_LIMIT)
        .in_flight_limit(IN_FLIGHT_LIMIT)
        .build()?;
    let file = File::from(config.open()?);
    let results = gate.on_threads(config.args.submitters(), FEWER, |number, party| {
        let (mut buffer, mut spare) = (touched_buffer(), Batch::with_capacity(BATCH));
        submit_all(config, number, party, |offsets| {
            let mut batch = std::mem::take(&mut spare);
            for (offset, block) in offsets.iter().zip(buffer.chunks_mut(BLOCK)) {
                batch.read(&file, block, *offset);
            }
            let started = Instant::now();
            let results = block_io.submit(batch)?;
            let elapsed = started.elapsed();
            for (offset, result) in offsets.iter().zip(results.iter()) {
                let moved = result?;
                if moved != BLOCK {
                    return Err(short_read(moved, *offset));
                }
            }
            spare = results.recycle();
            Ok(elapsed)
        })
    });
    block_io.close()?;
    results
}

/// Returns a buffer for a batch. Touches every page before the clock starts.
pub(super) fn touched_buffer() -> AlignedBuf {
    let mut buffer = AlignedBuf::new(BATCH * BLOCK);
    buffer.fill(1);
    buffer
}

/// Performs the batches of a submitter. `submit` performs a batch of reads at these offsets, checks
/// their results, and returns the time of the call.
pub(super) fn submit_all(
    config: &RoundConfig<'_>,
    submitter: usize,
    mut party: Party<'_>,
    mut submit: impl FnMut(&[u64]) -> io::Result<Duration>,
) -> io::Result<ThreadResult> {
    let mut rng = content::random(config.args.seed ^ (submitter as u64 + 1) << 32);
    let count = batches(config);
    let offsets: Vec<u64> =
        (0..count * BATCH).map(|_| rng.below(config.blocks) * BLOCK as u64).collect();
    let mut result = ThreadResult { ops: 0, latencies_ns: Vec::with_capacity(count) };
    party.enter()?;
    for offsets in offsets.chunks(BATCH) {
        result.latencies_ns.push(submit(offsets)?.as_nanos() as u64);
        result.ops += offsets.len() as u64;
    }
    Ok(result)
}

/// Returns the number of batches of each submitter.
pub(super) fn batches(config: &RoundConfig<'_>) -> usize {
    (config.blocks as usize - 1) / (config.args.submitters() * BATCH)
}
