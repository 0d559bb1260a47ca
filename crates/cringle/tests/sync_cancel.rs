//! What a wait in `cringle::sync` does when its fiber is cancelled: it unwinds or says so, poisons
//! nothing, and loses nothing.

use cringle::sync::{
    Barrier, Condvar, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup, mpmc, mpsc, oneshot,
    watch,
};
use cringle::{Builder, Cancelled, fiber, time};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(1).run(f).unwrap()
}

fn yield_times(count: usize) {
    (0..count).for_each(|_| fiber::yield_now());
}

fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Cancelled>())
}

/// Runs this on a fiber that is cancelled while it waits.
fn cancelled<T: 'static>(wait: impl FnOnce() -> T + 'static) -> fiber::Result<T> {
    let handle = on_one_worker(|| {
        let handle = fiber::spawn_local(wait);
        yield_times(3);
        assert!(!handle.is_finished(), "it waits");
        handle
    });
    handle.join()
}

fn unwinds<T: 'static>(wait: impl FnOnce() -> T + 'static) {
    let payload = cancelled(wait).err().expect("it was cancelled");
    assert!(payload.is::<Cancelled>());
}

fn is_told<T: 'static>(wait: impl FnOnce() -> io::Result<T> + 'static) {
    let error = cancelled(wait).expect("it returns").err().expect("it was cancelled");
    assert!(is_cancelled(&error), "{error:?}");
}

/// A value of which the test keeps a share.
fn shared<T>(value: T) -> (Arc<T>, Arc<T>) {
    let value = Arc::new(value);
    (Arc::clone(&value), value)
}

#[test]
fn a_wait_for_a_lock_is_interrupted_and_the_lock_stays_whole() {
    let (mutex, theirs) = shared(Mutex::new(1));
    let guard = mutex.lock().unwrap();
    unwinds(move || drop(theirs.lock()));
    let theirs = Arc::clone(&mutex);
    is_told(move || theirs.lock_cancellable().map(drop));
    drop(guard);
    assert_eq!(*mutex.try_lock().unwrap(), 1);

    let (lock, theirs) = shared(RwLock::new(1));
    let guard = lock.write().unwrap();
    unwinds(move || drop(theirs.read()));
    let theirs = Arc::clone(&lock);
    is_told(move || theirs.read_cancellable().map(drop));
    drop(guard);
    let guard = lock.read().unwrap();
    let theirs = Arc::clone(&lock);
    unwinds(move || drop(theirs.write()));
    let theirs = Arc::clone(&lock);
    is_told(move || theirs.write_cancellable().map(drop));
    // The writers have left: readers need not wait for them.
    assert_eq!(*lock.try_read().unwrap(), 1);
    drop(guard);
    assert!(lock.try_write().is_ok());
}

/// A reader behind a writer may read as soon as that one has given up.
#[test]
fn a_reader_behind_a_writer_that_leaves_goes_on() {
    /// Reads while its fiber unwinds, when nothing interrupts it.
    struct ReadsOnDrop(Arc<RwLock<u8>>);
    impl Drop for ReadsOnDrop {
        fn drop(&mut self) {
            assert_eq!(*self.0.read().unwrap(), 1);
        }
    }
    let (lock, theirs) = shared(RwLock::new(1));
    let _guard = lock.read().unwrap();
    let (reader, writer) = on_one_worker(|| {
        // Fibers are cancelled in this order: the reader comes before the writer leaves.
        let reads = ReadsOnDrop(Arc::clone(&lock));
        let reader = fiber::spawn_local(move || {
            let _reads = reads;
            fiber::park();
        });
        let writer = fiber::spawn_local(move || drop(theirs.write()));
        yield_times(2);
        assert!(lock.try_read().is_err(), "a writer waits");
        (reader, writer)
    });
    assert!(reader.join().unwrap_err().is::<Cancelled>());
    assert!(writer.join().unwrap_err().is::<Cancelled>());
}

#[test]
fn a_wait_for_others_is_interrupted() {
    let (barrier, theirs) = shared(Barrier::new(2));
    unwinds(move || theirs.wait());
    let theirs = Arc::clone(&barrier);
    is_told(move || theirs.wait_cancellable());
    // Those who left do not count.
    let theirs = Arc::clone(&barrier);
    on_one_worker(move || {
        let waits = fiber::spawn_local(move || theirs.wait().is_leader());
        yield_times(2);
        assert!(!waits.is_finished());
        assert!(barrier.wait().is_leader());
        assert!(!waits.join().unwrap());
    });

    let group = WaitGroup::new();
    let (first, second) = (group.clone(), group.clone());
    unwinds(move || first.wait());
    is_told(move || second.wait_cancellable());
    group.wait();

    let (semaphore, theirs) = shared(Semaphore::new(1));
    unwinds(move || drop(theirs.acquire_many(2)));
    let theirs = Arc::clone(&semaphore);
    is_told(move || theirs.acquire_many_cancellable(2).map(drop));
    assert!(semaphore.try_acquire().is_some(), "nobody waits any more");
}

#[test]
fn a_wait_for_an_initialisation_is_interrupted() {
    let lock = Arc::new(OnceLock::<u8>::new());
    let theirs = Arc::clone(&lock);
    unwinds(move || *theirs.wait());
    let theirs = Arc::clone(&lock);
    is_told(move || theirs.wait_cancellable().copied());
    let once = Arc::new(Once::new());
    let theirs = Arc::clone(&once);
    unwinds(move || theirs.wait());
    let theirs = Arc::clone(&once);
    is_told(move || theirs.wait_cancellable());
    // A closure that is itself interrupted has not panicked: another one may run.
    let theirs = Arc::clone(&once);
    unwinds(move || theirs.call_once(|| fiber::sleep(Duration::MAX)));
    once.call_once(|| ());
    let theirs = Arc::clone(&lock);
    unwinds(move || *theirs.get_or_init(waits_for_ever));
    assert_eq!(*lock.get_or_init(|| 7), 7);
}

fn waits_for_ever() -> u8 {
    fiber::sleep(Duration::MAX);
    unreachable!()
}

#[test]
fn a_receive_is_interrupted_and_the_channel_stays_whole() {
    let (sender, receiver) = mpmc::bounded(1);
    let theirs = receiver.clone();
    unwinds(move || theirs.recv());
    let theirs = receiver.clone();
    unwinds(move || theirs.recv_timeout(LONG));
    let theirs = receiver.clone();
    is_told(move || theirs.recv_cancellable());
    let theirs = receiver.clone();
    is_told(move || theirs.recv_timeout_cancellable(LONG));
    sender.send(1).unwrap();
    assert_eq!(receiver.recv(), Ok(1));

    let (_sender, receiver) = mpsc::channel::<()>();
    unwinds(move || receiver.recv());
    let (_sender, receiver) = mpsc::channel::<()>();
    is_told(move || receiver.recv_cancellable());
    let (_sender, receiver) = oneshot::channel::<()>();
    unwinds(move || receiver.recv());
    let (_sender, receiver) = oneshot::channel::<()>();
    is_told(move || receiver.recv_cancellable());
    let (_sender, mut receiver) = watch::channel(0);
    let mut other = receiver.clone();
    unwinds(move || receiver.changed());
    is_told(move || other.changed_cancellable());
}

#[test]
fn a_send_is_interrupted_and_its_value_comes_back() {
    for bound in [0, 1] {
        let (sender, receiver) = mpsc::sync_channel(bound);
        (0..bound).for_each(|n| sender.send(n).unwrap());
        let theirs = sender.clone();
        unwinds(move || theirs.send(8));
        let theirs = sender.clone();
        let (value, reason) =
            cancelled(move || theirs.send_cancellable(9).unwrap_err().into_parts()).unwrap();
        assert_eq!(value, 9);
        assert!(is_cancelled(&reason));
        drop(sender);
        assert!(receiver.iter().eq(0..bound), "what was not sent is not received");
    }
    let (sender, _receiver) = watch::channel(1);
    let sender = Arc::new(sender);
    let borrowed = sender.borrow();
    let theirs = Arc::clone(&sender);
    let back = cancelled(move || theirs.send_cancellable(2).unwrap_err().into_inner()).unwrap();
    assert_eq!((back, *borrowed), (2, 1));
}

#[test]
fn a_cancel_is_sticky_here_too() {
    let (sender, receiver) = mpsc::sync_channel(4);
    sender.send(1).unwrap();
    let (errors, receiver) = cancelled(move || {
        catch_unwind(fiber::park).unwrap_err();
        let sent = sender.send_cancellable(2).unwrap_err().into_parts().1;
        let received = receiver.recv_cancellable().unwrap_err();
        assert!(catch_unwind(AssertUnwindSafe(|| receiver.recv())).is_err());
        // What need not wait goes on.
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
fn a_twin_that_is_asked_again_and_again_unwinds_in_the_end() {
    let (mutex, theirs) = shared(Mutex::new(()));
    let _guard = mutex.lock().unwrap();
    let (count, counts) = shared(AtomicUsize::new(0));
    unwinds(move || {
        while theirs.lock_cancellable().is_err() {
            counts.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 1000);
}

// ----- poison -----

#[test]
fn a_fiber_that_is_unwound_by_a_cancel_poisons_nothing() {
    let (mutex, theirs) = shared(Mutex::new(1));
    let (lock, also) = shared(RwLock::new(1));
    unwinds(move || {
        let (_guard, _writes) = (theirs.lock().unwrap(), also.write().unwrap());
        fiber::scope(|s| {
            s.spawn_local(|| {
                let own = Mutex::new(());
                let _guard = own.lock().unwrap();
                fiber::park();
            });
        });
    });
    assert!(mutex.lock().is_ok() && lock.write().is_ok());
}

#[test]
fn a_panic_after_a_cancel_that_was_caught_poisons() {
    let (mutex, theirs) = shared(Mutex::new(1));
    let result = cancelled(move || {
        catch_unwind(fiber::park).unwrap_err();
        let _guard = theirs.lock().unwrap();
        resume_unwind(Box::new("a panic"));
    });
    assert!(result.unwrap_err().is::<&str>());
    assert!(mutex.is_poisoned());
}

/// A destructor of a fiber that a cancel unwinds waits for locks and channels undisturbed.
#[test]
fn a_destructor_may_wait() {
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
    let (mutex, theirs) = shared(Mutex::new(0));
    thread::scope(|threads| {
        let also = Arc::clone(&mutex);
        threads.spawn(move || {
            let guard = also.lock().unwrap();
            to_fiber.send(1).unwrap();
            assert_eq!(from_fiber.recv(), Ok(2));
            drop(guard);
        });
        unwinds(move || {
            let _waits = Waits(to_thread, from_thread, theirs);
            fiber::park();
        });
    });
    assert_eq!(*mutex.lock().unwrap(), 1);
}

// ----- nothing is lost -----

#[test]
fn what_is_in_wins_over_a_cancel_that_comes_late() {
    let (sender, receiver) = mpsc::channel();
    let (mutex, theirs) = shared(Mutex::new(3));
    let (semaphore, permits) = shared(Semaphore::new(0));
    let handles = on_one_worker(|| {
        let guard = mutex.lock().unwrap();
        let receives = fiber::spawn_local(move || receiver.recv());
        let locks = fiber::spawn_local(move || *theirs.lock().unwrap());
        let acquires = fiber::spawn_local(move || permits.acquire().forget());
        yield_times(2);
        // All is handed over, and the closure returns before they run again.
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
fn no_value_is_lost_to_receivers_that_are_cancelled_meanwhile() {
    for capacity in [0, 1, 64] {
        for round in 0..30 {
            let (sender, receiver) = mpmc::bounded(capacity);
            let thread = thread::spawn(move || (0..40).for_each(|n| sender.send(n).unwrap()));
            let handles = Builder::new().workers(2).run(|| {
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
            let received = handles.unwrap().into_iter().flat_map(|handle| handle.join().unwrap());
            let mut all: Vec<_> = received.collect();
            all.extend(&receiver);
            thread.join().unwrap();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..40));
        }
    }
}

#[test]
fn no_value_is_lost_by_senders_that_are_cancelled_meanwhile() {
    for round in 0..50 {
        let (sender, receiver) = mpmc::bounded(round % 3);
        let thread = thread::spawn(move || receiver.iter().collect::<Vec<_>>());
        let handles = Builder::new().workers(2).run(|| {
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
        let unsent = handles.unwrap().into_iter().map(|handle| handle.join().unwrap());
        let unsent: Vec<_> = unsent.map(cringle::sync::Unsent::into_inner).collect();
        let received = thread.join().unwrap();
        for value in unsent {
            let theirs = received.iter().filter(|&&n| n % 4 == value % 4);
            assert!(theirs.copied().eq((value % 4..value).step_by(4)));
        }
    }
}

#[test]
fn no_permit_and_no_lock_is_lost_to_fibers_that_are_cancelled_meanwhile() {
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
        Builder::new().workers(2).run(work).unwrap();
        assert_eq!(all.0.available(), 2);
        assert!(all.0.try_acquire_many(2).is_some(), "nobody is left in the queue");
        assert!(all.1.try_lock().is_ok() && all.2.try_write().is_ok());
    }
}

/// The one notification goes to a fiber that is cancelled before it has the lock again: it cannot
/// use it, and another one must.
#[test]
fn a_notification_of_a_fiber_that_is_cancelled_goes_to_the_next() {
    let (state, theirs) = shared((Mutex::new(0), Condvar::new()));
    thread::scope(|threads| {
        let mut kept = None;
        let (cancelled, next) = on_one_worker(|| {
            let cancelled = fiber::spawn_local(move || {
                *theirs.0.lock().unwrap() += 1;
                drop(theirs.1.wait(theirs.0.lock().unwrap()));
            });
            yield_times(2);
            let next = threads.spawn(|| {
                let mut count = state.0.lock().unwrap();
                *count += 1;
                state.1.wait_timeout(count, LONG).unwrap().1.timed_out()
            });
            while *state.0.lock().unwrap() < 2 {
                fiber::yield_now();
            }
            // Both wait. The first one is notified and cannot have the lock.
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
fn a_wait_for_a_notification_is_interrupted_and_lets_go_of_the_lock() {
    let (state, theirs) = shared((Mutex::new(0), Condvar::new()));
    unwinds(move || drop(theirs.1.wait(theirs.0.lock().unwrap())));
    let theirs = Arc::clone(&state);
    unwinds(move || drop(theirs.1.wait_while(theirs.0.lock().unwrap(), |_| true)));
    let theirs = Arc::clone(&state);
    unwinds(move || drop(theirs.1.wait_timeout(theirs.0.lock().unwrap(), LONG)));
    let theirs = Arc::clone(&state);
    is_told(move || theirs.1.wait_cancellable(theirs.0.lock().unwrap()).map(drop));
    let theirs = Arc::clone(&state);
    is_told(move || theirs.1.wait_while_cancellable(theirs.0.lock().unwrap(), |_| true).map(drop));
    let theirs = Arc::clone(&state);
    is_told(move || theirs.1.wait_timeout_cancellable(theirs.0.lock().unwrap(), LONG).map(drop));
    let theirs = Arc::clone(&state);
    is_told(move || {
        let guard = theirs.0.lock().unwrap();
        theirs.1.wait_timeout_while_cancellable(guard, LONG, |_| true).map(drop)
    });
    assert!(state.0.try_lock().is_ok());
}

/// A cancel that was caught, and a panic after it: the panic poisons what was locked before both.
#[test]
fn a_panic_after_a_caught_cancel_poisons() {
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
