//! `fibers`: queue-depth fibers on each worker, a `read_at` loop each: the loop of `sync`, line
//! for line, on a fiber instead of a thread.

use crate::disk::job::{Job, LaneResult, drive};
use crate::disk::plan::Access;
use crate::meter::Party;
use cringle::fiber;
use cringle::fs::File;
use cringle::os::unix::fs::FileExt;
use std::io;

pub(super) fn run(job: &Job) -> io::Result<Vec<LaneResult>> {
    on_workers(job, work)
}

/// Runs `work` on one fiber of each worker: the first on this thread, which is worker 0.
pub(super) fn on_workers(
    job: &Job,
    work: fn(&Job, usize, Party<'_>) -> io::Result<Vec<LaneResult>>,
) -> io::Result<Vec<LaneResult>> {
    let pin = job.pinning.on() && job.threads <= job.pinning.cpus().len();
    let runtime = cringle::Builder::new().workers(job.threads).pin(pin);
    let mut parties: Vec<_> = (0..job.threads).map(|_| job.gate.party()).collect();
    runtime.run(move || {
        let mine = parties.swap_remove(0);
        fiber::scope(|scope| {
            let start = |(worker, party)| {
                let place = fiber::Builder::new().worker(worker);
                place.spawn_scoped(scope, move || work(job, worker, party))
            };
            let others: Vec<_> = (1..).zip(parties).map(start).collect();
            let first = work(job, 0, mine);
            let joined = others.into_iter().map(|fiber| {
                fiber?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            super::collect(std::iter::once(first).chain(joined))
        })
    })?
}

fn work(job: &Job, worker: usize, mut party: Party<'_>) -> io::Result<Vec<LaneResult>> {
    let files: Vec<File> = job.open_files()?.into_iter().map(File::from).collect();
    let mut area = job.buffers(job.queue_depth)?;
    fiber::scope(|scope| {
        let start = |(slot, buffer)| {
            let lane = job.plan.lane(worker, job.threads, slot, job.queue_depth);
            let files = &files;
            scope.spawn_local(move || {
                // Until the gate is open.
                fiber::yield_now();
                drive(job, lane, buffer, |access, block| transfer(job, files, access, block))
            })
        };
        let fibers: Vec<_> = area.chunks_mut(job.plan.block).enumerate().map(start).collect();
        // Ready fibers run in order: each is now at its own yield, on a stack it has touched.
        fiber::yield_now();
        // This blocks the worker on purpose: nothing runs before all are ready.
        let entered = party.enter();
        if entered.is_err() {
            job.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let join = |fiber: fiber::ScopedJoinHandle<'_, io::Result<LaneResult>>| {
            fiber.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let lanes =
            fibers.into_iter().map(join).map(|result| result.map(|lane_result| vec![lane_result]));
        let lanes = super::collect(lanes);
        drop(party);
        entered.and(lanes)
    })
}

/// One access: std's calls, which here let the other fibers run.
#[inline]
fn transfer(job: &Job, files: &[File], access: &Access, block: &mut [u8]) -> io::Result<usize> {
    let file = &files[access.file as usize];
    if !access.write {
        return file.read_at(block, access.offset);
    }
    let written = file.write_at(block, access.offset)?;
    if job.commits() {
        file.sync_data()?;
    }
    Ok(written)
}
