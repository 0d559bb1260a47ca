//! The driver under stress: queues of one entry, limits of one operation, storms of signals,
//! missing features, thousands of cancels at once.

use cringle::block::{AlignedBuf, Batch};
use cringle::fs::{File, OpenOptions};
use cringle::runtime::{self, Driver, Feature};
use cringle::{Builder, Cancelled, fiber};
use cringle_testing::tools::pipe;
use cringle_testing::{child, disk};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: usize = 256;

/// A file on a disk, each of whose blocks is filled with a byte that depends on its number.
struct Blocks(tempfile::NamedTempFile);

impl Blocks {
    fn new() -> Blocks {
        // Not in /tmp, which may be in memory: the test needs O_DIRECT.
        let mut file = tempfile::NamedTempFile::new_in(cringle_testing::disk::place()).unwrap();
        for block in 0..BLOCKS {
            file.write_all(&[Blocks::byte(block); BLOCK]).unwrap();
        }
        file.as_file().sync_all().unwrap();
        Blocks(file)
    }

    fn byte(block: usize) -> u8 {
        (block % 251) as u8 + 1
    }

    fn cached(&self) -> File {
        File::open(self.0.path()).unwrap()
    }

    fn direct(&self) -> File {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECT).open(self.0.path()).unwrap()
    }
}

fn read_block(file: &File, block: usize) {
    let mut page = AlignedBuf::new(BLOCK);
    file.read_exact_at(&mut page, (block * BLOCK) as u64).unwrap();
    assert!(disk::is_filled(&page, Blocks::byte(block)), "block {block}");
}

/// Runs reads, batches, pipes, timers, the pool and wake-ups between workers, all at once.
fn a_bit_of_everything(builder: Builder) {
    let blocks = Blocks::new();
    let done = AtomicUsize::new(0);
    let run = builder.run(|| {
        let (cached, direct) = (blocks.cached(), blocks.direct());
        fiber::scope(|s| {
            for n in 0..60 {
                let (cached, direct, done) = (&cached, &direct, &done);
                let work = move || {
                    match n % 6 {
                        0 => (0..10).for_each(|k| read_block(direct, (n * 7 + k) % BLOCKS)),
                        1 => (0..10).for_each(|k| read_block(cached, (n * 7 + k) % BLOCKS)),
                        2 => read_in_batches(direct, n),
                        3 => pass_through_a_pipe(),
                        4 => fiber::sleep(Duration::from_millis(n as u64 % 7)),
                        _ => assert_eq!(fiber::unblock(|| n), n),
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                };
                let workers = runtime::workers().unwrap();
                let placed = fiber::Builder::new().worker(n % workers);
                placed.spawn_scoped(s, work).unwrap();
            }
        });
        let end = fiber::spawn(|| fiber::current().id()).join().unwrap();
        assert_ne!(end, fiber::current().id());
    });
    run.unwrap();
    assert_eq!(done.into_inner(), 60);
}

fn read_in_batches(file: &File, seed: usize) {
    let mut pages = AlignedBuf::new(32 * BLOCK);
    let mut batch = Batch::new();
    let places = (0..32).map(|k| (seed * 13 + k * 5) % BLOCKS);
    for (page, block) in pages.chunks_mut(BLOCK).zip(places.clone()) {
        batch.read_exact(file, page, (block * BLOCK) as u64);
    }
    assert_eq!(batch.submit().into_iter().map(Result::unwrap).sum::<usize>(), 32 * BLOCK);
    for (page, block) in pages.chunks(BLOCK).zip(places) {
        assert!(disk::is_filled(page, Blocks::byte(block)), "block {block}");
    }
}

fn pass_through_a_pipe() {
    let (reader, writer) = pipe();
    fiber::scope(|s| {
        s.spawn_local(move || {
            for n in 0..20u8 {
                (&writer).write_all(&[n]).unwrap();
                fiber::yield_now();
            }
        });
        let mut all = Vec::new();
        (&reader).read_to_end(&mut all).unwrap();
        assert_eq!(all, (0..20).collect::<Vec<u8>>());
    });
}

// ----- tiny rings and limits -----

#[test]
fn ring_of_one_entry_serves_all() {
    a_bit_of_everything(Builder::new().workers(2).ring_entries(1));
}

#[test]
fn limit_of_one_operation_serves_all() {
    a_bit_of_everything(Builder::new().workers(2).in_flight_limit(1));
}

#[test]
fn limit_of_two_operations_serves_all() {
    a_bit_of_everything(Builder::new().workers(2).in_flight_limit(2));
}

/// The submission queue has one entry, the completion queue two.
#[test]
fn smallest_ring_serves_all() {
    a_bit_of_everything(Builder::new().workers(2).ring_entries(1).in_flight_limit(1));
}

#[test]
fn thousands_of_fibers_share_a_limit_of_one() {
    let blocks = Blocks::new();
    for limit in [1, 2, 3] {
        let builder = Builder::new().workers(1).ring_entries(limit).in_flight_limit(limit);
        let run = builder.run(|| {
            let file = blocks.direct();
            fiber::scope(|s| {
                for n in 0..2000 {
                    let file = &file;
                    s.spawn_local(move || read_block(file, n % BLOCKS));
                }
            });
        });
        run.unwrap();
    }
}

/// Fibers that wait for room get it in the order of their arrival.
#[test]
fn fibers_get_room_in_order() {
    let blocks = Blocks::new();
    let order = std::cell::RefCell::new(Vec::new());
    let run = Builder::new().workers(1).in_flight_limit(1).run(|| {
        let file = blocks.direct();
        fiber::scope(|s| {
            for n in 0..100 {
                let (file, order) = (&file, &order);
                s.spawn_local(move || {
                    read_block(file, n);
                    order.borrow_mut().push(n);
                });
            }
        });
    });
    run.unwrap();
    assert_eq!(order.into_inner(), (0..100).collect::<Vec<_>>());
}

#[test]
fn batches_of_thousands_fit_through_tiny_rings() {
    const OPS: usize = 5000;
    let blocks = Blocks::new();
    for (entries, limit) in [(1, 1), (1, 2), (2, 1), (4, 64), (64, 4)] {
        let builder = Builder::new().workers(1).ring_entries(entries).in_flight_limit(limit);
        let run = builder.run(|| {
            let file = blocks.cached();
            let mut bytes = vec![0u8; OPS];
            let mut batch = Batch::with_capacity(OPS);
            for (n, byte) in bytes.chunks_mut(1).enumerate() {
                batch.read(&file, byte, (n * 37 % (BLOCKS * BLOCK)) as u64);
            }
            assert!(batch.submit().into_iter().all(|count| count.unwrap() == 1));
            for (n, &byte) in bytes.iter().enumerate() {
                assert_eq!(byte, Blocks::byte(n * 37 % (BLOCKS * BLOCK) / BLOCK));
            }
        });
        run.unwrap();
    }
}

/// A part of a batch ends while the rest waits for room and the worker computes. Then no fiber is
/// ready and nothing is in flight: the worker would sleep without end if it did not notice the
/// room.
#[test]
fn batch_that_waits_for_room_is_resumed() {
    let blocks = Blocks::new();
    // Without this feature, completions arrive at any system call, not only at an enter.
    let builder = Builder::new().workers(1).without(Feature::DeferTaskrun);
    let builder = builder.without(Feature::TaskrunFlag);
    for limit in [1, 2, 3] {
        let run = builder.clone().in_flight_limit(limit).run(|| {
            let file = blocks.direct();
            for n in 0..10 {
                fiber::scope(|s| {
                    let computes = s.spawn_local(|| {
                        fiber::yield_now();
                        fiber::yield_now();
                        // Longer than the device takes for a read.
                        let begin = Instant::now();
                        while begin.elapsed() < Duration::from_millis(3) {
                            std::thread::yield_now();
                        }
                        fiber::park();
                    });
                    read_in_batches(&file, n);
                    computes.thread().unpark();
                });
            }
        });
        run.unwrap();
    }
}

// ----- features -----

/// Whether runs use rings; prints that the test is skipped otherwise.
fn has_rings() -> bool {
    let driver = Builder::new().workers(1).run(runtime::driver).unwrap();
    let rings = matches!(driver, Driver::Uring(_));
    if !rings {
        println!("skipped: rings are not available: {driver:?}");
    }
    rings
}

#[test]
fn each_feature_may_be_missing() {
    if !has_rings() {
        return;
    }
    for feature in Feature::ALL {
        let has = Builder::new().workers(1).without(feature).run(|| match runtime::driver() {
            Driver::Uring(features) => features.has(feature),
            other => panic!("{other:?}"),
        });
        assert!(!has.unwrap(), "{feature:?}");
        a_bit_of_everything(Builder::new().workers(2).without(feature));
    }
}

#[test]
fn all_features_may_be_missing() {
    if !has_rings() {
        return;
    }
    let bare = Feature::ALL.into_iter().fold(Builder::new(), Builder::without);
    let features = bare.clone().workers(1).run(|| match runtime::driver() {
        Driver::Uring(features) => features.iter().count(),
        other => panic!("{other:?}"),
    });
    assert_eq!(features.unwrap(), 0);
    a_bit_of_everything(bare.clone().workers(2));
    a_bit_of_everything(bare.workers(2).ring_entries(1).in_flight_limit(2));
}

#[test]
fn polling_kernel_thread_serves_all() {
    // The thread sleeps after a millisecond, so that it must be woken sometimes.
    let polled = Builder::new().sqpoll(Duration::from_millis(1));
    a_bit_of_everything(polled.clone().workers(2));
    a_bit_of_everything(polled.clone().workers(1).ring_entries(1).in_flight_limit(2));
    polled
        .workers(1)
        .run(|| {
            for _ in 0..5 {
                fiber::sleep(Duration::from_millis(3));
                assert!(File::open("/proc/self/exe").unwrap().metadata().unwrap().len() > 0);
            }
        })
        .unwrap();
}

// ----- signals -----

/// Interrupts system calls, some twenty thousand times a second, until it is dropped. The handler
/// does nothing, and the calls are not restarted.
struct SignalStorm;

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_signal(_: i32) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

impl SignalStorm {
    fn start() -> SignalStorm {
        // SAFETY: the handler is async-signal-safe, and the structures are borrowed for the calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count_signal as extern "C" fn(i32) as usize;
            assert_eq!(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()), 0);
        }
        SignalStorm::every(50);
        SignalStorm
    }

    fn every(us: i64) {
        let time = libc::timeval { tv_sec: 0, tv_usec: us };
        let timer = libc::itimerval { it_interval: time, it_value: time };
        // SAFETY: the structure is borrowed for the call.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    }
}

impl Drop for SignalStorm {
    fn drop(&mut self) {
        SignalStorm::every(0);
    }
}

#[test]
fn storm_of_signals_changes_no_result() {
    child::must_succeed("storm_of_signals_changes_no_result", || {
        let storm = SignalStorm::start();
        let begin = Instant::now();
        Builder::new().workers(1).run(|| fiber::sleep(Duration::from_millis(50))).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(50), "a signal ended a sleep");
        for _ in 0..3 {
            a_bit_of_everything(Builder::new().workers(2));
            a_bit_of_everything(Builder::new().workers(1).ring_entries(1).in_flight_limit(2));
            syncs();
        }
        drop(storm);
        assert!(SIGNALS.load(Ordering::Relaxed) > 100, "too few signals for a storm");
    });
}

fn syncs() {
    Builder::new()
        .workers(1)
        .run(|| {
            let file = tempfile::tempfile_in(cringle_testing::disk::place()).unwrap();
            let file = File::from(file);
            fiber::scope(|s| {
                for n in 0..4 {
                    let file = &file;
                    s.spawn_local(move || {
                        for _ in 0..3 {
                            file.write_all_at(&[n; 100], u64::from(n) * 100).unwrap();
                            file.sync_data().unwrap();
                            file.sync_all().unwrap();
                            assert!(file.metadata().unwrap().len() > 0);
                        }
                    });
                }
            });
        })
        .unwrap();
}

// ----- the end of run with thousands of operations in flight -----

/// If a cancel that found no room were lost, its read and the run would never end.
#[test]
fn tiny_ring_cancels_thousands_of_reads() {
    const READS: usize = 3000;
    child::must_succeed("tiny_ring_cancels_thousands_of_reads", || {
        for (entries, limit) in [(1, 4000), (1, 1), (2, 2), (8, 100), (256, 4000)] {
            let before = child::Footprint::now();
            // All fibers read one pipe, which no fiber writes to.
            let (reader, writer) = pipe();
            let reader = std::sync::Arc::new(reader);
            let builder = Builder::new().workers(1).ring_entries(entries).in_flight_limit(limit);
            let handles = builder.run(|| {
                let read = |reader: std::sync::Arc<File>| (&*reader).read(&mut [0]).unwrap_err();
                let handles: Vec<_> = (0..READS)
                    .map(|_| {
                        let reader = std::sync::Arc::clone(&reader);
                        fiber::spawn_local(move || read(reader))
                    })
                    .collect();
                (0..3).for_each(|_| fiber::yield_now());
                handles
            });
            for handle in handles.unwrap() {
                let error = handle.join().unwrap();
                assert!(error.get_ref().unwrap().is::<Cancelled>(), "{error:?}");
            }
            drop((reader, writer));
            assert_eq!(child::Footprint::now().descriptors, before.descriptors);
        }
    });
}

/// Some fibers have an operation in the kernel, others wait for room, others have just got it.
#[test]
fn run_ends_while_fibers_wait_for_room() {
    let blocks = Blocks::new();
    for turns in 0..60 {
        let run = Builder::new().workers(1).in_flight_limit(1 + turns as u32 % 4).run(|| {
            let file = std::sync::Arc::new(blocks.direct());
            for n in 0..50 {
                let file = std::sync::Arc::clone(&file);
                fiber::spawn_local(move || {
                    let mut page = AlignedBuf::new(BLOCK);
                    for k in 0..20 {
                        let offset = (n + k) % BLOCKS * BLOCK;
                        if let Err(error) = file.read_exact_at(&mut page, offset as u64) {
                            assert!(error.get_ref().unwrap().is::<Cancelled>(), "{error:?}");
                            return;
                        }
                    }
                });
            }
            (0..turns * 3).for_each(|_| fiber::yield_now());
        });
        run.unwrap();
    }
}

/// An `openat` that wins against its cancel returns its descriptor, which the caller drops.
#[test]
fn cancelled_opens_leak_no_descriptor() {
    child::must_succeed("cancelled_opens_leak_no_descriptor", || {
        let before = child::Footprint::now();
        for turns in 0..100 {
            let run = Builder::new().workers(1).ring_entries(4).run(|| {
                for _ in 0..50 {
                    fiber::spawn_local(|| drop(File::open("/proc/self/exe")));
                }
                (0..turns % 4).for_each(|_| fiber::yield_now());
            });
            run.unwrap();
        }
        assert_eq!(child::Footprint::now().descriptors, before.descriptors);
    });
}

/// Wake-ups arrive as completions, in greater numbers than the completion queues hold.
#[test]
fn messages_that_overflow_a_ring_are_not_lost() {
    let builder = Builder::new().workers(2).ring_entries(1).in_flight_limit(1);
    let run = builder.run(|| {
        let hits = AtomicUsize::new(0);
        fiber::scope(|s| {
            for n in 0..3000 {
                let hit = || hits.fetch_add(1, Ordering::Relaxed);
                fiber::Builder::new().worker(n % 2).spawn_scoped(s, hit).unwrap();
            }
        });
        hits.into_inner()
    });
    assert_eq!(run.unwrap(), 3000);
}
