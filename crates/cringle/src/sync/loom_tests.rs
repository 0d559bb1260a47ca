//! The protocol of waiters and queues, the gate and the channel, in every interleaving that the
//! memory model allows. How to run them says `runtime/loom_tests.rs`; a wake-up that is lost shows
//! as a deadlock.
//!
//! A cancel is not modelled as such: its effect on a queue is that of a deadline, and these are in
//! the past here, so a waiter leaves as soon as it has come, and races with who gives.

use super::caller::{Caller, WaitError, WaitOptions, now};
use super::channel::{Channel, ReceiveFailure, SendFailure};
use super::gate::Gate;
use super::once::Once;
use crate::runtime::fiber::Wait;
use crate::runtime::sync::{AtomicUsize, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

fn every(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

/// Of three threads those with at most three preemptions.
fn most(model: impl Fn() + Sync + Send + 'static) {
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

/// What a mutex is: a gate of one permit around a cell, whose uses loom checks for races.
struct Locked {
    gate: Gate,
    value: UnsafeCell<usize>,
}

// SAFETY: whoever has the permit alone touches the value; that is what the models check.
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
        // SAFETY: the one permit is taken.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.gate.release(1);
        true
    }

    fn value(&self) -> usize {
        assert!(self.gate.try_acquire(1), "the permit was lost");
        // SAFETY: as above.
        self.value.with(|value| unsafe { *value })
    }
}

#[test]
fn loom_a_gate_of_one_permit_excludes_and_loses_no_wake_up() {
    every(|| {
        let locked = Locked::new();
        let theirs = Arc::clone(&locked);
        let other = thread::spawn(move || theirs.add_one(patient()));
        assert!(locked.add_one(patient()));
        assert!(other.join().unwrap());
        assert_eq!(locked.value(), 2);
    });
}

#[test]
fn loom_a_gate_serves_three() {
    most(|| {
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

/// A permit that is handed to one who leaves is taken by it, or goes to the next: it is never lost.
#[test]
fn loom_no_permit_is_lost_to_one_who_leaves() {
    most(|| {
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
fn loom_who_needs_all_permits_gets_them() {
    most(|| {
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

/// All values arrive in order, and then the end.
fn arrive_in_order(capacity: usize) {
    every(move || {
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
fn loom_a_rendezvous_hands_over_in_order() {
    arrive_in_order(0);
}

#[test]
fn loom_a_bounded_channel_hands_over_in_order() {
    arrive_in_order(1);
}

#[test]
fn loom_an_unbounded_channel_hands_over_in_order() {
    arrive_in_order(usize::MAX);
}

/// A receiver that leaves either has the value or leaves it to the next.
#[test]
fn loom_a_receiver_that_leaves_loses_no_value() {
    every(|| {
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

/// A sender that leaves has its value back, or it was received.
#[test]
fn loom_a_sender_that_leaves_has_its_value_or_it_was_received() {
    every(|| {
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
fn loom_a_sender_whose_receiver_goes_has_its_value_back() {
    every(|| {
        let channel = Arc::new(Channel::new(0));
        let theirs = Arc::clone(&channel);
        let receiver = thread::spawn(move || theirs.remove_receiver());
        assert_eq!(channel.send(7, patient()), Err((7, SendFailure::Disconnected)));
        receiver.join().unwrap();
    });
}

#[test]
fn loom_what_is_done_once_is_done_for_both() {
    every(|| {
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

/// Outside of any fiber, as in all of these models.
#[test]
fn loom_callers_are_threads() {
    every(|| assert!(!Caller::current().is_interrupted()));
}
