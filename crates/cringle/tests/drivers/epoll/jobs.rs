//! Jobs of the pool: their cancels, their limit, and a pool without threads.

use super::*;
use cringle_testing::child;

/// Jobs that no thread has started are cancelled at once, and their memory is not touched.
#[test]
fn jobs_that_wait_for_a_thread_are_cancellable() {
    const MINE: u8 = 0xee;
    let mut bufs = vec![vec![0u8; 16 << 10]; 500];
    let mut ends = [0, 0];
    on_epoll(1, || {
        // This file does not support `RWF_NOWAIT`: threads read it.
        let file = File::open("/proc/self/maps").unwrap();
        for round in 0..20 {
            let outcomes: Vec<_> = fiber::scope(|s| {
                let file = &file;
                let readers: Vec<_> = bufs
                    .iter_mut()
                    .map(|buf| {
                        s.spawn_local(move || {
                            let result = file.read_at(buf, 0);
                            buf.fill(MINE);
                            result
                        })
                    })
                    .collect();
                (0..2 + round % 3).for_each(|_| fiber::yield_now());
                s.cancel();
                fiber::protect(|| {
                    readers.into_iter().map(|reader| reader.join().unwrap()).collect()
                })
            });
            for outcome in outcomes {
                match outcome {
                    Ok(count) => ends[usize::from(count == 0)] += 1,
                    Err(e) => {
                        assert_eq!(cancel::reason(&e), Some(cancel::Reason::Cancelled));
                        ends[1] += 1;
                    }
                }
            }
        }
    });
    assert!(ends[0] > 0 && ends[1] > 0, "{ends:?}");
    // The pool has ended, and with it its queue.
    assert!(
        bufs.iter().flatten().all(|&byte| byte == MINE),
        "a cancelled read wrote to its buffer"
    );
}

#[test]
fn limit_bounds_jobs_but_not_waits_for_peers() {
    for limit in [1, 2, 5] {
        let builder = Builder::new().workers(1).driver(DriverChoice::Epoll).in_flight_limit(limit);
        builder
            .run(|| {
                let file = File::from(tempfile::tempfile().unwrap());
                let (reader, mut writer) = io::pipe().unwrap();
                fiber::scope(|s| {
                    let reads: Vec<_> = (0..10)
                        .map(|_| s.spawn_local(|| (&mut &reader).read_exact(&mut [0]).unwrap()))
                        .collect();
                    for n in 0..30u8 {
                        let file = &file;
                        s.spawn_local(move || {
                            file.write_all_at(&[n; 100], u64::from(n) * 100).unwrap();
                            file.sync_data().unwrap();
                        });
                    }
                    let_others_wait();
                    writer.write_all(&[0; 10]).unwrap();
                    reads.into_iter().for_each(|reads| reads.join().unwrap());
                });
                let mut all = vec![0; 3000];
                file.read_exact_at(&mut all, 0).unwrap();
                assert!(all.chunks(100).zip(0u8..).all(|(chunk, n)| chunk == [n; 100]));
            })
            .unwrap();
    }
}

/// If the pool cannot start a thread, the worker performs the job.
#[test]
fn worker_performs_jobs_without_threads() {
    child::must_succeed("worker_performs_jobs_without_threads", || {
        on_epoll(1, || {
            // The limit on threads binds every user but root.
            // SAFETY: no pointers are passed.
            let is_bound = unsafe { libc::setuid(65_533) == 0 || libc::getuid() != 0 };
            if !is_bound {
                return println!("skipped: root has no limit of threads");
            }
            child::limit(libc::RLIMIT_NPROC, 0).unwrap();
            std::thread::Builder::new().spawn(|| ()).unwrap_err();
            let file = File::from(tempfile::tempfile().unwrap());
            fiber::scope(|s| {
                for n in 0..10u8 {
                    let file = &file;
                    s.spawn_local(move || file.write_all_at(&[n], n.into()).unwrap());
                }
            });
            let mut all = [0; 10];
            file.read_exact_at(&mut all, 0).unwrap();
            assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        });
    });
}
