//! The counters agree with what the program did.

use cringle::runtime::{self, Stats, WorkerStats};
use cringle::{Builder, fiber, fs, io, sync};
use cringle_testing::disk;
use cringle_testing::tools::on_one_worker;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

fn now() -> Stats {
    runtime::stats().expect("called within a run")
}

fn total() -> WorkerStats {
    now().total()
}

#[test]
fn stats_are_none_outside_a_run() {
    assert_eq!(runtime::stats(), None);
}

#[test]
fn fibers_are_counted_from_start_to_end() {
    on_one_worker(|| {
        let handles: Vec<_> = (0..100).map(|_| fiber::spawn_local(fiber::park)).collect();
        let made = total();
        assert_eq!((made.started, made.ended, made.stacks), (101, 0, 101));
        fiber::yield_now();
        fiber::yield_now();
        let parked = total();
        assert_eq!((parked.ready, parked.waiting), (1, 100));
        for handle in handles {
            handle.thread().unpark();
            handle.join().unwrap();
        }
        let done = total();
        assert_eq!((done.started, done.ended), (101, 100));
        assert_eq!((done.stacks, done.most_stacks), (1, 101));
        assert!(done.turns > made.turns, "{done:?}");
    });
}

#[test]
fn unstarted_fibers_are_counted() {
    on_one_worker(|| {
        let handles: Vec<_> = (0..10).map(|_| fiber::spawn(|| ())).collect();
        let stats = total();
        assert_eq!((stats.unstarted, stats.started), (10, 1));
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        let stats = total();
        assert_eq!((stats.unstarted, stats.started), (0, 11));
    });
}

#[test]
fn operations_in_flight_are_counted() {
    on_one_worker(|| {
        let before = total();
        let pipes: Vec<_> = (0..8).map(|_| io::pipe().unwrap()).collect();
        fiber::scope(|s| {
            for (reader, _) in &pipes {
                s.spawn_local(move || (&mut &*reader).read_exact(&mut [0]).unwrap());
            }
            fiber::yield_now();
            fiber::yield_now();
            let stats = total();
            assert_eq!(stats.in_flight, 8);
            assert!(stats.enters > before.enters);
            let submitted = stats.entries.sum() - before.entries.sum();
            assert!(submitted >= 8, "{submitted}");
            let full_calls = |stats: &WorkerStats| -> u64 {
                stats.entries.buckets().filter(|&(most, _)| most >= 8).map(|(_, calls)| calls).sum()
            };
            assert_eq!(full_calls(&stats) - full_calls(&before), 1, "all eight went in one call");
            for (_, writer) in &pipes {
                (&mut &*writer).write_all(&[1]).unwrap();
            }
        });
        assert_eq!(total().in_flight, 0);
        let stats = total();
        assert_eq!(stats.entries.calls(), stats.enters);
    });
}

#[test]
fn waits_for_room_are_counted() {
    let directory = disk::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, [7; 4096]).unwrap();
    let builder = Builder::new().workers(1).in_flight_limit(1);
    builder
        .run(|| {
            let file = fs::File::options().write(true).open(&path).unwrap();
            assert_eq!(total().room_waits, 0);
            fiber::scope(|s| {
                for _ in 0..10 {
                    s.spawn_local(|| {
                        use std::os::unix::fs::FileExt;
                        file.write_all_at(&[0; 64], 0).unwrap();
                    });
                }
            });
            assert_eq!(total().room_waits, 9, "one at a time has the slot");
        })
        .unwrap();
}

#[test]
fn inline_calls_are_counted() {
    let directory = disk::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, [7; 4096]).unwrap();
    on_one_worker(|| {
        let mut file = fs::File::open(&path).unwrap();
        let before = total();
        file.read_exact(&mut [0; 64]).unwrap();
        let after = total();
        assert!(after.inline_hits > before.inline_hits, "{after:?}");
        let (ours, theirs) = cringle::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(false).unwrap();
        let before = total();
        // The first write finds room, and a later one does not.
        fiber::scope(|s| {
            s.spawn_local(|| {
                (&mut &ours).write_all(&[0; 1 << 20]).unwrap();
                ours.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let mut bytes = Vec::new();
            (&mut &theirs).read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), 1 << 20);
        });
        let after = total();
        assert!(after.inline_misses > before.inline_misses, "{after:?}");
    });
}

#[test]
fn steals_wakes_and_messages_are_counted() {
    let stats = Builder::new()
        .workers(2)
        .run(|| {
            // This worker is kept busy, so that only the other one can start the fiber.
            let started = std::sync::Arc::new(AtomicBool::new(false));
            let theirs = std::sync::Arc::clone(&started);
            let handle = fiber::spawn(move || theirs.store(true, Ordering::Release));
            while !started.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            handle.join().unwrap();
            // And messages for fibers that are placed there, until one of them finds it asleep.
            for _ in 0..10_000 {
                if now().workers[0].wakes > 0 {
                    break;
                }
                let (sender, receiver) = sync::mpsc::channel();
                let far = fiber::Builder::new().worker(1).spawn(move || receiver.recv().unwrap());
                let far = far.unwrap();
                sender.send(1).unwrap();
                assert_eq!(far.join().unwrap(), 1);
            }
            // At least one message, also if the stolen fiber has woken it.
            fiber::Builder::new().worker(1).spawn(|| ()).unwrap().join().unwrap();
            now()
        })
        .unwrap();
    assert_eq!(stats.workers[1].steals, 1);
    assert_eq!(stats.workers[0].steals, 0);
    assert!(stats.workers[1].messages >= 1, "{stats}");
    assert!(stats.workers[1].sleeps >= 1, "{stats}");
    assert!(stats.workers[0].wakes >= 1, "{stats}");
}

#[test]
fn pool_threads_are_counted() {
    on_one_worker(|| {
        let gate = std::sync::Barrier::new(4);
        fiber::scope(|s| {
            for _ in 0..3 {
                s.spawn_local(|| fiber::unblock(|| gate.wait()));
            }
            fiber::yield_now();
            fiber::yield_now();
            let pool = now().unblock_pool;
            assert_eq!(pool.threads, 3);
            fiber::unblock(|| gate.wait());
        });
        let pool = now().unblock_pool;
        assert_eq!((pool.threads, pool.queued), (4, 0));
    });
}

#[test]
fn every_counter_has_name_and_line() {
    on_one_worker(|| {
        let stats = now();
        let text = stats.to_string();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let total = stats.total();
        assert_eq!(text.lines().filter(|line| line.ends_with("now")).count(), 0);
        for (name, number) in total.numbers() {
            assert!(!name.is_empty());
            let shown = text.lines().any(|line| line.ends_with(&format!(" {number}")));
            assert!(shown, "{name} = {number}:\n{text}");
        }
    });
}
