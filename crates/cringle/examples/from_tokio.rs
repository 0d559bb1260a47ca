//! Batches of reads from tokio's tasks: records of a table, read by their positions.
//!
//!     cargo run --example from_tokio -- [TASKS] [READS]
//!
//! starts TASKS (default: 100) tasks, each of which reads READS (default: 50) records.
//!
//! A task that reads a file by `tokio::fs` occupies a thread for each read. Here each task submits
//! all of its reads at once to a [`BlockIo`], whose worker keeps them in flight together, and
//! awaits a future.

use cringle::block::{BlockIo, OwnedBatch};
use cringle::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

const RECORD_BYTES: usize = 64;

/// Creates a table in `directory`, and returns the sum of the records that the tasks have read.
fn run(directory: &Path, tasks: u64, reads_each: u64) -> io::Result<u64> {
    let path = directory.join("table");
    let records = tasks * reads_each;
    std::fs::write(&path, (0..records).flat_map(record).collect::<Vec<u8>>())?;
    let file = Arc::new(File::open(&path)?);
    let io = Arc::new(BlockIo::builder().build()?);

    let tokio = tokio::runtime::Builder::new_multi_thread().build()?;
    let sum = tokio.block_on(async {
        let tasks: Vec<_> = (0..tasks)
            .map(|task| {
                let (io, file) = (Arc::clone(&io), Arc::clone(&file));
                tokio::spawn(async move {
                    let places = (0..reads_each).map(|n| n * tasks + task);
                    sum_of_records(&io, &file, places).await
                })
            })
            .collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.expect("no task panics")?;
        }
        io::Result::Ok(sum)
    })?;
    io.close()?;
    std::fs::remove_file(path)?;
    Ok(sum)
}

/// Reads and sums records. The batch owns the buffers while the kernel uses them, and returns them
/// with the results, so dropping the task during its `await` leaves no dangling buffer.
async fn sum_of_records(
    io: &BlockIo,
    file: &Arc<File>,
    places: impl Iterator<Item = u64>,
) -> io::Result<u64> {
    let mut batch = OwnedBatch::with_capacity(places.size_hint().0);
    for place in places {
        batch.read_exact(file, vec![0; RECORD_BYTES], place * RECORD_BYTES as u64);
    }
    let mut sum = 0;
    for (count, record) in io.submit_async(batch)?.await {
        count?;
        sum += u64::from_le_bytes(record[..8].try_into().expect("eight bytes"));
    }
    Ok(sum)
}

fn record(number: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&number.to_le_bytes());
    record
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse());
    let tasks = number(100).map_err(io::Error::other)?;
    let reads = number(50).map_err(io::Error::other)?;
    let sum = run(&std::env::temp_dir(), tasks, reads)?;
    println!("{tasks} tasks have read {reads} records each: their sum is {sum}");
    Ok(())
}
