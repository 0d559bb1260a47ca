//! `low`: the ring itself. Submission queue 64, completion queue 256; 64 reads lead in, then
//! 32 are submitted and 32 taken, so that 64 to 96 are in flight.

use super::{BATCH, BLOCK, Setting, Share, short_read};
use crate::bench::content::Rng;
use crate::bench::meter::{Gate, Party};
use crate::bench::strategies::ring;
use io_uring::{IoUring, opcode, types};
use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

const QUEUE: usize = 64;
const COMPLETIONS: usize = 256;
const BUFFERS: usize = 256;

pub(super) fn run(setting: &Setting, gate: &Gate) -> io::Result<Vec<Share>> {
    let order = Rng::new(setting.seed).permutation(setting.blocks);
    let each = order.len().div_ceil(setting.workers);
    let parts = (0..setting.workers).map(|worker| {
        let start = (worker * each).min(order.len());
        &order[start..(start + each).min(order.len())]
    });
    std::thread::scope(|scope| {
        let start = |(worker, part)| {
            let party = gate.party();
            scope.spawn(move || {
                setting.pinning.pin(worker, setting.workers)?;
                read_all(setting, part, party)
            })
        };
        let threads: Vec<_> = parts.enumerate().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

fn read_all(setting: &Setting, part: &[u64], mut party: Party<'_>) -> io::Result<Share> {
    let mut reader = Reader::prepare(setting, part)?;
    let mut ring = ring::build_with(QUEUE, COMPLETIONS)?;
    party.enter()?;
    let mut result = reader.start(&mut ring, QUEUE);
    while result.is_ok() && reader.in_flight > 0 {
        // At the end there is nothing more to submit, and the rest is taken.
        let take = BATCH.min(reader.in_flight);
        result = reader.start(&mut ring, BATCH).and_then(|()| reader.take(&mut ring, take));
    }
    drop(party);
    if result.is_err() {
        reader.abandon(&mut ring);
    }
    result.map(|()| reader.share)
}

struct Reader<'a> {
    file: File,
    blocks: std::slice::Iter<'a, u64>,
    area: MmapMut,
    base: *mut u8,
    slots: Vec<(u64, Instant)>,
    free: Vec<usize>,
    in_flight: usize,
    share: Share,
}

impl<'a> Reader<'a> {
    fn prepare(setting: &Setting, part: &'a [u64]) -> io::Result<Reader<'a>> {
        let mut area = MmapOptions::new().len(BUFFERS * BLOCK).populate().map_anon()?;
        Ok(Reader {
            file: setting.open()?,
            blocks: part.iter(),
            base: area.as_mut_ptr(),
            area,
            slots: vec![(0, Instant::now()); BUFFERS],
            free: (0..BUFFERS).rev().collect(),
            in_flight: 0,
            share: Share { ops: 0, latencies_ns: Vec::with_capacity(part.len()) },
        })
    }

    /// Submits up to `count` reads.
    fn start(&mut self, ring: &mut IoUring, count: usize) -> io::Result<()> {
        let now = Instant::now();
        let mut queued = 0;
        while queued < count && !self.free.is_empty() {
            let Some(&block) = self.blocks.next() else { break };
            let offset = block * BLOCK as u64;
            let Some(slot) = self.free.pop() else { break };
            self.slots[slot] = (offset, now);
            // SAFETY: `area` has a block for each slot.
            let place = unsafe { self.base.add(slot * BLOCK) };
            let read = opcode::Read::new(types::Fd(self.file.as_raw_fd()), place, BLOCK as u32)
                .offset(offset)
                .build()
                .user_data(slot as u64);
            // SAFETY: the slot's bytes belong to this read alone until its completion gives
            // the slot back, and `read_all` waits for all or gives the area away for good.
            unsafe { ring.submission().push(&read) }.map_err(io::Error::other)?;
            self.in_flight += 1;
            queued += 1;
        }
        if queued > 0 {
            ring.submit()?;
        }
        Ok(())
    }

    /// Takes `count` completions.
    fn take(&mut self, ring: &mut IoUring, count: usize) -> io::Result<()> {
        let mut taken = 0;
        while taken < count {
            match ring.submit_and_wait(count - taken) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let now = Instant::now();
            for entry in ring.completion().take(count - taken) {
                let slot = entry.user_data() as usize;
                let (offset, started) = self.slots[slot];
                self.in_flight -= 1;
                self.free.push(slot);
                taken += 1;
                self.share.ops += 1;
                self.share.latencies_ns.push((now - started).as_nanos() as u64);
                match entry.result() {
                    n if n == BLOCK as i32 => {}
                    n if n < 0 => return Err(io::Error::from_raw_os_error(-n)),
                    n => return Err(short_read(n as usize, offset)),
                }
            }
        }
        Ok(())
    }

    /// After an error: waits for what is in flight, else leaves its memory alone for good.
    fn abandon(&mut self, ring: &mut IoUring) {
        while self.in_flight > 0 {
            if ring.submit_and_wait(1).is_err() {
                let area = std::mem::replace(&mut self.area, empty());
                std::mem::forget(area);
                return;
            }
            self.in_flight -= ring.completion().count();
        }
    }
}

fn empty() -> MmapMut {
    MmapMut::map_anon(1).expect("a page of memory can be mapped")
}
