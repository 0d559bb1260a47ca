//! Fibers, locks and channels that several workers and a thread contend for, and time.

use crate::check;
use cringle::sync::{
    Barrier, Condvar, Mutex, Once, OnceLock, RwLock, Semaphore, mpmc, mpsc, oneshot, watch,
};
use cringle::{fiber, time};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const ROUNDS: u32 = 300;

fn contended() {
    let (lock, both, slots) = (Mutex::new(0), RwLock::new(0), Semaphore::new(2));
    let (barrier, once, cell) = (Barrier::new(4), Once::new(), OnceLock::new());
    let (flag, changed) = (Mutex::new(0), Condvar::new());
    fiber::scope(|s| {
        for n in 0..4 {
            let (lock, both, slots, barrier) = (&lock, &both, &slots, &barrier);
            let (once, cell, flag, changed) = (&once, &cell, &flag, &changed);
            s.spawn(move || {
                for _ in 0..ROUNDS {
                    *lock.lock().unwrap() += 1;
                    *both.write().unwrap() += 1;
                    drop(both.read().unwrap());
                    drop(slots.acquire());
                    fiber::yield_now();
                }
                barrier.wait();
                once.call_once(fiber::yield_now);
                assert_eq!(*cell.get_or_init(|| 7), 7);
                let mut turn = flag.lock().unwrap();
                while *turn != n {
                    turn = changed.wait(turn).unwrap();
                }
                *turn += 1;
                changed.notify_all();
            });
        }
    });
    assert_eq!(*lock.lock().unwrap(), 4 * ROUNDS);
}

fn channels() {
    let (sender, receiver) = mpsc::sync_channel(1);
    let (work, workers) = mpmc::bounded(2);
    let (seen, mut seer) = watch::channel(0);
    fiber::scope(|s| {
        for _ in 0..2 {
            let (sender, workers) = (sender.clone(), workers.clone());
            s.spawn(move || {
                for n in workers.iter() {
                    sender.send(n).unwrap();
                }
            });
        }
        drop((sender, workers));
        s.spawn(move || (0..ROUNDS).for_each(|n| work.send(n).unwrap()));
        assert_eq!(receiver.iter().count() as u32, ROUNDS);
        let (one, shot) = oneshot::channel();
        s.spawn(move || one.send(1).unwrap());
        assert_eq!(shot.recv().unwrap(), 1);
        s.spawn(move || seen.send(1).unwrap());
        seer.changed().unwrap();
    });
}

fn fibers() {
    let (left, right) = fiber::join(fiber::yield_now, || time::sleep(Duration::from_millis(1)));
    right.unwrap();
    let () = left;
    assert_eq!(fiber::par_map(0..64, 8, |n| n + 1).len(), 64);
    let parked = fiber::spawn(|| {
        fiber::park();
        7
    });
    parked.thread().unpark();
    assert_eq!(parked.join().unwrap(), 7);
    assert_eq!(fiber::unblock(|| 7), 7);
    assert_eq!(fiber::block_on(std::future::ready(7)), 7);
    assert!(fiber::spawn_local(|| fiber::resume_unwind(Box::new(()))).join().is_err());
    let named = fiber::Builder::new().name("named".into()).spawn(fiber::yield_now).unwrap();
    named.join().unwrap();
    let failed: Result<(), std::io::Error> = fiber::try_scope(|s| {
        s.spawn(|| Err::<(), _>(std::io::ErrorKind::NotFound.into()));
        s.spawn(|| time::sleep(Duration::from_secs(3600)));
        Ok(())
    });
    assert_eq!(failed.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

fn limits() {
    let elapsed =
        time::timeout(Duration::from_millis(1), || fiber::sleep_cancellable(Duration::MAX));
    assert!(elapsed.is_err());
    let mut interval = time::interval(Duration::from_micros(100));
    interval.tick().unwrap();
    interval.tick().unwrap();
    fiber::park_timeout(Duration::from_micros(100));
    let deep = AtomicU32::new(0);
    fiber::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                deep.fetch_add(1, Ordering::Relaxed);
                fiber::park();
            });
        }
        while deep.load(Ordering::Relaxed) < 8 {
            fiber::yield_now();
        }
        s.cancel();
        fiber::protect(fiber::yield_now);
    });
}

/// Threads take the same locks, and wake fibers and are woken.
#[test]
fn handing_over_to_threads_passes_no_interposed_function() {
    let (lock, rounds) = (Mutex::new(0), 2_000);
    let (to_thread, from_fiber) = mpsc::sync_channel(0);
    let (to_fiber, from_thread) = mpsc::sync_channel::<u32>(0);
    let from_thread = Mutex::new(from_thread);
    std::thread::scope(|s| {
        let lock = &lock;
        s.spawn(move || {
            for n in from_fiber.iter() {
                *lock.lock().unwrap() += 1;
                if to_fiber.send(n).is_err() {
                    return;
                }
            }
        });
        let (sender, from_thread) = (&to_thread, &from_thread);
        check(|| {
            let from_thread = from_thread.lock().unwrap();
            for n in 0..rounds / 10 {
                sender.send(n).unwrap();
                *lock.lock().unwrap() += 1;
                assert_eq!(from_thread.recv().unwrap(), n);
            }
        });
        drop(to_thread);
    });
}

#[test]
fn locks_and_channels_pass_no_interposed_function() {
    check(contended);
    check(channels);
}

#[test]
fn fiber_calls_pass_no_interposed_function() {
    check(fibers);
    check(limits);
}
