//! `fibers`: queue-depth fibers on each worker, each with the `read_at` loop of `sync`.

use crate::disk::job::{Job, LaneResult, drive};
use crate::disk::plan::Access;
use crate::joined;
use crate::meter::{Party, collect};
use cringle::fiber;
use cringle::fs::File;
use cringle::os::unix::fs::FileExt;
use std::io;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    super::on_workers(job, |worker, party| {
        let file = File::from(job.open()?);
        transfer_by_fibers(job, worker, party, |access, block| transfer(job, &file, access, block))
    })
}

/// Performs the accesses of a worker by queue-depth fibers, each with a loop over its lane.
pub(super) fn transfer_by_fibers(
    job: &Job,
    worker: usize,
    mut party: Party<'_>,
    transfer: impl Fn(&Access, &mut [u8]) -> io::Result<usize>,
) -> io::Result<Vec<LaneResult>> {
    let transfer = &transfer;
    let mut area = job.buffers(job.setting.queue_depth)?;
    fiber::scope(|scope| {
        let start = |(slot, buffer)| {
            let lane = job.plan.lane(worker, job.setting.threads, slot, job.setting.queue_depth);
            scope.spawn_local(move || {
                // Continues when the gate is open.
                fiber::yield_now();
                drive(job, lane, buffer, transfer)
            })
        };
        let fibers: Vec<_> = area.chunks_mut(job.plan.block).enumerate().map(start).collect();
        // Ready fibers run in order, so each is now suspended in its own yield, with its stack
        // touched.
        fiber::yield_now();
        // Blocks the worker, so that no fiber continues before all parties are ready.
        let entered = party.enter();
        if entered.is_err() {
            job.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let results = fibers.into_iter().map(|fiber| joined(fiber.join()));
        let lanes = collect(results);
        drop(party);
        entered.and(lanes)
    })
}

/// Performs an access with the calls of std, which suspend only the calling fiber.
#[inline]
fn transfer(job: &Job, file: &File, access: &Access, block: &mut [u8]) -> io::Result<usize> {
    if !access.write {
        return file.read_at(block, access.offset);
    }
    let written = file.write_at(block, access.offset)?;
    if job.commits() {
        file.sync_data()?;
    }
    Ok(written)
}
