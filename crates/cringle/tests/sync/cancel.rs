//! Cancelled waits of `cringle::sync`: each unwinds or returns an error, poisons nothing, and loses
//! nothing.

use cringle::sync::{
    Barrier, Condvar, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup, mpmc, mpsc, oneshot,
    watch,
};
use cringle::{Cancelled, fiber, time};
use cringle_testing::tools::{is_cancelled, on_one_worker, on_two_workers, yield_times};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(3600);

/// Runs `wait` on a fiber that is cancelled while it waits.
fn cancelled<T: 'static>(wait: impl FnOnce() -> T + 'static) -> fiber::Result<T> {
    let handle = on_one_worker(|| {
        let handle = fiber::spawn_local(wait);
        yield_times(3);
        assert!(!handle.is_finished(), "the fiber waits");
        handle
    });
    handle.join()
}

fn assert_unwinds<T: 'static>(wait: impl FnOnce() -> T + 'static) {
    let payload = cancelled(wait).err().expect("the wait was cancelled");
    assert!(payload.is::<Cancelled>());
}

fn assert_fails<T: 'static>(wait: impl FnOnce() -> io::Result<T> + 'static) {
    let result = cancelled(wait).expect("the call returns");
    let error = result.err().expect("the wait was cancelled");
    assert!(is_cancelled(&error), "{error:?}");
}

/// Returns a call of `f` that owns a reference to its argument.
fn with<S, T, F: FnOnce(&S) -> T>(shared: &Arc<S>, f: F) -> impl FnOnce() -> T + use<S, T, F> {
    let shared = Arc::clone(shared);
    move || f(&shared)
}

#[test]
fn cancelled_waiters_leave_the_queue_of_a_lock() {
    let mutex = Arc::new(Mutex::new(1));
    let guard = mutex.lock().unwrap();
    assert_unwinds(with(&mutex, |mutex| drop(mutex.lock())));
    assert_fails(with(&mutex, |mutex| mutex.lock_cancellable().map(drop)));
    drop(guard);
    assert_eq!(*mutex.try_lock().unwrap(), 1);

    let lock = Arc::new(RwLock::new(1));
    let guard = lock.write().unwrap();
    assert_unwinds(with(&lock, |lock| drop(lock.read())));
    assert_fails(with(&lock, |lock| lock.read_cancellable().map(drop)));
    drop(guard);
    let guard = lock.read().unwrap();
    assert_unwinds(with(&lock, |lock| drop(lock.write())));
    assert_fails(with(&lock, |lock| lock.write_cancellable().map(drop)));
    // The writers have left the queue, so readers do not wait for them.
    assert_eq!(*lock.try_read().unwrap(), 1);
    drop(guard);
    assert!(lock.try_write().is_ok());
}

/// A reader that queued behind a writer is woken when the writer is cancelled.
#[test]
fn reader_behind_cancelled_writer_is_woken() {
    /// Reads while its fiber unwinds, so that the wait is not cancelled.
    struct ReadsOnDrop(Arc<RwLock<u8>>);
    impl Drop for ReadsOnDrop {
        fn drop(&mut self) {
            assert_eq!(*self.0.read().unwrap(), 1);
        }
    }
    let lock = Arc::new(RwLock::new(1));
    let _guard = lock.read().unwrap();
    let (reader, writer) = on_one_worker(|| {
        // Fibers are cancelled in this order, so the reader queues before the writer leaves.
        let reads = ReadsOnDrop(Arc::clone(&lock));
        let reader = fiber::spawn_local(move || {
            let _reads = reads;
            fiber::park();
        });
        let writer = fiber::spawn_local(with(&lock, |lock| drop(lock.write())));
        yield_times(2);
        assert!(lock.try_read().is_err(), "a writer waits");
        (reader, writer)
    });
    assert!(reader.join().unwrap_err().is::<Cancelled>());
    assert!(writer.join().unwrap_err().is::<Cancelled>());
}

#[test]
fn cancelled_waiters_do_not_count() {
    let barrier = Arc::new(Barrier::new(2));
    assert_unwinds(with(&barrier, Barrier::wait));
    assert_fails(with(&barrier, Barrier::wait_cancellable));
    // Two waiters have left, so two more are needed.
    on_one_worker(|| {
        let waits = fiber::spawn_local(with(&barrier, |barrier| barrier.wait().is_leader()));
        yield_times(2);
        assert!(!waits.is_finished());
        assert!(barrier.wait().is_leader());
        assert!(!waits.join().unwrap());
    });

    let group = WaitGroup::new();
    let (first, second) = (group.clone(), group.clone());
    assert_unwinds(move || first.wait());
    assert_fails(move || second.wait_cancellable());
    group.wait();

    let semaphore = Arc::new(Semaphore::new(1));
    assert_unwinds(with(&semaphore, |semaphore| drop(semaphore.acquire_many(2))));
    assert_fails(with(&semaphore, |semaphore| semaphore.acquire_many_cancellable(2).map(drop)));
    assert!(semaphore.try_acquire().is_some(), "the queue is empty");
}

#[test]
fn wait_for_an_initialisation_can_be_cancelled() {
    let (lock, once) = (Arc::new(OnceLock::<u8>::new()), Arc::new(Once::new()));
    assert_unwinds(with(&lock, |lock| *lock.wait()));
    assert_fails(with(&lock, |lock| lock.wait_cancellable().copied()));
    assert_unwinds(with(&once, Once::wait));
    assert_fails(with(&once, Once::wait_cancellable));
    // A cancelled closure is no panic: another closure can run.
    assert_unwinds(with(&once, |once| once.call_once(|| fiber::sleep(Duration::MAX))));
    once.call_once(|| ());
    assert_unwinds(with(&lock, |lock| *lock.get_or_init(sleep_for_ever)));
    assert_eq!(*lock.get_or_init(|| 7), 7);
}

fn sleep_for_ever() -> u8 {
    fiber::sleep(Duration::MAX);
    unreachable!()
}

#[test]
fn cancelled_receive_leaves_the_channel_usable() {
    let (sender, receiver) = mpmc::bounded(1);
    let receiver = Arc::new(receiver);
    assert_unwinds(with(&receiver, |receiver| receiver.recv()));
    assert_unwinds(with(&receiver, |receiver| receiver.recv_timeout(LONG)));
    assert_fails(with(&receiver, |receiver| receiver.recv_cancellable()));
    assert_fails(with(&receiver, |receiver| receiver.recv_timeout_cancellable(LONG)));
    sender.send(1).unwrap();
    assert_eq!(receiver.recv(), Ok(1));

    let (_sender, receiver) = mpsc::channel::<()>();
    assert_unwinds(move || receiver.recv());
    let (_sender, receiver) = mpsc::channel::<()>();
    assert_fails(move || receiver.recv_cancellable());
    let (_sender, receiver) = oneshot::channel::<()>();
    assert_unwinds(move || receiver.recv());
    let (_sender, receiver) = oneshot::channel::<()>();
    assert_fails(move || receiver.recv_cancellable());
    let (_sender, mut receiver) = watch::channel(0);
    let mut other = receiver.clone();
    assert_unwinds(move || receiver.changed());
    assert_fails(move || other.changed_cancellable());
}

#[test]
fn wait_for_a_value_can_be_cancelled() {
    let (sender, receiver) = watch::channel(0);
    let mut waiting = receiver.clone();
    assert_unwinds(move || waiting.wait_for(|value| *value > 0).map(drop));
    let mut waiting = receiver.clone();
    assert_fails(move || waiting.wait_for_cancellable(|value| *value > 0).map(drop));
    // It also waits while a sender changes the value.
    let mut waiting = receiver.clone();
    sender.send_modify(move |_| {
        assert_fails(move || waiting.wait_for_cancellable(|_| true).map(drop));
    });
    sender.send(1).unwrap();
    let mut seen = receiver.clone();
    assert_eq!(seen.wait_for_cancellable(|value| *value > 0).unwrap().as_deref(), Ok(&1));
}

#[test]
fn cancelled_send_returns_its_value() {
    for bound in [0, 1] {
        let (sender, receiver) = mpsc::sync_channel(bound);
        (0..bound).for_each(|n| sender.send(n).unwrap());
        let sender = Arc::new(sender);
        assert_unwinds(with(&sender, |sender| sender.send(8)));
        let send = with(&sender, |sender| sender.send_cancellable(9).unwrap_err().into_parts());
        let (value, reason) = cancelled(send).unwrap();
        assert_eq!(value, 9);
        assert!(is_cancelled(&reason));
        drop(sender);
        assert!(receiver.iter().eq(0..bound), "a value that was not sent is not received");
    }
    let (sender, _receiver) = watch::channel(1);
    let sender = Arc::new(sender);
    let borrowed = sender.borrow();
    let send = with(&sender, |sender| sender.send_cancellable(2).unwrap_err().into_inner());
    assert_eq!((cancelled(send).unwrap(), *borrowed), (2, 1));
}

#[test]
fn cancel_is_sticky() {
    let (sender, receiver) = mpsc::sync_channel(4);
    sender.send(1).unwrap();
    let (errors, receiver) = cancelled(move || {
        catch_unwind(fiber::park).unwrap_err();
        let sent = sender.send_cancellable(2).unwrap_err().into_parts().1;
        let received = receiver.recv_cancellable().unwrap_err();
        assert!(catch_unwind(AssertUnwindSafe(|| receiver.recv())).is_err());
        // Calls that do not wait still succeed.
        assert_eq!(sender.try_send(3), Ok(()));
        drop(Mutex::new(()).lock().unwrap());
        drop(Semaphore::new(1).acquire_cancellable().unwrap());
        ([sent, received], receiver)
    })
    .unwrap();
    assert!(errors.iter().all(is_cancelled));
    assert!(receiver.iter().eq([1, 3]));
}

#[test]
fn loop_of_refused_locks_is_unwound() {
    let state = Arc::new((Mutex::new(()), AtomicUsize::new(0)));
    let _guard = state.0.lock().unwrap();
    assert_unwinds(with(&state, |(mutex, count)| {
        while mutex.lock_cancellable().is_err() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }));
    assert_eq!(state.1.load(Ordering::Relaxed), 1000);
}

// ----- poison -----

#[test]
fn cancel_poisons_nothing() {
    let locks = Arc::new((Mutex::new(1), RwLock::new(1)));
    assert_unwinds(with(&locks, |(mutex, lock)| {
        let (_guard, _writes) = (mutex.lock().unwrap(), lock.write().unwrap());
        fiber::scope(|s| {
            s.spawn_local(|| {
                let own = Mutex::new(());
                let _guard = own.lock().unwrap();
                fiber::park();
            });
        });
    }));
    assert!(locks.0.lock().is_ok() && locks.1.write().is_ok());
}

#[test]
fn panic_after_a_caught_cancel_poisons() {
    let mutex = Arc::new(Mutex::new(1));
    let result = cancelled(with(&mutex, |mutex| {
        catch_unwind(fiber::park).unwrap_err();
        let _guard = mutex.lock().unwrap();
        resume_unwind(Box::new("a panic"));
    }));
    assert!(result.unwrap_err().is::<&str>());
    assert!(mutex.is_poisoned());
}

/// No cancel reaches a destructor that a cancel runs.
#[test]
fn destructor_can_wait_for_locks_and_channels() {
    struct Waits(mpsc::SyncSender<u8>, mpsc::Receiver<u8>, Arc<Mutex<u8>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert_eq!(self.1.recv(), Ok(1));
            self.0.send(2).unwrap();
            *self.2.lock().unwrap() += 1;
        }
    }
    let (to_fiber, from_thread) = mpsc::sync_channel(0);
    let (to_thread, from_fiber) = mpsc::sync_channel(0);
    let mutex = Arc::new(Mutex::new(0));
    thread::scope(|threads| {
        let (of_thread, of_fiber) = (Arc::clone(&mutex), Arc::clone(&mutex));
        threads.spawn(move || {
            let guard = of_thread.lock().unwrap();
            to_fiber.send(1).unwrap();
            assert_eq!(from_fiber.recv(), Ok(2));
            drop(guard);
        });
        assert_unwinds(move || {
            let _waits = Waits(to_thread, from_thread, of_fiber);
            fiber::park();
        });
    });
    assert_eq!(*mutex.lock().unwrap(), 1);
}

// ----- nothing is lost -----

#[test]
fn completed_wait_wins_over_later_cancel() {
    let (sender, receiver) = mpsc::channel();
    let mutex = Arc::new(Mutex::new(3));
    let semaphore = Arc::new(Semaphore::new(0));
    let handles = on_one_worker(|| {
        let guard = mutex.lock().unwrap();
        let receives = fiber::spawn_local(move || receiver.recv());
        let locks = fiber::spawn_local(with(&mutex, |mutex| *mutex.lock().unwrap()));
        let acquires = fiber::spawn_local(with(&semaphore, |it| it.acquire().forget()));
        yield_times(2);
        // The closure completes each wait, and returns before the fibers resume.
        sender.send(7).unwrap();
        semaphore.add_permits(1);
        drop(guard);
        (receives, locks, acquires)
    });
    assert_eq!(handles.0.join().unwrap(), Ok(7));
    assert_eq!(handles.1.join().unwrap(), 3);
    handles.2.join().unwrap();
    assert_eq!(semaphore.available(), 0);
}

#[test]
fn cancelled_receivers_lose_no_value() {
    for capacity in [0, 1, 64] {
        for round in 0..30 {
            let (sender, receiver) = mpmc::bounded(capacity);
            let thread = thread::spawn(move || (0..40).for_each(|n| sender.send(n).unwrap()));
            let handles = on_two_workers(|| {
                let handles: Vec<_> = (0..4)
                    .map(|n| {
                        let receiver = receiver.clone();
                        let receive = move || {
                            let mut received = Vec::new();
                            while let Ok(Ok(value)) = receiver.recv_cancellable() {
                                received.push(value);
                            }
                            received
                        };
                        fiber::Builder::new().worker(n % 2).spawn(receive).unwrap()
                    })
                    .collect();
                yield_times(round);
                handles
            });
            let received = handles.into_iter().flat_map(|handle| handle.join().unwrap());
            let mut all: Vec<_> = received.collect();
            all.extend(&receiver);
            thread.join().unwrap();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..40));
        }
    }
}

#[test]
fn cancelled_senders_lose_no_value() {
    for round in 0..50 {
        let (sender, receiver) = mpmc::bounded(round % 3);
        let thread = thread::spawn(move || receiver.iter().collect::<Vec<_>>());
        let handles = on_two_workers(|| {
            let handles: Vec<_> = (0..4)
                .map(|n| {
                    let sender = sender.clone();
                    let send = move || {
                        (0..).find_map(|k| sender.send_cancellable(n + 4 * k).err()).unwrap()
                    };
                    fiber::Builder::new().worker(n % 2).spawn(send).unwrap()
                })
                .collect();
            yield_times(round);
            handles
        });
        drop(sender);
        let unsent = handles.into_iter().map(|handle| handle.join().unwrap());
        let unsent: Vec<_> = unsent.map(cringle::sync::Unsent::into_inner).collect();
        let received = thread.join().unwrap();
        for value in unsent {
            let from_sender = received.iter().filter(|&&n| n % 4 == value % 4);
            assert!(from_sender.copied().eq((value % 4..value).step_by(4)));
        }
    }
}

#[test]
fn cancelled_fibers_lose_no_permit_or_lock() {
    let (semaphore, mutex, lock) = (Semaphore::new(2), Mutex::new(()), RwLock::new(()));
    let all = Arc::new((semaphore, mutex, lock));
    for round in 0..50 {
        let work = || {
            for n in 0..8 {
                let all = Arc::clone(&all);
                let uses = move || {
                    loop {
                        let permit = all.0.acquire_many(1 + n % 2);
                        let guard = all.1.lock().unwrap();
                        fiber::yield_now();
                        drop((permit, guard));
                        match n % 3 {
                            0 => drop(all.2.write().unwrap()),
                            _ => drop(all.2.read().unwrap()),
                        }
                    }
                };
                fiber::Builder::new().worker(n % 2).spawn(uses).unwrap();
            }
            yield_times(round);
        };
        on_two_workers(work);
        assert_eq!(all.0.available(), 2);
        assert!(all.0.try_acquire_many(2).is_some(), "the queue is empty");
        assert!(all.1.try_lock().is_ok() && all.2.try_write().is_ok());
    }
}

/// The notified fiber is cancelled before it has locked the mutex again, so the notification must
/// go to the next waiter.
#[test]
fn notification_of_cancelled_fiber_goes_to_the_next() {
    let state = Arc::new((Mutex::new(0), Condvar::new()));
    thread::scope(|threads| {
        let mut kept = None;
        let (cancelled, next) = on_one_worker(|| {
            let cancelled = fiber::spawn_local(with(&state, |(mutex, changed)| {
                *mutex.lock().unwrap() += 1;
                drop(changed.wait(mutex.lock().unwrap()));
            }));
            yield_times(2);
            let next = threads.spawn(|| {
                let mut count = state.0.lock().unwrap();
                *count += 1;
                state.1.wait_timeout(count, LONG).unwrap().1.timed_out()
            });
            while *state.0.lock().unwrap() < 2 {
                fiber::yield_now();
            }
            // Both wait. The first is notified, and cannot lock the mutex.
            kept = Some(state.0.lock().unwrap());
            state.1.notify_one();
            (cancelled, next)
        });
        assert!(cancelled.join().unwrap_err().is::<Cancelled>());
        drop(kept);
        assert!(!next.join().unwrap(), "the notification was lost");
    });
}

#[test]
fn cancelled_wait_on_condvar_releases_the_lock() {
    let state = Arc::new((Mutex::new(0), Condvar::new()));
    assert_unwinds(with(&state, |(mutex, changed)| drop(changed.wait(mutex.lock().unwrap()))));
    assert_unwinds(with(&state, |(mutex, changed)| {
        drop(changed.wait_while(mutex.lock().unwrap(), |_| true));
    }));
    assert_unwinds(with(&state, |(mutex, changed)| {
        drop(changed.wait_timeout(mutex.lock().unwrap(), LONG));
    }));
    assert_fails(with(&state, |(mutex, changed)| {
        changed.wait_cancellable(mutex.lock().unwrap()).map(drop)
    }));
    assert_fails(with(&state, |(mutex, changed)| {
        changed.wait_while_cancellable(mutex.lock().unwrap(), |_| true).map(drop)
    }));
    assert_fails(with(&state, |(mutex, changed)| {
        changed.wait_timeout_cancellable(mutex.lock().unwrap(), LONG).map(drop)
    }));
    assert_fails(with(&state, |(mutex, changed)| {
        let guard = mutex.lock().unwrap();
        changed.wait_timeout_while_cancellable(guard, LONG, |_| true).map(drop)
    }));
    assert!(state.0.try_lock().is_ok());
}

/// The lock is held since before the cancel.
#[test]
fn panic_after_a_deadline_poisons() {
    let lock = Mutex::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        cringle::run(|| {
            let _guard = lock.lock().unwrap();
            let limit = Duration::from_micros(1);
            let asleep = || {
                fiber::sleep(Duration::MAX);
                Ok(())
            };
            time::timeout(limit, asleep).unwrap_err();
            panic!("with the guard");
        })
    }));
    assert!(outcome.is_err());
    assert!(lock.is_poisoned());
}
