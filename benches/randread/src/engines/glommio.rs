//! glommio, which allocates a buffer for each read.

use crate::job::{Job, finish};
use common::clock::{Meter, Usage};
use common::plan::head;
use glommio::{LocalExecutorBuilder, Placement, io};
use std::rc::Rc;

macro_rules! read_by_local_tasks {
    ($job:expr, $file:expr, $read:ident) => {{
        let job: &Job = $job;
        let file = Rc::new($file);
        let meter = Meter::start();
        let read_share = |index| {
            let file = Rc::clone(&file);
            let (offsets, block) = (job.own_share(index), job.block());
            let task = glommio::spawn_local(async move {
                let mut sum = 0u64;
                for offset in offsets.iter() {
                    let bytes = file.$read(offset, block).await.expect("the read succeeds");
                    assert_eq!(bytes.len(), block);
                    sum = sum.wrapping_add(head(&bytes));
                }
                sum
            });
            task.detach()
        };
        let tasks: Vec<_> = (0..job.depth()).map(read_share).collect();
        let mut sum = 0u64;
        for task in tasks {
            sum = sum.wrapping_add(task.await.expect("no panic"));
        }
        finish(meter, sum)
    }};
}

pub(super) fn run(job: &Job) -> (Usage, u64) {
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .ring_depth(job.depth().next_power_of_two().max(128))
        .make()
        .expect("an executor");
    let path = &job.task.file;
    executor.run(async {
        if job.task.direct {
            let file = io::DmaFile::open(path).await.expect("the file can be opened");
            read_by_local_tasks!(job, file, read_at_aligned)
        } else {
            let file = io::BufferedFile::open(path).await.expect("the file can be opened");
            read_by_local_tasks!(job, file, read_at)
        }
    })
}
