//! `low`: the library's ring, without fibers. The submission queue has 64 entries, the completion
//! queue 256. After 64 reads to start with, the loop submits until 96 are in flight, and takes
//! until 64 are. (A loop that always submits 32 has fewer and fewer in flight, because the ring
//! returns all that have completed, and not only the 32 that it waited for.)

use super::{BATCH, BLOCK, FEWER, RoundConfig, ThreadResult, short_read};
use crate::content;
use crate::meter::{Gate, Party};
use cringle::ring::BareRing;
use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

const QUEUE: u32 = 64;
const LEAD_IN: usize = 64;
const MOST: usize = LEAD_IN + BATCH;
const BUFFERS: usize = 256;

pub(super) fn run(config: &RoundConfig<'_>, gate: &Gate) -> io::Result<Vec<ThreadResult>> {
    let order = content::permutation(config.blocks, content::random(config.args.seed));
    let each = order.len().div_ceil(config.args.workers);
    gate.on_threads(config.args.workers, FEWER, |worker, party| {
        let start = (worker * each).min(order.len());
        read_all(config, &order[start..(start + each).min(order.len())], party)
    })
}

fn read_all(
    config: &RoundConfig<'_>,
    part: &[u64],
    mut party: Party<'_>,
) -> io::Result<ThreadResult> {
    let mut reader = Reader::prepare(config, part)?;
    let mut ring = BareRing::new(QUEUE, BUFFERS as u32)?;
    party.enter()?;
    let mut result = reader.start(&mut ring, LEAD_IN);
    while result.is_ok() {
        result = reader.start(&mut ring, MOST - reader.in_flight);
        if reader.in_flight == 0 {
            break;
        }
        // When no block is left to submit, takes the rest.
        let take = match reader.in_flight {
            in_flight @ ..=LEAD_IN => in_flight.min(BATCH),
            in_flight => in_flight - LEAD_IN,
        };
        result = result.and_then(|()| reader.take(&mut ring, take));
    }
    drop(party);
    // Waits for the reads in flight; must happen before `reader` unmaps their memory.
    drop(ring);
    result.map(|()| reader.result)
}

struct Reader<'a> {
    file: File,
    blocks: std::slice::Iter<'a, u64>,
    _area: MmapMut,
    base: *mut u8,
    slots: Vec<(u64, Instant)>,
    free: Vec<usize>,
    in_flight: usize,
    result: ThreadResult,
}

impl<'a> Reader<'a> {
    fn prepare(config: &RoundConfig<'_>, part: &'a [u64]) -> io::Result<Reader<'a>> {
        let mut area = MmapOptions::new().len(BUFFERS * BLOCK).populate().map_anon()?;
        Ok(Reader {
            file: config.open()?,
            blocks: part.iter(),
            base: area.as_mut_ptr(),
            _area: area,
            slots: vec![(0, Instant::now()); BUFFERS],
            free: (0..BUFFERS).rev().collect(),
            in_flight: 0,
            result: ThreadResult { ops: 0, latencies_ns: Vec::with_capacity(part.len()) },
        })
    }

    /// Submits up to `count` reads.
    fn start(&mut self, ring: &mut BareRing, count: usize) -> io::Result<()> {
        let now = Instant::now();
        let mut queued = 0;
        while queued < count && !self.free.is_empty() {
            let Some(&block) = self.blocks.next() else { break };
            let offset = block * BLOCK as u64;
            let Some(slot) = self.free.pop() else { break };
            self.slots[slot] = (offset, now);
            // SAFETY: `area` has a block for each slot.
            let start = unsafe { self.base.add(slot * BLOCK) };
            // SAFETY: only this read uses the slot's bytes until its completion frees the slot, and
            // `read_all` drops the ring, which waits for all reads, before the area.
            unsafe { ring.read(slot, self.file.as_fd(), start, BLOCK as u32, offset) }?;
            self.in_flight += 1;
            queued += 1;
        }
        if queued > 0 {
            ring.submit();
        }
        Ok(())
    }

    /// Takes at least `count` completions.
    fn take(&mut self, ring: &mut BareRing, count: usize) -> io::Result<()> {
        let mut outcome = Ok(());
        ring.wait(count, |slot, result| {
            let (offset, started) = self.slots[slot];
            self.in_flight -= 1;
            self.free.push(slot);
            self.result.ops += 1;
            self.result.latencies_ns.push(started.elapsed().as_nanos() as u64);
            match result {
                Ok(BLOCK) => {}
                Ok(count) => outcome = Err(short_read(count, offset)),
                Err(error) => outcome = Err(error),
            }
        });
        outcome
    }
}
