//! std's locks, channels and threads, which wait by futexes.

use crate::common::{on_one_and_two_workers, waits_for};
use cringle::fiber;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, LazyLock, Mutex, OnceLock, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const FIBERS: usize = 20;

fn pause() {
    thread::sleep(Duration::from_micros(200));
}

#[test]
fn std_mutex_held_over_a_wait_excludes() {
    on_one_and_two_workers(|| {
        let (lock, inside) = (Mutex::new(0), AtomicUsize::new(0));
        fiber::scope(|s| {
            for _ in 0..FIBERS {
                s.spawn(|| {
                    for _ in 0..3 {
                        let mut guard = lock.lock().unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        *guard += 1;
                        pause();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(lock.into_inner().unwrap(), 3 * FIBERS);
    });
}

#[test]
fn fibers_and_threads_share_a_std_mutex() {
    on_one_and_two_workers(|| {
        let lock = Mutex::new(0);
        let count = || {
            for _ in 0..100 {
                let mut guard = lock.lock().unwrap();
                let before = *guard;
                if before % 16 == 0 {
                    pause();
                }
                *guard = before + 1;
            }
        };
        thread::scope(|t| {
            let threads = [t.spawn(count), t.spawn(count)];
            fiber::scope(|s| {
                for _ in 0..4 {
                    s.spawn(count);
                }
            });
            for thread in threads {
                thread.join().unwrap();
            }
        });
        assert_eq!(lock.into_inner().unwrap(), 600);
    });
}

#[test]
fn std_rwlock_lets_readers_in_together() {
    on_one_and_two_workers(|| {
        let lock = RwLock::new(0);
        fiber::scope(|s| {
            for i in 0..FIBERS {
                let lock = &lock;
                s.spawn(move || {
                    for _ in 0..3 {
                        if i % 3 == 0 {
                            let mut guard = lock.write().unwrap();
                            let before = *guard;
                            pause();
                            *guard = before + 1;
                        } else {
                            let guard = lock.read().unwrap();
                            let before = *guard;
                            pause();
                            assert_eq!(*guard, before);
                        }
                    }
                });
            }
        });
        assert_eq!(lock.into_inner().unwrap(), 3 * FIBERS.div_ceil(3));
    });
}

#[test]
fn std_condvar_passes_a_baton() {
    on_one_and_two_workers(|| {
        let (turn, changed) = (Mutex::new(0), Condvar::new());
        fiber::scope(|s| {
            for i in (0..FIBERS).rev() {
                let (turn, changed) = (&turn, &changed);
                s.spawn(move || {
                    let guard = turn.lock().unwrap();
                    let mut guard = changed.wait_while(guard, |turn| *turn != i).unwrap();
                    *guard += 1;
                    changed.notify_all();
                });
            }
        });
        assert_eq!(turn.into_inner().unwrap(), FIBERS);
    });
}

#[test]
fn std_condvar_times_out() {
    on_one_and_two_workers(|| {
        let (lock, changed) = (Mutex::new(()), Condvar::new());
        let begun = Instant::now();
        let limit = Duration::from_millis(20);
        let (_guard, result) = changed.wait_timeout(lock.lock().unwrap(), limit).unwrap();
        assert!(result.timed_out() && begun.elapsed() >= limit);
    });
}

#[test]
fn std_channels_connect_fibers_and_threads() {
    on_one_and_two_workers(|| {
        let (to_fiber, from_thread) = mpsc::channel();
        let (to_thread, from_fiber) = mpsc::sync_channel(0);
        let thread = thread::spawn(move || {
            for i in 0..100 {
                to_fiber.send(i).unwrap();
            }
            drop(to_fiber);
            from_fiber.iter().sum::<u32>()
        });
        fiber::scope(|s| {
            s.spawn(move || {
                for number in from_thread {
                    to_thread.send(number).unwrap();
                }
            });
        });
        assert_eq!(thread.join().unwrap(), 4950);
    });
}

#[test]
fn several_std_channels_are_used_at_once() {
    on_one_and_two_workers(|| {
        fiber::scope(|s| {
            for _ in 0..4 {
                let (sender, receiver) = mpsc::channel();
                s.spawn(move || (0..50).for_each(|i| assert_eq!(receiver.recv(), Ok(i))));
                s.spawn(move || {
                    for i in 0..50 {
                        sender.send(i).unwrap();
                        if i % 7 == 0 {
                            pause();
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn std_park_is_the_fibers_own() {
    on_one_and_two_workers(|| {
        let (sender, receiver) = mpsc::channel();
        fiber::scope(|s| {
            for i in 0..4 {
                let sender = sender.clone();
                s.spawn(move || {
                    sender.send((i, thread::current())).unwrap();
                    (0..10).for_each(|_| thread::park());
                });
            }
            drop(sender);
            let parked: Vec<_> = receiver.iter().take(4).collect();
            s.spawn(move || {
                for _ in 0..200 {
                    pause();
                    parked.iter().for_each(|(_, thread)| thread.unpark());
                }
            });
        });
    });
}

#[test]
fn lazy_initialiser_that_waits_runs_once() {
    on_one_and_two_workers(|| {
        let (cell, runs) = (OnceLock::new(), AtomicUsize::new(0));
        fiber::scope(|s| {
            for _ in 0..FIBERS {
                s.spawn(|| {
                    let value = cell.get_or_init(|| {
                        pause();
                        runs.fetch_add(1, Ordering::SeqCst);
                        7
                    });
                    assert_eq!(*value, 7);
                });
            }
        });
        assert_eq!(runs.into_inner(), 1);
    });
    static LAZY: LazyLock<u32> = LazyLock::new(|| {
        pause();
        9
    });
    cringle::run(|| fiber::scope(|s| drop([(); 5].map(|()| s.spawn(|| assert_eq!(*LAZY, 9))))));
}

#[test]
fn std_barrier_releases_all_fibers() {
    on_one_and_two_workers(|| {
        let barrier = Barrier::new(FIBERS);
        let leaders = AtomicUsize::new(0);
        fiber::scope(|s| {
            for _ in 0..FIBERS {
                s.spawn(|| {
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(leaders.into_inner(), 1);
    });
}

#[test]
fn joining_a_std_thread_waits_only_its_fiber() {
    on_one_and_two_workers(|| {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || receiver.recv().unwrap());
        let value = waits_for(|| thread.join().unwrap(), || sender.send(5).unwrap());
        assert_eq!(value, 5);
        fiber::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| thread::scope(|t| drop(t.spawn(pause))));
            }
        });
    });
}

#[test]
fn cancelled_fiber_gets_its_lock_nevertheless() {
    on_one_and_two_workers(|| {
        let lock = Mutex::new(0);
        fiber::scope(|s| {
            let guard = lock.lock().unwrap();
            for _ in 0..3 {
                s.spawn(|| {
                    *lock.lock().unwrap() += 1;
                    assert!(fiber::yield_now_cancellable().is_err());
                });
            }
            fiber::sleep(Duration::from_millis(2));
            s.cancel();
            let _ = fiber::protect(|| fiber::sleep_cancellable(Duration::from_millis(2)));
            assert_eq!(*guard, 0);
            drop(guard);
        });
        assert_eq!(lock.into_inner().unwrap(), 3);
    });
}
