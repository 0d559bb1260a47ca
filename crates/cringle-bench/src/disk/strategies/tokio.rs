//! `tokio`: queue-depth tasks on tokio's multi-thread runtime.
//!
//! Through the page cache, each task has a `tokio::fs::File` of its own (the cursor cannot be
//! shared), seeks, and then reads or writes. The buffer of that file is not aligned for `O_DIRECT`
//! (`EINVAL`), so with `O_DIRECT` the tasks send each transfer to the blocking pool, as `tokio::fs`
//! does internally.

use super::threads;
use crate::disk::job::{Job, LaneResult, Profile};
use crate::disk::plan::{Access, Lane};
use crate::meter::collect;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::sync::Barrier;

pub(super) fn run(job: &Arc<Job>) -> io::Result<Vec<LaneResult>> {
    let mut party = job.gate.party();
    let tasks = job.setting.queue_depth * job.setting.threads;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(job.setting.threads)
        .max_blocking_threads(tasks)
        .build()?;
    let start = Arc::new(Barrier::new(tasks + 1));
    runtime.block_on(async {
        let spawn = |i: usize| {
            let lane = job.plan.lane(
                i / job.setting.queue_depth,
                job.setting.threads,
                i % job.setting.queue_depth,
                job.setting.queue_depth,
            );
            tokio::spawn(task(Arc::clone(job), lane, Arc::clone(&start)))
        };
        let handles: Vec<_> = (0..tasks).map(spawn).collect();
        start.wait().await;
        let entered = party.enter();
        start.wait().await;
        let mut results = Vec::with_capacity(tasks);
        for handle in handles {
            let ended = handle.await.unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(io::Error::other(error)),
            });
            results.push(ended);
        }
        drop(party);
        entered?;
        collect(results)
    })
}

/// Prepares and runs a task. It reaches both waits of the barrier even after an error, because the
/// other tasks wait for it.
async fn task(job: Arc<Job>, lane: Lane, start: Arc<Barrier>) -> io::Result<LaneResult> {
    let mut prepared = Task::prepare(&job);
    start.wait().await;
    start.wait().await;
    let result = match &mut prepared {
        Ok(task) => task.work(&job, lane).await,
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    };
    result.inspect_err(|_| job.stop.store(true, Relaxed))
}

struct Task {
    file: File,
    buffer: Option<memmap2::MmapMut>,
}

enum File {
    Tokio(tokio::fs::File),
    /// For transfers on the blocking pool.
    Std(Arc<std::fs::File>),
}

impl Task {
    fn prepare(job: &Job) -> io::Result<Task> {
        let file = job.open()?;
        let file = match job.setting.profile {
            Profile::Direct => File::Std(Arc::new(file)),
            _ => File::Tokio(tokio::fs::File::from_std(file)),
        };
        Ok(Task { file, buffer: Some(job.buffers(1)?) })
    }

    async fn work(&mut self, job: &Arc<Job>, lane: Lane) -> io::Result<LaneResult> {
        let mut lane_result = LaneResult::new(lane.clone());
        for index in lane {
            if job.is_stopped() {
                break;
            }
            let access = job.access(index);
            // Each transfer owns the buffer and returns it.
            let mut buffer = self.buffer.take().expect("the last transfer returned the buffer");
            if access.write {
                job.stamp(&mut buffer, &access);
            }
            let started = job.sampling.takes(index).then(Instant::now);
            let (moved, buffer) = self.transfer(job, access, buffer).await;
            if let Some(started) = started {
                lane_result.time(started);
            }
            let moved = moved?;
            if moved != buffer.len() {
                return Err(job.short(&access, moved));
            }
            lane_result.add(&buffer, &access);
            self.buffer = Some(buffer);
        }
        Ok(lane_result)
    }

    async fn transfer(
        &mut self,
        job: &Arc<Job>,
        access: Access,
        mut buffer: memmap2::MmapMut,
    ) -> (io::Result<usize>, memmap2::MmapMut) {
        match &mut self.file {
            File::Tokio(file) => (transfer_by_file(job, file, access, &mut buffer).await, buffer),
            File::Std(file) => {
                let (job, file) = (Arc::clone(job), Arc::clone(file));
                let call = move || {
                    let moved = threads::transfer(&job, &file, &access, &mut buffer);
                    (moved, buffer)
                };
                match tokio::task::spawn_blocking(call).await {
                    Ok(done) => done,
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                }
            }
        }
    }
}

async fn transfer_by_file(
    job: &Job,
    file: &mut tokio::fs::File,
    access: Access,
    block: &mut [u8],
) -> io::Result<usize> {
    file.seek(io::SeekFrom::Start(access.offset)).await?;
    if access.write {
        file.write_all(block).await?;
        // `write_all` returns when the bytes are in tokio's own buffer.
        file.flush().await?;
        if job.commits() {
            file.sync_data().await?;
        }
        return Ok(block.len());
    }
    file.read_exact(block).await
}
