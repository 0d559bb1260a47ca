//! Channels behave as std's, between fibers of any worker and threads.

use cringle::sync::mpsc::{
    self, RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError,
};
use cringle::sync::{mpmc, oneshot, watch};
use cringle::{Builder, fiber};
use cringle_testing::tools::{on_one_worker, yield_times};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);
const MANY: usize = 5000;

type Side = Box<dyn FnOnce() + Send>;

/// Runs the two sides of a channel on a thread and a fiber, on a fiber and a thread, and on two
/// fibers of the same and of different workers.
fn in_all_places(make: impl Fn() -> (Side, Side), workers: usize) {
    for place in 0..4 {
        let (one, other) = make();
        let spawn = |worker: usize, side: Side| {
            fiber::Builder::new().worker(worker % workers).spawn(side).unwrap()
        };
        let builder = Builder::new().workers(workers);
        if place < 2 {
            let (on_thread, on_fiber) = if place == 0 { (one, other) } else { (other, one) };
            let thread = thread::spawn(on_thread);
            builder.run(|| spawn(1, on_fiber).join().unwrap()).unwrap();
            thread.join().unwrap();
        } else {
            let both = || {
                let handles = [spawn(place, one), spawn(1, other)];
                handles.into_iter().for_each(|handle| handle.join().unwrap());
            };
            builder.run(both).unwrap();
        }
    }
}

#[test]
fn values_arrive_in_order_wherever_both_sides_run() {
    for workers in [1, 2] {
        for bound in [Some(0), Some(1), Some(64), None] {
            in_all_places(
                || {
                    let check = |receiver: mpsc::Receiver<usize>| {
                        assert!(receiver.into_iter().eq(0..MANY));
                    };
                    match bound {
                        Some(bound) => {
                            let (sender, receiver) = mpsc::sync_channel(bound);
                            let send = move || (0..MANY).for_each(|n| sender.send(n).unwrap());
                            (Box::new(send), Box::new(move || check(receiver)))
                        }
                        None => {
                            let (sender, receiver) = mpsc::channel();
                            let send = move || (0..MANY).for_each(|n| sender.send(n).unwrap());
                            (Box::new(send), Box::new(move || check(receiver)))
                        }
                    }
                },
                workers,
            );
        }
    }
}

#[test]
fn two_channels_carry_requests_and_replies() {
    for workers in [1, 2] {
        in_all_places(
            || {
                let (request, requests) = mpsc::sync_channel(1);
                let (reply, replies) = mpsc::channel();
                let client = move || {
                    for n in 0..1000 {
                        request.send(n).unwrap();
                        assert_eq!(replies.recv(), Ok(n + 1));
                    }
                };
                let server = move || requests.iter().for_each(|n| reply.send(n + 1).unwrap());
                (Box::new(client), Box::new(server))
            },
            workers,
        );
    }
}

#[test]
fn many_senders_on_fibers_and_threads_lose_nothing() {
    let (sender, receiver) = mpsc::sync_channel(8);
    thread::scope(|threads| {
        for from in 0..2 {
            let sender = sender.clone();
            threads.spawn(move || (0..MANY).for_each(|n| sender.send((from, n)).unwrap()));
        }
        Builder::new()
            .workers(2)
            .run(|| {
                for from in 2..6 {
                    let sender = sender.clone();
                    let send = move || (0..MANY).for_each(|n| sender.send((from, n)).unwrap());
                    fiber::Builder::new().worker(from % 2).spawn(send).unwrap();
                }
                drop(sender);
                let mut next = [0; 6];
                for (from, n) in &receiver {
                    assert_eq!(n, next[from], "each sender's values arrive in order");
                    next[from] += 1;
                }
                assert_eq!(next, [MANY; 6]);
            })
            .unwrap();
    });
}

#[test]
fn waiting_sender_is_not_overtaken() {
    on_one_worker(|| {
        let (sender, receiver) = mpsc::sync_channel(2);
        let sent = Rc::new(RefCell::new(Vec::new()));
        for n in 0..5 {
            let (sender, sent) = (sender.clone(), Rc::clone(&sent));
            fiber::spawn_local(move || {
                sender.send(n).unwrap();
                sent.borrow_mut().push(n);
            });
        }
        yield_times(2);
        assert_eq!(*sent.borrow(), [0, 1]);
        assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
        assert_eq!(receiver.recv(), Ok(0));
        assert_eq!(
            sender.try_send(9),
            Err(TrySendError::Full(9)),
            "the free place belongs to the first waiter"
        );
        yield_times(2);
        assert_eq!(*sent.borrow(), [0, 1, 2]);
        drop(sender);
        assert!(receiver.iter().eq(1..5));
    });
}

#[test]
fn rendezvous_send_waits_for_its_receiver() {
    on_one_worker(|| {
        let (sender, receiver) = mpsc::sync_channel(0);
        assert_eq!(sender.try_send(0), Err(TrySendError::Full(0)));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        let other = sender.clone();
        let sends = fiber::spawn_local(move || other.send(1).unwrap());
        yield_times(3);
        assert!(!sends.is_finished());
        assert_eq!(receiver.try_recv(), Ok(1));
        sends.join().unwrap();
        // A receiver waits, so the send does not.
        let receives = fiber::spawn_local(move || receiver.recv());
        yield_times(2);
        assert_eq!(sender.try_send(2), Ok(()));
        assert_eq!(receives.join().unwrap(), Ok(2));
        assert_eq!(sender.try_send(3), Err(TrySendError::Disconnected(3)));
    });
}

// ----- disconnection -----

#[test]
fn values_outlive_their_senders() {
    let (sender, receiver) = mpsc::channel();
    sender.send(1).unwrap();
    let other = sender.clone();
    drop(sender);
    other.send(2).unwrap();
    drop(other);
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(receiver.recv_timeout(LONG), Ok(2));
    assert_eq!(receiver.recv(), Err(RecvError));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    assert_eq!(receiver.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn waiting_receiver_is_woken_by_disconnection() {
    on_one_worker(|| {
        for limited in [false, true] {
            let (sender, receiver) = mpsc::channel::<()>();
            let waits = fiber::spawn_local(move || {
                if limited {
                    receiver.recv_timeout(LONG) == Err(RecvTimeoutError::Disconnected)
                } else {
                    receiver.recv().is_err()
                }
            });
            yield_times(2);
            drop(sender);
            assert!(waits.join().unwrap());
        }
    });
}

#[test]
fn send_without_receiver_returns_the_value() {
    on_one_worker(|| {
        for bound in [0, 1] {
            let (sender, receiver) = mpsc::sync_channel(bound);
            let value = Arc::new(());
            (0..bound).for_each(|_| sender.send(Arc::clone(&value)).unwrap());
            let (other, sent) = (sender.clone(), Arc::clone(&value));
            let waits = fiber::spawn_local(move || other.send(sent).unwrap_err());
            yield_times(2);
            drop(receiver);
            let SendError(unsent) = waits.join().unwrap();
            assert!(Arc::ptr_eq(&unsent, &value));
            drop(unsent);
            assert_eq!(Arc::strong_count(&value), 1, "values that were not received are dropped");
            assert!(sender.send(Arc::clone(&value)).is_err());
        }
        let (sender, receiver) = mpsc::channel();
        drop(receiver);
        assert_eq!(sender.send(1), Err(SendError(1)));
    });
}

#[test]
fn dropped_channel_drops_its_values() {
    let value = Arc::new(());
    let (sender, receiver) = mpsc::channel();
    sender.send(Arc::clone(&value)).unwrap();
    drop(sender);
    drop(receiver);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn values_that_are_not_send_stay_on_worker() {
    on_one_worker(|| {
        let (sender, receiver) = mpsc::sync_channel(0);
        fiber::spawn_local(move || sender.send(Rc::new(5)).unwrap());
        assert_eq!(*receiver.recv().unwrap(), 5);
    });
}

// ----- timeouts -----

#[test]
fn receive_that_timed_out_leaves_the_queue() {
    let limited = || {
        let (sender, receiver) = mpsc::channel();
        assert_eq!(receiver.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        sender.send(1).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::MAX), Ok(1));
    };
    limited();
    on_one_worker(limited);
}

/// Timeouts race with values.
#[test]
fn timeout_loses_no_value() {
    let (sender, receiver) = mpsc::sync_channel(0);
    thread::scope(|threads| {
        threads.spawn(move || (0..2000).for_each(|n| sender.send(n).unwrap()));
        on_one_worker(|| {
            let mut next = 0;
            loop {
                match receiver.recv_timeout(Duration::from_nanos(next % 3000)) {
                    Ok(n) => {
                        assert_eq!(n, next);
                        next += 1;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            assert_eq!(next, 2000);
        });
    });
}

#[test]
fn try_iter_returns_the_queued_values() {
    let (sender, receiver) = mpsc::channel();
    (0..3).for_each(|n| sender.send(n).unwrap());
    assert!(receiver.try_iter().eq(0..3));
    assert_eq!(receiver.try_iter().next(), None);
}

/// The channel is never empty, so `recv` never has to wait.
#[test]
fn receiver_that_never_waits_yields_to_others() {
    let (sender, receiver) = mpsc::channel();
    (0..MANY).for_each(|n| sender.send(n).unwrap());
    on_one_worker(|| {
        let turns = Rc::new(RefCell::new(0));
        let counter = Rc::clone(&turns);
        fiber::spawn_local(move || {
            loop {
                *counter.borrow_mut() += 1;
                fiber::yield_now();
            }
        });
        assert_eq!(receiver.iter().take(MANY).count(), MANY);
        assert!(*turns.borrow() > 1);
    });
}

// ----- mpmc -----

#[test]
fn each_value_goes_to_one_receiver() {
    for capacity in [0, 1, 16] {
        let (sender, receiver) = mpmc::bounded(capacity);
        let (sum, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let receive = |receiver: mpmc::Receiver<usize>| {
            receiver.iter().for_each(|n| {
                sum.fetch_add(n, Ordering::Relaxed);
                count.fetch_add(1, Ordering::Relaxed);
            });
        };
        let send = |sender: mpmc::Sender<usize>| (0..MANY).for_each(|n| sender.send(n).unwrap());
        thread::scope(|threads| {
            let (sends, receives) = (sender.clone(), receiver.clone());
            threads.spawn(move || send(sends));
            threads.spawn(|| receive(receives));
            let work = || {
                fiber::scope(|s| {
                    for _ in 0..3 {
                        let (sender, receiver) = (sender.clone(), receiver.clone());
                        s.spawn(move || send(sender));
                        s.spawn(|| receive(receiver));
                    }
                    drop((sender, receiver));
                });
            };
            Builder::new().workers(2).run(work).unwrap();
        });
        assert_eq!(count.into_inner(), 4 * MANY);
        assert_eq!(sum.into_inner(), 4 * (0..MANY).sum::<usize>());
    }
}

#[test]
fn waiting_receivers_are_served_in_order() {
    on_one_worker(|| {
        let (sender, receiver) = mpmc::bounded(4);
        let handles: Vec<_> = (0..4)
            .map(|_| {
                let receiver = receiver.clone();
                fiber::spawn_local(move || receiver.recv().unwrap())
            })
            .collect();
        yield_times(2);
        (0..4).for_each(|n| sender.try_send(n).unwrap());
        assert!(receiver.is_empty());
        assert!(handles.into_iter().map(|handle| handle.join().unwrap()).eq(0..4));
        sender.send(9).unwrap();
        assert_eq!(receiver.len(), 1);
        drop(sender);
        assert_eq!((receiver.recv(), receiver.recv()), (Ok(9), Err(RecvError)));
    });
}

// ----- oneshot -----

#[test]
fn oneshot_delivers_one_value_or_disconnects() {
    on_one_worker(|| {
        let (sender, receiver) = oneshot::channel();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(receiver.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
        let sends = fiber::spawn_local(move || sender.send(1));
        assert_eq!(receiver.recv(), Ok(1));
        assert_eq!(sends.join().unwrap(), Ok(()));

        let (sender, receiver) = oneshot::channel::<u8>();
        let waits = fiber::spawn_local(move || receiver.recv());
        yield_times(2);
        drop(sender);
        assert_eq!(waits.join().unwrap(), Err(RecvError));

        let (sender, receiver) = oneshot::channel();
        assert!(!sender.is_closed());
        drop(receiver);
        assert!(sender.is_closed());
        assert_eq!(sender.send(1), Err(SendError(1)));
    });
}

// ----- watch -----

#[test]
fn watch_receiver_reads_the_latest_value() {
    on_one_worker(|| {
        let (sender, mut receiver) = watch::channel(0);
        assert_eq!((receiver.has_changed(), *receiver.borrow()), (Ok(false), 0));
        sender.send(1).unwrap();
        assert_eq!(sender.send_replace(2), 1);
        sender.send_modify(|value| *value += 1);
        assert_eq!(receiver.has_changed(), Ok(true));
        let mut late = sender.subscribe();
        assert_eq!(late.has_changed(), Ok(false));
        receiver.changed().unwrap();
        assert_eq!(*receiver.borrow_and_update(), 3);
        let waits = fiber::spawn_local(move || late.wait_for(|&value| value > 4).map(|v| *v));
        for value in [4, 5] {
            yield_times(2);
            sender.send(value).unwrap();
        }
        assert_eq!(waits.join().unwrap(), Ok(5));
        drop(sender);
        assert_eq!(
            receiver.changed(),
            Ok(()),
            "an unread change is reported before the disconnection"
        );
        assert_eq!(receiver.changed(), Err(RecvError));
        assert_eq!(*receiver.borrow(), 5);
    });
    let (sender, receiver) = watch::channel(1);
    drop(receiver);
    assert_eq!(sender.send(2), Err(SendError(2)));
    assert_eq!((*sender.borrow(), sender.is_closed()), (1, true));
}

/// A value that is sent by `send_cancellable` is announced before a receiver can borrow it.
#[test]
fn each_change_is_a_value_that_was_not_seen() {
    let (sender, mut receiver) = watch::channel(0);
    thread::scope(|s| {
        s.spawn(move || {
            for value in 1..=100_000 {
                assert!(matches!(sender.send_cancellable(value), Ok(Ok(()))));
            }
        });
        let mut last = 0;
        while receiver.changed().is_ok() {
            let value = *receiver.borrow_and_update();
            assert!(value > last, "{value} after {last}");
            last = value;
        }
    });
}

#[test]
fn watch_receivers_everywhere_reach_the_last_value() {
    let (sender, receiver) = watch::channel(0);
    let watch = |mut receiver: watch::Receiver<usize>| {
        let mut last = 0;
        while receiver.changed().is_ok() {
            let now = *receiver.borrow_and_update();
            assert!(now >= last);
            last = now;
        }
        assert_eq!(last, 1000);
    };
    thread::scope(|threads| {
        let other = receiver.clone();
        threads.spawn(move || watch(other));
        let work = || {
            fiber::scope(|s| {
                (0..3).for_each(|_| {
                    let receiver = receiver.clone();
                    s.spawn(move || watch(receiver));
                });
                (1..=1000).for_each(|n| sender.send(n).unwrap());
                drop(sender);
            });
        };
        Builder::new().workers(2).run(work).unwrap();
    });
}
