//! `BlockIo` with polled completions, on devices with and without polled queues.
//!
//! With `CRINGLE_POLL_QUEUES=required`, which the machines of `cargo xtask kernels` set, a device
//! without such queues is a failure.

use cringle::block::{AlignedBuf, Batch, BlockIo, OwnedBatch, Polling};
use cringle::fs::{File, OpenOptions};
use cringle_testing::disk::{self, directory, pattern};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, mpsc};

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;

struct Direct {
    file: Arc<File>,
    bytes: Vec<u8>,
    _directory: tempfile::TempDir,
}

impl Direct {
    fn new() -> Direct {
        let directory = directory();
        let path = directory.path().join("file");
        let bytes = pattern(BLOCKS * BLOCK);
        std::fs::write(&path, &bytes).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
        Direct { file: Arc::new(file), bytes, _directory: directory }
    }

    fn block(&self, at: usize) -> &[u8] {
        &self.bytes[at * BLOCK..][..BLOCK]
    }
}

fn polling() -> BlockIo {
    BlockIo::builder().iopoll(true).build().unwrap()
}

fn buffers(count: usize) -> Vec<AlignedBuf> {
    (0..count).map(|_| AlignedBuf::new(BLOCK)).collect()
}

/// Whether the disk of the tests can be polled. Prints the reason if not.
fn has_queues(file: &File) -> bool {
    let polling = Polling::of(file).unwrap();
    let polls = matches!(polling, Polling::Polled(_));
    let required = std::env::var_os("CRINGLE_POLL_QUEUES").is_some_and(|word| word == "required");
    assert!(polls || !required, "{polling}");
    if !polls {
        println!("skipped: {polling}");
    }
    polls
}

#[test]
fn polled_batch_reads_the_file() {
    let direct = Direct::new();
    let io = polling();
    let mut read = buffers(BLOCKS);
    let mut batch = Batch::new();
    for (at, block) in read.iter_mut().enumerate() {
        batch.read_exact(&direct.file, block, (at * BLOCK) as u64);
    }
    for result in io.submit(batch).unwrap() {
        assert_eq!(result.unwrap(), BLOCK);
    }
    for (at, block) in read.iter().enumerate() {
        assert_eq!(&block[..], direct.block(at), "block {at}");
    }
    io.close().unwrap();
}

#[test]
fn polled_batch_writes_the_file() {
    let direct = Direct::new();
    let io = polling();
    let mut written = buffers(BLOCKS);
    for (at, block) in written.iter_mut().enumerate() {
        block.copy_from_slice(direct.block(BLOCKS - 1 - at));
    }
    let mut batch = Batch::new();
    for (at, block) in written.iter().enumerate() {
        batch.write_all(&direct.file, block, (at * BLOCK) as u64);
    }
    io.submit(batch).unwrap().iter().for_each(|result| assert_eq!(result.unwrap(), BLOCK));
    let mut read = buffers(1);
    for (at, block) in written.iter().enumerate() {
        let mut batch = Batch::new();
        batch.read(&direct.file, &mut read[0], (at * BLOCK) as u64);
        assert_eq!(io.submit(batch).unwrap().iter().next().unwrap().unwrap(), BLOCK);
        assert_eq!(read[0][..], block[..], "block {at}");
    }
}

/// More operations than the queues hold, from several threads, with buffered reads among them.
#[test]
fn polled_and_other_files_share_a_worker() {
    let direct = Direct::new();
    let io = BlockIo::builder().iopoll(true).batch_limit(4).in_flight_limit(8).build().unwrap();
    let exe = File::open("/proc/self/exe").unwrap();
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut read = buffers(BLOCKS);
                let mut magic = [[0; 4]; BLOCKS];
                let mut batch = Batch::new();
                for (at, (block, magic)) in read.iter_mut().zip(&mut magic).enumerate() {
                    batch.read(&direct.file, block, (at * BLOCK) as u64);
                    batch.read(&exe, magic, 0);
                }
                let results = io.submit(batch).unwrap();
                results.iter().for_each(|result| assert!(result.unwrap() > 0));
                for (at, block) in read.iter().enumerate() {
                    assert_eq!(&block[..], direct.block(at));
                }
                assert!(magic.iter().all(|magic| magic == b"\x7fELF"));
            });
        }
    });
}

/// A batch from outside wakes a worker that polls.
#[test]
fn batches_arrive_while_others_are_polled() {
    let direct = Direct::new();
    let io = polling();
    let (tell, told) = mpsc::channel();
    for at in 0..BLOCKS {
        let mut batch = OwnedBatch::new();
        batch.read(&direct.file, AlignedBuf::new(BLOCK), (at * BLOCK) as u64);
        let tell = tell.clone();
        io.submit_then(batch, move |results| {
            let (result, block) = results.into_iter().next().unwrap();
            tell.send((at, result.unwrap(), block)).unwrap();
        })
        .unwrap();
    }
    for (at, count, block) in told.iter().take(BLOCKS) {
        assert_eq!((count, &block[..]), (BLOCK, direct.block(at)));
    }
}

#[test]
fn refused_operation_has_its_error() {
    if !disk::refuses_misaligned_reads() {
        return eprintln!("skipped: the file system performs misaligned direct reads");
    }
    let direct = Direct::new();
    let io = polling();
    let mut block = AlignedBuf::new(BLOCK);
    let mut batch = Batch::new();
    batch.read(&direct.file, &mut block[..BLOCK - 1], 0);
    let error = io.submit(batch).unwrap().into_iter().next().unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("4095"), "{error}");
}

/// Returns the number of interrupts of the NVMe disks.
fn interrupts() -> u64 {
    let table = std::fs::read_to_string("/proc/interrupts").unwrap();
    let counts = |line: &str| -> u64 {
        line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum()
    };
    table.lines().filter(|line| line.contains("nvme")).map(counts).sum()
}

fn read_one_by_one(io: &BlockIo, direct: &Direct, times: usize) -> u64 {
    let before = interrupts();
    let mut block = AlignedBuf::new(BLOCK);
    for at in 0..times {
        let mut batch = Batch::new();
        batch.read_exact(&direct.file, &mut block, (at % BLOCKS * BLOCK) as u64);
        assert_eq!(io.submit(batch).unwrap().iter().next().unwrap().unwrap(), BLOCK);
    }
    interrupts() - before
}

#[test]
fn polled_completions_raise_no_interrupt() {
    const READS: usize = 1000;
    let direct = Direct::new();
    if !has_queues(&direct.file) {
        return;
    }
    let interrupting = BlockIo::builder().build().unwrap();
    let with = read_one_by_one(&interrupting, &direct, READS);
    let without = read_one_by_one(&polling(), &direct, READS);
    // The journal and other tests cause a few interrupts.
    assert!(without < with / 2 && with >= READS as u64, "{without} polled, {with} not");
}

#[test]
fn polling_explains_why_a_file_is_not_polled() {
    let exe = File::open("/proc/self/exe").unwrap();
    assert!(Polling::of(&exe).unwrap().to_string().contains("O_DIRECT"));
    let direct = Direct::new();
    match Polling::of(&*direct.file).unwrap() {
        Polling::Polled(name) | Polling::NoQueues(name) => {
            let queue = format!("/sys/block/{name}/queue/io_poll");
            let text = Polling::NoQueues(name.clone()).to_string();
            assert!(std::fs::exists(&queue).unwrap() && text.contains(&queue), "{text}");
        }
        other => println!("skipped: {other}"),
    }
    let disk = Polling::NoQueues("nvme1n1".into()).to_string();
    for word in ["nvme.poll_queues=", "/etc/modprobe.d", "initramfs", "nvme1n1/queue/io_poll"] {
        assert!(disk.contains(word), "{word}: {disk}");
    }
}
