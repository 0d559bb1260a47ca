//! A great number of cancels of operations in flight: nothing hangs, nothing leaks, and no byte is
//! lost or arrives twice.
//!
//! The suite makes some 20,000. For more:
//!
//! ```text
//! CRINGLE_SOAK_CANCELS=1000000 cargo test --release -p cringle --test soak -- --nocapture
//! ```

mod child;
mod disk;
mod tools;

use cringle::block::{AlignedBuf, Batch};
use cringle::fs::{File, OpenOptions};
use cringle::io::{Interest, ready};
use cringle::{Builder, cancel, fiber, time};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tools::*;

const CANCELS: u64 = 20_000;
const WORKERS: usize = 2;
const STREAMS: usize = 96;
const BLOCK: usize = 4096;
const BLOCKS: usize = 256;

/// Pseudo-random numbers, the same in every run.
struct Random(Cell<u64>);

impl Random {
    fn new(seed: usize) -> Random {
        Random(Cell::new(seed as u64 * 2 + 0x9e37_79b9_7f4a_7c15))
    }

    fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        (x >> 11) % bound
    }

    /// Draws a deadline, usually about as long as an operation takes.
    fn limit(&self) -> Duration {
        Duration::from_nanos(match self.below(8) {
            0 => 0,
            1 => self.below(1_000_000),
            _ => self.below(100_000),
        })
    }
}

/// The progress of the test.
#[derive(Default)]
struct Tally {
    cancels: AtomicU64,
    done: AtomicU64,
    enough: u64,
}

impl Tally {
    fn is_running(&self) -> bool {
        self.cancels.load(Ordering::Relaxed) < self.enough
    }

    /// Counts the end of an operation. Returns its value unless it was cancelled.
    fn count<T>(&self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Some(value)
            }
            Err(error) => {
                assert!(cancel::reason(&error).is_some(), "{error:?}");
                self.cancels.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// Runs `op` under a cancel of a random kind.
fn cancelled_at_random<T>(random: &Random, op: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match random.below(4) {
        // By a fiber of its own scope, which runs first or last.
        0 => fiber::scope(|s| {
            let turns = random.below(4);
            s.spawn_daemon_local(move || {
                (0..turns).for_each(|_| fiber::yield_now());
                s.cancel();
            });
            op()
        }),
        // By the owner of its scope, which waits for it.
        1 => fiber::scope(|s| {
            let handle = s.spawn_local(op);
            (0..random.below(4)).for_each(|_| fiber::yield_now());
            s.cancel();
            handle.join().unwrap()
        }),
        _ => time::timeout(random.limit(), op),
    }
}

/// The byte at a place of a stream.
fn byte_at(place: u64) -> u8 {
    (place % 251) as u8
}

/// Writes the bytes that the reader expects, from this place on. Returns the place reached.
fn write_stream(writer: &File, seed: usize, tally: &Tally) -> u64 {
    let (random, mut written) = (Random::new(seed), 0);
    while tally.is_running() {
        let len = 1 + random.below(9000);
        let bytes: Vec<u8> = (written..written + len).map(byte_at).collect();
        let result = cancelled_at_random(&random, || (&mut &*writer).write(&bytes));
        written += tally.count(result).unwrap_or(0) as u64;
    }
    written
}

/// Reads the bytes of the writer and checks each.
fn read_stream(reader: &File, seed: usize, tally: &Tally) -> u64 {
    let (random, mut read) = (Random::new(seed), 0);
    let mut buf = vec![0; 10_000];
    while tally.is_running() {
        let len = 1 + random.below(buf.len() as u64 - 1) as usize;
        if random.below(8) == 0 {
            tally.count(cancelled_at_random(&random, || ready(reader, Interest::READABLE)));
        }
        let shared = std::sync::Mutex::new(&mut buf[..len]);
        let result =
            cancelled_at_random(&random, || (&mut &*reader).read(&mut shared.lock().unwrap()));
        let count = tally.count(result).unwrap_or(0);
        check(&buf[..count], read);
        read += count as u64;
    }
    read
}

fn check(bytes: &[u8], place: u64) {
    for (place, &byte) in (place..).zip(bytes) {
        assert_eq!(byte, byte_at(place), "at {place}");
    }
}

/// Reads from the disk, and writes and syncs.
fn use_disk(direct: &File, cached: &File, seed: usize, tally: &Tally) {
    let random = Random::new(seed);
    let mut pages = AlignedBuf::new(8 * BLOCK);
    while tally.is_running() {
        let block = random.below(BLOCKS as u64 - 8) as usize;
        let offset = (block * BLOCK) as u64;
        match random.below(8) {
            0 => {
                let page = [random.below(256) as u8; 512];
                let place = offset + 1 + (BLOCKS * BLOCK) as u64;
                tally.count(cancelled_at_random(&random, || cached.write_at(&page, place)));
                tally.count(cancelled_at_random(&random, || cached.sync_data()));
            }
            1..4 => {
                pages.fill(0);
                let shared = std::sync::Mutex::new(&mut pages);
                let read = cancelled_at_random(&random, || {
                    let mut pages = shared.lock().unwrap();
                    let mut batch = Batch::new();
                    for (place, page) in (0u64..).zip(pages.chunks_mut(BLOCK)) {
                        batch.read_exact(direct, page, offset + place * BLOCK as u64);
                    }
                    Ok(batch.submit())
                });
                for (n, (result, page)) in
                    read.unwrap().into_iter().zip(pages.chunks(BLOCK)).enumerate()
                {
                    if tally.count(result).is_some() {
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
                if tally.count(read).is_some() {
                    check_block(&pages[..BLOCK], block);
                }
            }
        }
    }
}

fn check_block(page: &[u8], block: usize) {
    assert!(page.iter().all(|&byte| byte == block as u8), "block {block}");
}

/// Prints the progress from time to time, and what the process holds.
fn watch(tally: &Tally) {
    let mut early = None;
    let begin = Instant::now();
    loop {
        let done = tally.cancels.load(Ordering::Relaxed);
        if done >= tally.enough {
            break;
        }
        let (memory, holds) = (child::status_kib("VmRSS:"), child::Footprint::now());
        if early.is_none() && done * 4 > tally.enough {
            early = Some((memory, holds));
        }
        time::sleep(Duration::from_millis(100)).unwrap();
    }
    let (memory, holds) = (child::status_kib("VmRSS:"), child::Footprint::now());
    println!(
        "{} cancels beside {} operations that were done, in {:?}",
        tally.cancels.load(Ordering::Relaxed),
        tally.done.load(Ordering::Relaxed),
        begin.elapsed()
    );
    if let Some((memory_early, holds_early)) = early {
        println!("after a quarter: {memory_early} KiB, {holds_early:?}");
        println!("in the end:      {memory} KiB, {holds:?}");
        assert_eq!(holds.descriptors, holds_early.descriptors);
        assert!(memory < memory_early + 16 * 1024, "the process grows");
    }
}

#[test]
fn cancels_under_load_lose_and_leak_nothing() {
    child::must_succeed("cancels_under_load_lose_and_leak_nothing", || {
        let enough = std::env::var("CRINGLE_SOAK_CANCELS")
            .map_or(CANCELS, |text| text.parse().expect("a number of cancels"));
        let disk = disk::directory();
        let path = disk.path().join("blocks");
        let blocks: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect();
        std::fs::write(&path, blocks).unwrap();
        let before = child::Footprint::now();
        let streams: Vec<_> = (0..STREAMS).map(|_| pipe()).collect();
        let tally = Tally { enough, ..Tally::default() };
        let left = Builder::new().workers(WORKERS).run(|| {
            let cached = OpenOptions::new().write(true).open(&path).unwrap();
            let direct =
                OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
            fiber::scope(|s| {
                s.spawn_local(|| watch(&tally));
                for n in 0..4 {
                    let (direct, cached, tally) = (&direct, &cached, &tally);
                    spawn_on(n % WORKERS, s, move || use_disk(direct, cached, 1000 + n, tally));
                }
                let handles = streams.iter().enumerate().map(|(n, (reader, writer))| {
                    let tally = &tally;
                    // Some pairs are on one worker, others on two.
                    let (here, there) = (n % WORKERS, n / 2 % WORKERS);
                    let reads = spawn_on(here, s, move || read_stream(reader, n, tally));
                    let writes = spawn_on(there, s, move || write_stream(writer, 500 + n, tally));
                    (reads, writes)
                });
                let handles: Vec<_> = handles.collect();
                let counts = handles.into_iter();
                counts.map(|(r, w)| (r.join().unwrap(), w.join().unwrap())).collect::<Vec<_>>()
            })
        });
        // Bytes written and not read are still in the pipes.
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
