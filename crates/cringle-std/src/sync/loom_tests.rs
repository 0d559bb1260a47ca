//! Models of the wait queue, the gate, the channel and the feed, in every interleaving that the
//! memory model allows. `loom_tests.rs` of `cringle-core` says how to run them. A lost wake-up
//! shows as a deadlock.
//!
//! A cancel is not modelled: it has the effect of a deadline on a queue. The deadlines here are in
//! the past, so a waiter withdraws as soon as it is queued, and races with the caller that grants.

use super::caller::{Caller, WaitError, WaitOptions, now};
use super::channel::{Channel, ReceiveFailure, SendFailure};
use super::feed::Feed;
use super::gate::Gate;
use super::once::Once;
use super::shared_run::{RunEnd, SharedRun};
use cringle_core::fiber::Wait;
use cringle_core::sync::{AtomicUsize, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Explores all interleavings.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

/// Explores the interleavings with at most three preemptions, for models of three threads.
fn explore_bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn patient() -> WaitOptions {
    WaitOptions::unwinding(Wait::Lock)
}

fn impatient() -> WaitOptions {
    patient().until(Some(now()))
}

/// The essence of a mutex: a gate with one permit around a cell. Loom checks the cell for races.
struct Locked {
    gate: Gate,
    value: UnsafeCell<usize>,
}

// SAFETY: the gate's contract, which the models check: only the holder of the permit touches the
// value.
unsafe impl Sync for Locked {}
// SAFETY: as above.
unsafe impl Send for Locked {}

impl Locked {
    fn new() -> Arc<Locked> {
        Arc::new(Locked { gate: Gate::new(1), value: UnsafeCell::new(0) })
    }

    fn add_one(&self, options: WaitOptions) -> bool {
        if self.gate.acquire(1, options).is_err() {
            return false;
        }
        // SAFETY: the gate's contract: this thread holds the only permit.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.gate.release(1);
        true
    }

    fn value(&self) -> usize {
        assert!(self.gate.try_acquire(1), "the permit was lost");
        // SAFETY: the gate's contract: this thread holds the only permit.
        self.value.with(|value| unsafe { *value })
    }
}

#[test]
fn loom_gate_excludes_and_loses_no_wake_up() {
    explore(|| {
        let locked = Locked::new();
        let theirs = Arc::clone(&locked);
        let other = thread::spawn(move || theirs.add_one(patient()));
        assert!(locked.add_one(patient()));
        assert!(other.join().unwrap());
        assert_eq!(locked.value(), 2);
    });
}

#[test]
fn loom_gate_serves_three_callers() {
    explore_bounded(|| {
        let locked = Locked::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let theirs = Arc::clone(&locked);
                thread::spawn(move || theirs.add_one(patient()))
            })
            .collect();
        assert!(locked.add_one(patient()));
        assert!(others.into_iter().all(|other| other.join().unwrap()));
        assert_eq!(locked.value(), 3);
    });
}

/// A permit that is granted to a waiter that withdraws is kept by it or goes to the next waiter.
#[test]
fn loom_withdrawing_waiter_loses_no_permit() {
    explore_bounded(|| {
        let locked = Locked::new();
        let (first, second) = (Arc::clone(&locked), Arc::clone(&locked));
        let leaves = thread::spawn(move || first.add_one(impatient()));
        let stays = thread::spawn(move || second.add_one(patient()));
        let mut count = 1;
        assert!(locked.add_one(patient()));
        count += usize::from(leaves.join().unwrap());
        count += usize::from(stays.join().unwrap());
        assert!(count >= 2);
        assert_eq!(locked.value(), count);
    });
}

/// Readers and a writer, as `RwLock` uses a gate.
#[test]
fn loom_gate_grants_all_permits_to_a_writer() {
    explore_bounded(|| {
        let gate = Arc::new(Gate::new(2));
        let value = Arc::new(AtomicUsize::new(0));
        let (theirs, writes) = (Arc::clone(&gate), Arc::clone(&value));
        let writer = thread::spawn(move || {
            theirs.acquire(2, patient()).unwrap();
            writes.store(1, Ordering::Relaxed);
            writes.store(2, Ordering::Relaxed);
            theirs.release(2);
        });
        let (theirs, reads) = (Arc::clone(&gate), Arc::clone(&value));
        let reader = thread::spawn(move || {
            theirs.acquire(1, patient()).unwrap();
            assert_ne!(reads.load(Ordering::Relaxed), 1);
            theirs.release(1);
        });
        gate.acquire(1, patient()).unwrap();
        assert_ne!(value.load(Ordering::Relaxed), 1);
        gate.release(1);
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(gate.available(), 2);
        assert!(gate.try_acquire(2));
    });
}

fn send_all(channel: &Channel<usize>, values: std::ops::Range<usize>) {
    values.for_each(|n| channel.send(n, patient()).unwrap());
    channel.remove_sender();
}

/// Checks that all values arrive in order, followed by the disconnection.
fn check_order(capacity: usize) {
    explore(move || {
        let channel = Arc::new(Channel::new(capacity));
        let theirs = Arc::clone(&channel);
        let sender = thread::spawn(move || send_all(&theirs, 0..2));
        assert_eq!(channel.receive(patient()), Ok(0));
        assert_eq!(channel.receive(patient()), Ok(1));
        assert_eq!(channel.receive(patient()), Err(ReceiveFailure::Disconnected));
        sender.join().unwrap();
    });
}

#[test]
fn loom_rendezvous_channel_keeps_order() {
    check_order(0);
}

#[test]
fn loom_bounded_channel_keeps_order() {
    check_order(1);
}

#[test]
fn loom_unbounded_channel_keeps_order() {
    check_order(usize::MAX);
}

/// A receiver that withdraws has received the value or leaves it in the channel.
#[test]
fn loom_withdrawing_receiver_loses_no_value() {
    explore(|| {
        let channel = Arc::new(Channel::new(1));
        let theirs = Arc::clone(&channel);
        let sender = thread::spawn(move || send_all(&theirs, 7..8));
        let received = match channel.receive(impatient()) {
            Err(ReceiveFailure::Wait(WaitError::TimedOut)) => channel.receive(patient()),
            received => received,
        };
        assert_eq!(received, Ok(7));
        sender.join().unwrap();
    });
}

/// A sender that withdraws gets its value back, unless the value was received.
#[test]
fn loom_withdrawing_sender_keeps_unreceived_value() {
    explore(|| {
        let channel = Arc::new(Channel::new(0));
        let theirs = Arc::clone(&channel);
        let sender = thread::spawn(move || {
            let sent = theirs.send(7, impatient());
            theirs.remove_sender();
            sent
        });
        let received = channel.receive(patient());
        match sender.join().unwrap() {
            Ok(()) => assert_eq!(received, Ok(7)),
            Err(unsent) => {
                assert_eq!(unsent, (7, SendFailure::Wait(WaitError::TimedOut)));
                assert_eq!(received, Err(ReceiveFailure::Disconnected));
            }
        }
    });
}

#[test]
fn loom_sender_keeps_value_when_receiver_drops() {
    explore(|| {
        let channel = Arc::new(Channel::new(0));
        let theirs = Arc::clone(&channel);
        let receiver = thread::spawn(move || theirs.remove_receiver());
        assert_eq!(channel.send(7, patient()), Err((7, SendFailure::Disconnected)));
        receiver.join().unwrap();
    });
}

#[test]
fn loom_once_runs_one_closure_for_both() {
    explore(|| {
        let once = Arc::new(Once::new());
        let count = Arc::new(AtomicUsize::new(0));
        let call = |once: &Once, count: &AtomicUsize| {
            once.call_once(|| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 1);
        };
        let (theirs, counts) = (Arc::clone(&once), Arc::clone(&count));
        let other = thread::spawn(move || call(&theirs, &counts));
        call(&once, &count);
        other.join().unwrap();
    });
}

/// All of these models run outside of any fiber.
#[test]
fn loom_callers_are_plain_threads() {
    explore(|| assert!(!Caller::current().is_interrupted()));
}

/// Each of three callers writes its bit, and then asks for a call that collects them. One of the
/// calls is given up.
fn collect(given_up: Option<usize>) {
    explore_bounded(move || {
        let shared = Arc::new((SharedRun::new(), AtomicUsize::new(0), AtomicUsize::new(0)));
        let ask = move |shared: &(SharedRun, AtomicUsize, AtomicUsize), caller: usize| {
            let (run, written, collected) = shared;
            written.fetch_or(1 << caller, Ordering::SeqCst);
            let make = |_| match given_up {
                Some(given_up) if given_up == caller => {
                    RunEnd::GivenUp(std::io::Error::other("given up"))
                }
                _ => {
                    collected.fetch_or(written.load(Ordering::SeqCst), Ordering::SeqCst);
                    RunEnd::Done
                }
            };
            let result = run.run(false, make, |_| unreachable!("nothing fails for good"));
            assert!(result.is_err() || collected.load(Ordering::SeqCst) & (1 << caller) != 0);
            assert!(result.is_ok() || given_up == Some(caller));
        };
        let others = [1, 2].map(|caller| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || ask(&shared, caller))
        });
        ask(&shared, 0);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn loom_shared_run_covers_what_came_before() {
    collect(None);
}

#[test]
fn loom_shared_run_goes_on_without_a_leader_that_gives_up() {
    collect(Some(1));
}

/// Two takers share the items of a queue that is full of one.
#[test]
fn loom_feed_hands_over_every_item() {
    explore_bounded(|| {
        let feed = Arc::new(Feed::new(1));
        let taker = || {
            let feed = Arc::clone(&feed);
            let take_all = move || {
                let mut sum = 0;
                while let Some(taken) = feed.take(usize::MAX).unwrap() {
                    sum += taken.item;
                }
                sum
            };
            thread::spawn(take_all)
        };
        let takers = [taker(), taker()];
        for item in 1..=2 {
            assert!(feed.wait_for_room().unwrap());
            feed.add(item);
        }
        feed.end();
        assert_eq!(takers.map(|taker| taker.join().unwrap()).iter().sum::<usize>(), 3);
    });
}

/// The feeder does not wait for a taker that has left, however the two meet.
#[test]
fn loom_deserted_feeder_does_not_wait() {
    explore(|| {
        let feed = Arc::new(Feed::new(1));
        let theirs = Arc::clone(&feed);
        let taker = thread::spawn(move || {
            let taken = theirs.take(usize::MAX).unwrap().map(|taken| taken.item);
            theirs.desert();
            taken
        });
        let mut added = 0;
        while feed.wait_for_room().unwrap() {
            added += 1;
            feed.add(added);
        }
        assert_eq!(taker.join().unwrap(), Some(1));
        assert_eq!(feed.take_back(), (added > 1).then_some(2));
    });
}
