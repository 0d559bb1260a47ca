//! Channels behave as std's, between fibers of any workers and threads.

use cringle::sync::mpsc::{
    self, RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError,
};
use cringle::sync::{mpmc, oneshot, watch};
use cringle::{Builder, fiber};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1);
const MANY: usize = 5000;

fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(1).run(f).unwrap()
}

fn yield_times(count: usize) {
    (0..count).for_each(|_| fiber::yield_now());
}

/// Runs one side on a fiber of each worker in turn, and the other on a thread, or the other way
/// round, or both on fibers.
fn in_all_places(
    make: impl Fn() -> (Box<dyn FnOnce() + Send>, Box<dyn FnOnce() + Send>),
    workers: usize,
) {
    for place in 0..4 {
        let (one, other) = make();
        let spawn = |worker: usize, side: Box<dyn FnOnce() + Send>| {
            fiber::Builder::new().worker(worker % workers).spawn(side).unwrap()
        };
        let run = |f: &mut dyn FnMut()| Builder::new().workers(workers).run(f).unwrap();
        match place {
            0 | 1 => {
                let (on_thread, on_fiber) = if place == 0 { (one, other) } else { (other, one) };
                let thread = thread::spawn(on_thread);
                let mut on_fiber = Some(on_fiber);
                run(&mut || spawn(1, on_fiber.take().unwrap()).join().unwrap());
                thread.join().unwrap();
            }
            _ => {
                let mut both = Some((one, other));
                run(&mut || {
                    let (one, other) = both.take().unwrap();
                    let handles = [spawn(place, one), spawn(1, other)];
                    handles.into_iter().for_each(|handle| handle.join().unwrap());
                });
            }
        }
    }
}

#[test]
fn thousands_of_values_arrive_in_order_wherever_both_sides_are() {
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
fn two_sides_answer_each_other_wherever_they_are() {
    for workers in [1, 2] {
        in_all_places(
            || {
                let (there, their_there) = mpsc::sync_channel(1);
                let (their_back, back) = mpsc::channel();
                let asks = move || {
                    for n in 0..1000 {
                        there.send(n).unwrap();
                        assert_eq!(back.recv(), Ok(n + 1));
                    }
                };
                let answers =
                    move || their_there.iter().for_each(|n| their_back.send(n + 1).unwrap());
                (Box::new(asks), Box::new(answers))
            },
            workers,
        );
    }
}

#[test]
fn many_senders_of_fibers_and_threads_lose_nothing() {
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
                    assert_eq!(n, next[from], "each sender's values come in its order");
                    next[from] += 1;
                }
                assert_eq!(next, [MANY; 6]);
            })
            .unwrap();
    });
}

#[test]
fn a_sender_waits_for_room_and_others_do_not_overtake_it() {
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
        assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)), "its place is the next one's");
        yield_times(2);
        assert_eq!(*sent.borrow(), [0, 1, 2]);
        drop(sender);
        assert!(receiver.iter().eq(1..5));
    });
}

#[test]
fn a_rendezvous_keeps_the_sender_until_its_value_is_received() {
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
        // Somebody waits: a send need not.
        let receives = fiber::spawn_local(move || receiver.recv());
        yield_times(2);
        assert_eq!(sender.try_send(2), Ok(()));
        assert_eq!(receives.join().unwrap(), Ok(2));
        assert_eq!(sender.try_send(3), Err(TrySendError::Disconnected(3)));
    });
}

// ----- the end of a side, in each state -----

#[test]
fn what_was_sent_before_the_senders_went_is_received() {
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
fn a_receiver_that_waits_learns_that_the_senders_are_gone() {
    on_one_worker(|| {
        for limited in [false, true] {
            let (sender, receiver) = mpsc::channel::<()>();
            let waits = fiber::spawn_local(move || match limited {
                true => receiver.recv_timeout(LONG).unwrap_err() == RecvTimeoutError::Disconnected,
                false => receiver.recv().is_err(),
            });
            yield_times(2);
            drop(sender);
            assert!(waits.join().unwrap());
        }
    });
}

#[test]
fn a_sender_has_its_value_back_when_the_receiver_is_gone() {
    on_one_worker(|| {
        for bound in [0, 1] {
            let (sender, receiver) = mpsc::sync_channel(bound);
            let value = Arc::new(());
            (0..bound).for_each(|_| sender.send(Arc::clone(&value)).unwrap());
            let (other, theirs) = (sender.clone(), Arc::clone(&value));
            let waits = fiber::spawn_local(move || other.send(theirs).unwrap_err());
            yield_times(2);
            drop(receiver);
            let SendError(back) = waits.join().unwrap();
            assert!(Arc::ptr_eq(&back, &value));
            drop(back);
            assert_eq!(Arc::strong_count(&value), 1, "what nobody received was dropped");
            assert!(sender.send(Arc::clone(&value)).is_err());
        }
        let (sender, receiver) = mpsc::channel();
        drop(receiver);
        assert_eq!(sender.send(1), Err(SendError(1)));
    });
}

#[test]
fn a_channel_that_is_dropped_drops_its_values() {
    let value = Arc::new(());
    let (sender, receiver) = mpsc::channel();
    sender.send(Arc::clone(&value)).unwrap();
    drop(sender);
    drop(receiver);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn what_is_not_send_stays_on_its_worker() {
    on_one_worker(|| {
        let (sender, receiver) = mpsc::sync_channel(0);
        fiber::spawn_local(move || sender.send(Rc::new(5)).unwrap());
        assert_eq!(*receiver.recv().unwrap(), 5);
    });
}

// ----- time -----

#[test]
fn a_receive_with_a_limit_ends_and_leaves_the_queue() {
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

/// The limit and the value come at about the same time, again and again.
#[test]
fn no_value_is_lost_to_a_limit() {
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
fn try_iter_takes_what_is_there() {
    let (sender, receiver) = mpsc::channel();
    (0..3).for_each(|n| sender.send(n).unwrap());
    assert!(receiver.try_iter().eq(0..3));
    assert_eq!(receiver.try_iter().next(), None);
}

/// A value is always there, so the receiver never has to wait: its worker's others run all the
/// same.
#[test]
fn a_receiver_that_never_waits_lets_others_run() {
    let (sender, receiver) = mpsc::channel();
    (0..MANY).for_each(|n| sender.send(n).unwrap());
    on_one_worker(|| {
        let turns = Rc::new(RefCell::new(0));
        let theirs = Rc::clone(&turns);
        fiber::spawn_local(move || {
            loop {
                *theirs.borrow_mut() += 1;
                fiber::yield_now();
            }
        });
        assert_eq!(receiver.iter().take(MANY).count(), MANY);
        assert!(*turns.borrow() > 1);
    });
}

// ----- mpmc -----

#[test]
fn each_value_goes_to_one_of_many_receivers() {
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
            let (theirs, also) = (sender.clone(), receiver.clone());
            threads.spawn(move || send(theirs));
            threads.spawn(|| receive(also));
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
fn receivers_that_wait_are_served_in_the_order_of_coming() {
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
fn a_oneshot_delivers_one_value_or_the_end() {
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
fn a_watcher_sees_the_latest_value() {
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
        assert_eq!(receiver.changed(), Ok(()), "a change that was not seen comes first");
        assert_eq!(receiver.changed(), Err(RecvError));
        assert_eq!(*receiver.borrow(), 5);
    });
    let (sender, receiver) = watch::channel(1);
    drop(receiver);
    assert_eq!(sender.send(2), Err(SendError(2)));
    assert_eq!((*sender.borrow(), sender.is_closed()), (1, true));
}

#[test]
fn watchers_on_workers_and_threads_reach_the_last_value() {
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
        let theirs = receiver.clone();
        threads.spawn(move || watch(theirs));
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
