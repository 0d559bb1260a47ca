//! tokio, which reads files on its blocking pool. (Its io_uring support requires `tokio_unstable`,
//! and does not read at an offset.)

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

/// One `spawn_blocking(pread)` for each read, which is cheaper than `tokio::fs`.
pub(super) fn blocking(job: &Job) -> (Usage, u64) {
    let file = Arc::new(job.open());
    one_worker().block_on(async {
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
                    let (count, returned) = read.await.expect("no panic");
                    piece = returned;
                    assert_eq!(count.expect("the read succeeds"), block);
                    sum = sum.wrapping_add(head(piece.bytes()));
                }
                sum
            })
        };
        let tasks: Vec<_> = pieces.into_iter().enumerate().map(read_share).collect();
        let mut sum = 0u64;
        for task in tasks {
            sum = sum.wrapping_add(task.await.expect("no panic"));
        }
        finish(meter, sum)
    })
}

/// `tokio::fs::File`: seek, then read. Each task has its own file, because a file has one cursor.
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
                    file.seek(std::io::SeekFrom::Start(offset)).await.expect("the seek succeeds");
                    file.read_exact(piece.bytes_mut()).await.expect("the read succeeds");
                    sum = sum.wrapping_add(head(piece.bytes()));
                }
                sum
            })
        };
        let tasks: Vec<_> = files.into_iter().enumerate().map(read_share).collect();
        let mut sum = 0u64;
        for task in tasks {
            sum = sum.wrapping_add(task.await.expect("no panic"));
        }
        finish(meter, sum)
    })
}
