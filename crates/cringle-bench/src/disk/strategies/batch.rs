//! `batch`: submits a [`Batch`] of queue-depth operations, waits for it, and repeats. This is how a
//! program reads that knows many offsets in advance, such as an index lookup or a scrub.
//!
//! In the `wal` profile a batch is a group commit: its appends, followed by one sync.

use crate::disk::job::{Job, LaneResult};
use crate::disk::plan::{Access, Lane};
use crate::meter::Party;
use cringle::block::{Batch, BlockIo, FixedBufs, FixedFile, Results};
use cringle::fs::File;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    if job.iopoll {
        return polled(job);
    }
    super::on_workers(job, |worker, party| {
        work(job, worker, party, &|batch: Batch<'_>| Ok(batch.submit()))
    })
}

/// Uses a [`BlockIo`] with a worker for each thread, which can poll the device for completions.
fn polled(job: &Job) -> io::Result<Vec<LaneResult>> {
    let depth = job.setting.queue_depth as u32;
    let builder = BlockIo::builder().workers(job.setting.threads);
    let block_io = builder.batch_limit(depth).in_flight_limit(depth).iopoll(true).build()?;
    let submit = |batch: Batch<'_>| block_io.submit(batch);
    super::on_threads(job, |thread, party| work(job, thread, party, &submit))
}

/// Performs a batch and waits for it.
type Submit<'a> = dyn Fn(Batch<'_>) -> io::Result<Results> + 'a;

fn work(
    job: &Job,
    worker: usize,
    mut party: Party<'_>,
    submit: &Submit<'_>,
) -> io::Result<Vec<LaneResult>> {
    let lane = job.plan.lane(worker, job.setting.threads, 0, 1);
    let file = File::from(job.open()?);
    let mut rounds = Rounds::new(job, lane);
    let result = if job.setting.fixed {
        registered(&mut rounds, &file, &mut party)
    } else {
        plain(&mut rounds, &file, &mut party, submit)
    };
    drop(party);
    result.inspect_err(|_| job.stop.store(true, Relaxed))?;
    Ok(vec![rounds.lane_result])
}

fn plain(
    rounds: &mut Rounds<'_>,
    file: &File,
    party: &mut Party<'_>,
    submit: &Submit<'_>,
) -> io::Result<()> {
    let job = rounds.job;
    let mut area = job.buffers(job.setting.queue_depth)?;
    let mut spare = Batch::with_capacity(job.setting.queue_depth);
    party.enter()?;
    while rounds.next() {
        let mut batch = spare;
        for (access, block) in rounds.accesses.iter().zip(area.chunks_mut(job.plan.block)) {
            if access.write {
                job.stamp(block, access);
                batch.write(file, block, access.offset);
            } else {
                batch.read(file, block, access.offset);
            }
        }
        let results = submit(batch)?;
        if job.commits() {
            file.sync_data()?;
        }
        rounds.finish(&results, area.chunks(job.plan.block))?;
        spare = results.recycle();
    }
    Ok(())
}

fn registered(rounds: &mut Rounds<'_>, file: &File, party: &mut Party<'_>) -> io::Result<()> {
    let job = rounds.job;
    let file = FixedFile::register(file)?;
    let mut area = FixedBufs::new(job.setting.queue_depth, job.plan.block)?;
    let mut spare = Batch::with_capacity(job.setting.queue_depth);
    party.enter()?;
    while rounds.next() {
        let mut batch = spare;
        for (access, block) in rounds.accesses.iter().zip(area.iter_mut()) {
            if access.write {
                job.stamp(block, access);
                batch.write_fixed(&file, block, access.offset);
            } else {
                batch.read_fixed(&file, block, access.offset);
            }
        }
        let results = batch.submit();
        rounds.finish(&results, area.iter().map(|block| &block[..]))?;
        spare = results.recycle();
    }
    Ok(())
}

/// The batches of a lane, one after another.
struct Rounds<'a> {
    job: &'a Job,
    lane: Lane,
    lane_result: LaneResult,
    /// The accesses of the current batch.
    accesses: Vec<Access>,
    /// The number of accesses that are timed. The latency of each is that of the batch.
    sampled: usize,
    started: Option<Instant>,
}

impl<'a> Rounds<'a> {
    fn new(job: &'a Job, lane: Lane) -> Rounds<'a> {
        Rounds {
            job,
            lane_result: LaneResult::new(lane.clone()),
            lane,
            accesses: Vec::with_capacity(job.setting.queue_depth),
            sampled: 0,
            started: None,
        }
    }

    /// Takes the accesses of the next batch. Returns `false` if none is left.
    fn next(&mut self) -> bool {
        self.accesses.clear();
        self.sampled = 0;
        if self.job.is_stopped() {
            return false;
        }
        for index in self.lane.by_ref().take(self.job.setting.queue_depth) {
            self.accesses.push(self.job.access(index));
            self.sampled += usize::from(self.job.sampling.takes(index));
        }
        self.started = (self.sampled > 0).then(Instant::now);
        !self.accesses.is_empty()
    }

    fn finish<'b>(
        &mut self,
        results: &Results,
        blocks: impl Iterator<Item = &'b [u8]>,
    ) -> io::Result<()> {
        if let Some(started) = self.started {
            let elapsed = started.elapsed().as_nanos() as u64;
            self.lane_result.latencies_ns.extend(std::iter::repeat_n(elapsed, self.sampled));
        }
        for ((access, result), block) in self.accesses.iter().zip(results.iter()).zip(blocks) {
            let moved = result?;
            if moved != self.job.plan.block {
                return Err(self.job.short(access, moved));
            }
            self.lane_result.add(block, access);
        }
        Ok(())
    }
}
