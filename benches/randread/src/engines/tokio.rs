//! tokio: by its blocking pool, which is how it reads files. (Its own use of io_uring is behind
//! `tokio_unstable`, and does not read at an offset.)

use crate::job::{Job, finish};
use crate::piece::Piece;
use common::clock::{Meter, Usage};
use common::plan::head;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::runtime::{Builder, Runtime};

fn one_worker() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

/// One `spawn_blocking(pread)` for each read: what `tokio::fs` does inside, done the cheap way.
pub(super) fn blocking(job: &Job) -> (Usage, u64) {
    by_pool(job, one_worker())
}

pub(super) fn blocking_two_workers(job: &Job) -> (Usage, u64) {
    by_pool(job, two_workers())
}

fn by_pool(job: &Job, runtime: Runtime) -> (Usage, u64) {
    let file = Arc::new(job.open());
    runtime.block_on(async {
        let pieces = job.pieces();
        let meter = Meter::start();
        let read_share = |(index, mut piece): (usize, Piece)| {
            let (file, offsets, block) = (Arc::clone(&file), job.own_share(index), job.block());
            tokio::spawn(async move {
                let mut sum = 0u64;
                for offset in offsets.iter() {
                    let file = Arc::clone(&file);
                    let read = tokio::task::spawn_blocking(move || {
                        let count = file.read_at(piece.bytes_mut(), offset);
                        (count, piece)
                    });
                    let (count, back) = read.await.expect("it does not panic");
                    piece = back;
                    assert_eq!(count.expect("it reads"), block);
                    sum = sum.wrapping_add(head(piece.bytes()));
                }
                sum
            })
        };
        let tasks: Vec<_> = pieces.into_iter().enumerate().map(read_share).collect();
        let mut sum = 0u64;
        for task in tasks {
            sum = sum.wrapping_add(task.await.expect("it does not panic"));
        }
        finish(meter, sum)
    })
}

/// `tokio::fs::File`, one for each task, since it has a cursor: seek, then read.
pub(super) fn files(job: &Job) -> (Usage, u64) {
    one_worker().block_on(async {
        let open = |piece| (tokio::fs::File::from_std(job.open()), piece);
        let files: Vec<_> = job.pieces().into_iter().map(open).collect();
        let meter = Meter::start();
        let read_share = |(index, (mut file, mut piece)): (usize, (tokio::fs::File, Piece))| {
            let offsets = job.own_share(index);
            file.set_max_buf_size(job.block());
            tokio::spawn(async move {
                let mut sum = 0u64;
                for offset in offsets.iter() {
                    file.seek(std::io::SeekFrom::Start(offset)).await.expect("it seeks");
                    file.read_exact(piece.bytes_mut()).await.expect("it reads");
                    sum = sum.wrapping_add(head(piece.bytes()));
                }
                sum
            })
        };
        let tasks: Vec<_> = files.into_iter().enumerate().map(read_share).collect();
        let mut sum = 0u64;
        for task in tasks {
            sum = sum.wrapping_add(task.await.expect("it does not panic"));
        }
        finish(meter, sum)
    })
}
