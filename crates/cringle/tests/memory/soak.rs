//! Tens of thousands of cancels of ops in flight: nothing hangs or leaks, and no byte is lost or
//! duplicated. For more of them:
//!
//! ```text
//! CRINGLE_SOAK_CANCELS=1000000 cargo test --release -p cringle --test memory soak -- --nocapture
//! ```

use cringle::block::{AlignedBuf, Batch};
use cringle::fs::{File, OpenOptions};
use cringle::io::{Interest, ready};
use cringle::{Builder, cancel, fiber, time};
use cringle_testing::tools::*;
use cringle_testing::{child, disk};
use fastrand::Rng;
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CANCELS: u64 = 20_000;
const WORKERS: usize = 2;
const STREAMS: usize = 96;
const BLOCK: usize = 4096;
const BLOCKS: usize = 256;

/// Random choices of a fiber and of those that it spawns, the same in every run.
struct Random(RefCell<Rng>);

impl Random {
    fn new(seed: usize) -> Random {
        Random(RefCell::new(Rng::with_seed(seed as u64)))
    }

    fn below(&self, bound: u64) -> u64 {
        self.0.borrow_mut().u64(..bound)
    }

    /// Draws a deadline, which is usually about as long as an op takes.
    fn limit(&self) -> Duration {
        Duration::from_nanos(match self.below(8) {
            0 => 0,
            1 => self.below(1_000_000),
            _ => self.below(100_000),
        })
    }
}

/// Counts the ops of the test, which ends after `limit` cancels.
#[derive(Default)]
struct Counters {
    cancels: AtomicU64,
    completed: AtomicU64,
    limit: u64,
    /// The usage after a quarter of the cancels.
    early: OnceLock<Usage>,
}

/// The memory, in KiB, and the other resources of the process.
type Usage = (u64, child::Footprint);

fn usage() -> Usage {
    (child::status_kib("VmRSS:"), child::Footprint::now())
}

impl Counters {
    fn is_running(&self) -> bool {
        self.cancels.load(Ordering::Relaxed) < self.limit
    }

    /// Counts the end of an op, and returns its value unless it was cancelled.
    fn count<T>(&self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.completed.fetch_add(1, Ordering::Relaxed);
                Some(value)
            }
            Err(error) => {
                assert!(cancel::reason(&error).is_some(), "{error:?}");
                if self.cancels.fetch_add(1, Ordering::Relaxed) == self.limit / 4 {
                    self.early.set(usage()).unwrap();
                }
                None
            }
        }
    }
}

/// Runs `op`, and cancels it in a random way.
fn cancelled_at_random<T>(random: &Random, op: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match random.below(4) {
        // A fiber of its scope cancels it, before it starts or later.
        0 => fiber::scope(|s| {
            let turns = random.below(4);
            s.spawn_daemon_local(move || {
                (0..turns).for_each(|_| fiber::yield_now());
                s.cancel();
            });
            op()
        }),
        // The owner of its scope cancels it.
        1 => fiber::scope(|s| {
            let handle = s.spawn_local(op);
            (0..random.below(4)).for_each(|_| fiber::yield_now());
            s.cancel();
            handle.join().unwrap()
        }),
        _ => time::timeout(random.limit(), op),
    }
}

/// Returns the bytes at this offset of a stream, which has the same ones again and again.
fn bytes_at(offset: u64, len: usize) -> Vec<u8> {
    let period: [u8; 251] = std::array::from_fn(|n| n as u8);
    let skipped = (offset % 251) as usize;
    let mut bytes = period.repeat((skipped + len).div_ceil(251));
    bytes.truncate(skipped + len);
    bytes.split_off(skipped)
}

/// Writes the bytes of a stream, and returns their number.
fn write_stream(writer: &File, seed: usize, counters: &Counters) -> u64 {
    let (random, mut written) = (Random::new(seed), 0);
    while counters.is_running() {
        let len = 1 + random.below(9000);
        let bytes = bytes_at(written, len as usize);
        let result = cancelled_at_random(&random, || (&mut &*writer).write(&bytes));
        written += counters.count(result).unwrap_or(0) as u64;
    }
    written
}

/// Reads and checks the bytes of a stream, and returns their number.
fn read_stream(reader: &File, seed: usize, counters: &Counters) -> u64 {
    let (random, mut read) = (Random::new(seed), 0);
    let mut buf = vec![0; 10_000];
    while counters.is_running() {
        let len = 1 + random.below(buf.len() as u64 - 1) as usize;
        if random.below(8) == 0 {
            counters.count(cancelled_at_random(&random, || ready(reader, Interest::READABLE)));
        }
        let shared = std::sync::Mutex::new(&mut buf[..len]);
        let result =
            cancelled_at_random(&random, || (&mut &*reader).read(&mut shared.lock().unwrap()));
        let count = counters.count(result).unwrap_or(0);
        check(&buf[..count], read);
        read += count as u64;
    }
    read
}

fn check(bytes: &[u8], offset: u64) {
    let expected = bytes_at(offset, bytes.len());
    let first = || bytes.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert!(bytes == expected, "{:?} bytes after {offset}", first());
}

/// Reads from the disk, and writes and syncs.
fn use_disk(direct: &File, cached: &File, seed: usize, counters: &Counters) {
    let random = Random::new(seed);
    let mut pages = AlignedBuf::new(8 * BLOCK);
    while counters.is_running() {
        let block = random.below(BLOCKS as u64 - 8) as usize;
        let offset = (block * BLOCK) as u64;
        match random.below(8) {
            0 => {
                let page = [random.below(256) as u8; 512];
                let beyond = offset + 1 + (BLOCKS * BLOCK) as u64;
                counters.count(cancelled_at_random(&random, || cached.write_at(&page, beyond)));
                counters.count(cancelled_at_random(&random, || cached.sync_data()));
            }
            1..4 => {
                pages.fill(0);
                let shared = std::sync::Mutex::new(&mut pages);
                let read = cancelled_at_random(&random, || {
                    let mut pages = shared.lock().unwrap();
                    let mut batch = Batch::new();
                    for (n, page) in (0u64..).zip(pages.chunks_mut(BLOCK)) {
                        batch.read_exact(direct, page, offset + n * BLOCK as u64);
                    }
                    Ok(batch.submit())
                });
                for (n, (result, page)) in
                    read.unwrap().into_iter().zip(pages.chunks(BLOCK)).enumerate()
                {
                    if counters.count(result).is_some() {
                        check_block(page, block + n);
                    }
                }
            }
            _ => {
                pages[..BLOCK].fill(0);
                let shared = std::sync::Mutex::new(&mut pages[..BLOCK]);
                let read = cancelled_at_random(&random, || {
                    direct.read_at(&mut shared.lock().unwrap(), offset)
                });
                if counters.count(read).is_some() {
                    check_block(&pages[..BLOCK], block);
                }
            }
        }
    }
}

fn check_block(page: &[u8], block: usize) {
    assert!(disk::is_filled(page, block as u8), "block {block}");
}

/// Compares the process's memory and descriptors at the end with those after a quarter.
fn watch(counters: &Counters) {
    let begin = Instant::now();
    while counters.is_running() {
        time::sleep(Duration::from_millis(5)).unwrap();
    }
    let (memory, footprint) = usage();
    println!(
        "{} cancels and {} completed ops in {:?}",
        counters.cancels.load(Ordering::Relaxed),
        counters.completed.load(Ordering::Relaxed),
        begin.elapsed()
    );
    let (early_memory, early_footprint) = counters.early.get().unwrap();
    println!("after a quarter: {early_memory} KiB, {early_footprint:?}");
    println!("at the end:      {memory} KiB, {footprint:?}");
    assert_eq!(footprint.descriptors, early_footprint.descriptors);
    assert!(memory < early_memory + 16 * 1024, "the process grows");
}

#[test]
fn cancels_under_load_lose_and_leak_nothing() {
    child::must_succeed("cancels_under_load_lose_and_leak_nothing", || {
        let limit = std::env::var("CRINGLE_SOAK_CANCELS")
            .map_or(CANCELS, |text| text.parse().expect("a number of cancels"));
        let disk = disk::directory();
        let path = disk.path().join("blocks");
        let blocks: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect();
        std::fs::write(&path, blocks).unwrap();
        let before = child::Footprint::now();
        let streams: Vec<_> = (0..STREAMS).map(|_| pipe()).collect();
        let counters = Counters { limit, ..Counters::default() };
        let left = Builder::new().workers(WORKERS).run(|| {
            let cached = OpenOptions::new().write(true).open(&path).unwrap();
            let direct =
                OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
            fiber::scope(|s| {
                s.spawn_local(|| watch(&counters));
                for n in 0..4 {
                    let (direct, cached, counters) = (&direct, &cached, &counters);
                    spawn_on(n % WORKERS, s, move || use_disk(direct, cached, 1000 + n, counters));
                }
                let handles = streams.iter().enumerate().map(|(n, (reader, writer))| {
                    let counters = &counters;
                    // Both ends of a stream are on the same worker or on two.
                    let (read_on, write_on) = (n % WORKERS, n / 2 % WORKERS);
                    let reads = spawn_on(read_on, s, move || read_stream(reader, n, counters));
                    let writes =
                        spawn_on(write_on, s, move || write_stream(writer, 500 + n, counters));
                    (reads, writes)
                });
                let handles: Vec<_> = handles.collect();
                let counts = handles.into_iter();
                counts.map(|(r, w)| (r.join().unwrap(), w.join().unwrap())).collect::<Vec<_>>()
            })
        });
        // Bytes that were not read are still in the pipes.
        for ((reader, writer), (read, written)) in streams.into_iter().zip(left.unwrap()) {
            drop(writer);
            let mut rest = Vec::new();
            (&reader).read_to_end(&mut rest).unwrap();
            check(&rest, read);
            assert_eq!(read + rest.len() as u64, written);
        }
        assert_eq!(child::Footprint::now().descriptors, before.descriptors);
    });
}
