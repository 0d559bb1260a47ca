//! `high`: the public API. A [`BlockIo`] with batch limit 64 and in-flight limit 256 for each
//! worker, and four submitters for each worker, which read batches of 32 uniformly random blocks
//! into a buffer of 128 KiB each.

use super::{BATCH, BLOCK, FEWER, RoundConfig, ThreadResult, short_read};
use crate::content;
use crate::meter::Gate;
use cringle::block::{AlignedBuf, Batch, BlockIo};
use cringle::fs::File;
use std::io;
use std::time::Instant;

pub(super) const BATCH_LIMIT: u32 = 64;
pub(super) const IN_FLIGHT_LIMIT: u32 = 256;

pub(super) fn run(config: &RoundConfig<'_>, gate: &Gate) -> io::Result<Vec<ThreadResult>> {
    let block_io = BlockIo::builder()
        .workers(config.args.workers)
        .batch_limit(BATCH_LIMIT)
        .in_flight_limit(IN_FLIGHT_LIMIT)
        .build()?;
    let file = File::from(config.open()?);
    let results = gate.on_threads(config.args.submitters(), FEWER, |number, mut party| {
        let mut submitter = Submitter::new(config, &block_io, &file, number);
        party.enter()?;
        submitter.submit_all()
    });
    block_io.close()?;
    results
}

/// Returns the number of batches of each submitter.
pub(super) fn batches(config: &RoundConfig<'_>) -> usize {
    (config.blocks as usize - 1) / (config.args.submitters() * BATCH)
}

/// Returns the offsets of a submitter's reads, in whole batches.
pub(super) fn offsets(config: &RoundConfig<'_>, submitter: usize) -> Vec<u64> {
    let mut rng = content::random(config.args.seed ^ (submitter as u64 + 1) << 32);
    (0..batches(config) * BATCH).map(|_| rng.below(config.blocks) * BLOCK as u64).collect()
}

struct Submitter<'a> {
    block_io: &'a BlockIo,
    file: &'a File,
    offsets: Vec<u64>,
    buffer: AlignedBuf,
    result: ThreadResult,
}

impl<'a> Submitter<'a> {
    fn new(
        config: &RoundConfig<'_>,
        block_io: &'a BlockIo,
        file: &'a File,
        number: usize,
    ) -> Submitter<'a> {
        let offsets = offsets(config, number);
        let mut buffer = AlignedBuf::new(BATCH * BLOCK);
        // Touches every page before the clock starts.
        buffer.fill(1);
        let result =
            ThreadResult { ops: 0, latencies_ns: Vec::with_capacity(offsets.len() / BATCH) };
        Submitter { block_io, file, offsets, buffer, result }
    }

    fn submit_all(&mut self) -> io::Result<ThreadResult> {
        let mut spare = Batch::with_capacity(BATCH);
        for offsets in self.offsets.chunks(BATCH) {
            let mut batch = spare;
            for (offset, block) in offsets.iter().zip(self.buffer.chunks_mut(BLOCK)) {
                batch.read(self.file, block, *offset);
            }
            let started = Instant::now();
            let results = self.block_io.submit(batch)?;
            self.result.latencies_ns.push(started.elapsed().as_nanos() as u64);
            for (offset, result) in offsets.iter().zip(results.iter()) {
                let moved = result?;
                if moved != BLOCK {
                    return Err(short_read(moved, *offset));
                }
            }
            self.result.ops += offsets.len() as u64;
            spare = results.recycle();
        }
        Ok(std::mem::take(&mut self.result))
    }
}
