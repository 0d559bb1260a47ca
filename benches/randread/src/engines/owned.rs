//! The reads of runtimes that take the buffer by value and return it.

/// Reads by `depth` local tasks, each with its own block.
macro_rules! read_by_local_tasks {
    ($job:expr, $file:expr, $spawn:path, $joined:expr) => {{
        let job: &$crate::job::Job = $job;
        let file = std::rc::Rc::new($file);
        let pieces = job.pieces();
        let meter = common::clock::Meter::start();
        let read_share = |(index, mut piece): (usize, $crate::piece::Piece)| {
            let file = std::rc::Rc::clone(&file);
            let (offsets, block) = (job.own_share(index), job.block());
            $spawn(async move {
                let mut sum = 0u64;
                for offset in offsets.iter() {
                    let (count, returned) = file.read_at(piece, offset).await.into();
                    piece = returned;
                    assert_eq!(count.expect("the read succeeds"), block);
                    sum = sum.wrapping_add(common::plan::head(piece.bytes()));
                }
                sum
            })
        };
        let tasks: Vec<_> = pieces.into_iter().enumerate().map(read_share).collect();
        let mut sum = 0u64;
        for task in tasks {
            sum = sum.wrapping_add($joined(task.await));
        }
        $crate::job::finish(meter, sum)
    }};
}

pub(super) use read_by_local_tasks;

/// Returns the fastest settings of a ring that tokio-uring and monoio support.
pub(super) fn tuned(deferred: bool) -> io_uring06::Builder {
    let mut builder = io_uring06::IoUring::builder();
    builder.setup_single_issuer();
    if deferred {
        builder.setup_defer_taskrun();
    } else {
        builder.setup_coop_taskrun();
    }
    builder
}
