//! Models of the protocols between threads, in every interleaving that the memory model allows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --config .ci/loom.toml -p cringle --lib loom
//! ```
//!
//! A lost wake-up shows as a deadlock, because each model waits for an event that must occur.

use super::fiber::Transit;
use super::identity::Token;
use super::inbox::{Bell, Inbox, Posted};
use super::quiescence::{Count, Idlers, is_over};
use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;
use std::collections::VecDeque;

/// Explores every interleaving of two threads.
fn every(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

/// Explores the interleavings of three threads that have at most three preemptions, which is more
/// than a lost wake-up needs.
fn most(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A worker's eventfd, or a message to its ring: a signal stays until the sleeper has seen it.
#[derive(Clone)]
struct Signal {
    notify: Arc<Notify>,
    /// The descriptor was closed, and its number may mean another file.
    closed: Arc<AtomicBool>,
}

impl Signal {
    fn new() -> Signal {
        Signal { notify: Arc::new(Notify::new()), closed: Arc::new(AtomicBool::new(false)) }
    }

    fn sleep(&self) {
        self.notify.wait();
    }
}

impl Bell for Signal {
    fn ring(&self) {
        assert!(!self.closed.load(Ordering::SeqCst), "another file was signalled");
        self.notify.notify();
    }
}

/// A worker that looks at its inbox, and sleeps when that is empty, until `enough` returns true.
fn work(inbox: &Inbox<u32, Signal>, signal: &Signal, mut enough: impl FnMut(&[u32]) -> bool) {
    let mut all = Vec::new();
    loop {
        if inbox.has_messages() {
            let mut mail = VecDeque::new();
            inbox.take(&mut mail);
            all.extend(mail);
        }
        if enough(&all) {
            return;
        }
        if inbox.fall_asleep() {
            signal.sleep();
        }
        inbox.wake_up();
    }
}

#[test]
fn loom_no_message_is_overlooked_by_a_sleeper() {
    most(|| {
        let signal = Signal::new();
        let inbox = Arc::new(Inbox::new(signal.clone()));
        let senders: Vec<_> = (0..2)
            .map(|n| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || inbox.send(n).unwrap())
            })
            .collect();
        work(&inbox, &signal, |mail| mail.len() == 2);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

/// A worker with a ring wakes another by a message of its ring, not by the bell, when `post`
/// returns `MustWake`.
#[test]
fn loom_post_reports_when_to_wake() {
    every(|| {
        let signal = Signal::new();
        let inbox = Arc::new(Inbox::new(signal.clone()));
        let (theirs, ring) = (Arc::clone(&inbox), signal.clone());
        let sender = thread::spawn(move || {
            for n in 0..2 {
                if theirs.post(n).unwrap() == Posted::MustWake {
                    ring.notify.notify();
                }
            }
        });
        work(&inbox, &signal, |mail| mail == [0, 1]);
        sender.join().unwrap();
    });
}

/// The end of the runtime is no message but a state. A nudge makes each worker look at it.
#[test]
fn loom_no_nudge_is_overlooked_by_a_sleeper() {
    every(|| {
        let signal = Signal::new();
        let inbox = Arc::new(Inbox::<u32, Signal>::new(signal.clone()));
        let stopped = Arc::new(AtomicBool::new(false));
        let (theirs, says) = (Arc::clone(&inbox), Arc::clone(&stopped));
        let stops = thread::spawn(move || {
            says.store(true, Ordering::Release);
            theirs.nudge();
        });
        // The worker looks at the state only after it has taken its messages.
        loop {
            if inbox.has_messages() {
                inbox.take(&mut VecDeque::new());
                if stopped.load(Ordering::Acquire) {
                    break;
                }
            }
            if inbox.fall_asleep() {
                signal.sleep();
            }
            inbox.wake_up();
        }
        stops.join().unwrap();
    });
}

/// Each message is taken, handed out at the end, or returned to its sender; and no bell rings after
/// the end.
#[test]
fn loom_no_message_to_an_ending_worker_is_lost() {
    every(|| {
        let signal = Signal::new();
        let inbox = Arc::new(Inbox::new(signal.clone()));
        let theirs = Arc::clone(&inbox);
        let sender = thread::spawn(move || {
            let given_back = (0..2).filter(|&n| theirs.send(n).is_err()).count();
            theirs.ring_bell();
            given_back
        });
        let mut taken = VecDeque::new();
        if inbox.has_messages() {
            inbox.take(&mut taken);
        }
        let (bell, left) = inbox.close();
        bell.unwrap().closed.store(true, Ordering::SeqCst);
        assert_eq!(taken.len() + left.len() + sender.join().unwrap(), 2);
    });
}

/// Parks until the token is available. A park may end for no reason, as the model's waits do.
fn park(token: &Token, wake: &Notify) {
    while !token.take_or_park() {
        wake.wait();
        if token.unparked() {
            return;
        }
    }
}

#[test]
fn loom_no_unpark_is_lost() {
    most(|| {
        let token = Arc::new(Token::new());
        let wake = Arc::new(Notify::new());
        let data = Arc::new(AtomicUsize::new(0));
        let unparkers: Vec<_> = (0..2)
            .map(|_| {
                let (token, wake, data) =
                    (Arc::clone(&token), Arc::clone(&wake), Arc::clone(&data));
                thread::spawn(move || {
                    data.fetch_add(1, Ordering::Relaxed);
                    if token.make_available() {
                        wake.notify();
                    }
                })
            })
            .collect();
        while data.load(Ordering::Relaxed) < 2 {
            park(&token, &wake);
        }
        unparkers.into_iter().for_each(|unparker| unparker.join().unwrap());
    });
}

/// After one `unpark`, `park` returns, and sees everything before the `unpark`.
#[test]
fn loom_park_sees_writes_before_unpark() {
    every(|| {
        let token = Arc::new(Token::new());
        let wake = Arc::new(Notify::new());
        let data = Arc::new(AtomicUsize::new(0));
        let (theirs, wakes, says) = (Arc::clone(&token), Arc::clone(&wake), Arc::clone(&data));
        let unparker = thread::spawn(move || {
            says.store(7, Ordering::Relaxed);
            if theirs.make_available() {
                wakes.notify();
            }
        });
        park(&token, &wake);
        assert_eq!(data.load(Ordering::Relaxed), 7);
        unparker.join().unwrap();
    });
}

/// If a timer has ended the park, the next `park` takes the token of a late `unpark`.
#[test]
fn loom_late_token_is_kept_after_timeout() {
    every(|| {
        let token = Arc::new(Token::new());
        let wake = Arc::new(Notify::new());
        let (theirs, wakes) = (Arc::clone(&token), Arc::clone(&wake));
        let unparker = thread::spawn(move || {
            if theirs.make_available() {
                wakes.notify();
            }
        });
        // The timer fires at once.
        if !token.take_or_park() && !token.unparked() {
            park(&token, &wake);
        }
        unparker.join().unwrap();
    });
}

#[test]
fn loom_no_unstarted_fiber_is_overlooked() {
    every(|| {
        let signal = Signal::new();
        let inbox = Arc::new(Inbox::<u32, Signal>::new(signal.clone()));
        let idlers = Arc::new(Idlers::default());
        // The deque publishes a fiber by a store of its end.
        let fibers = Arc::new(AtomicUsize::new(0));
        let (theirs, sees, makes) = (Arc::clone(&inbox), Arc::clone(&idlers), Arc::clone(&fibers));
        let ring = signal.clone();
        let spawner = thread::spawn(move || {
            makes.store(1, Ordering::Release);
            if sees.any() && theirs.rouse() == Posted::MustWake {
                ring.notify.notify();
            }
        });
        while fibers.load(Ordering::Acquire) == 0 {
            idlers.enter();
            if inbox.fall_asleep() && fibers.load(Ordering::Acquire) == 0 {
                signal.sleep();
            }
            inbox.wake_up();
            idlers.leave();
        }
        spawner.join().unwrap();
    });
}

fn counts(workers: usize) -> Arc<Vec<(Count, Count)>> {
    Arc::new((0..workers).map(|_| (Count::default(), Count::default())).collect())
}

fn over(counts: &[(Count, Count)]) -> bool {
    is_over(counts.iter().map(|(made, ended)| (made, ended)), &AtomicU64::new(0))
}

/// The last fibers of two workers end at once. If neither worker saw the end, both would sleep for
/// ever.
#[test]
fn loom_one_of_two_idle_workers_sees_the_end() {
    every(|| {
        let all = counts(2);
        all.iter().for_each(|(made, _)| made.bump());
        let theirs = Arc::clone(&all);
        let other = thread::spawn(move || {
            theirs[1].1.bump();
            over(&theirs)
        });
        all[0].1.bump();
        let seen = over(&all);
        assert!(other.join().unwrap() || seen);
    });
}

/// A fiber makes another one on the next worker and ends. No observer sees the end before the last
/// fiber has ended.
#[test]
fn loom_no_worker_sees_the_end_too_early() {
    most(|| {
        let all = counts(2);
        all[0].0.bump();
        let ended = Arc::new(AtomicBool::new(false));
        let (theirs, last) = (Arc::clone(&all), Arc::clone(&ended));
        let sent = Arc::new(AtomicBool::new(false));
        let arrives = Arc::clone(&sent);
        let other = thread::spawn(move || {
            // The message with the new fiber. If it arrives late, the model continues without it.
            if arrives.load(Ordering::Acquire) {
                last.store(true, Ordering::Relaxed);
                theirs[1].1.bump();
            }
        });
        let (seen_by, reads) = (Arc::clone(&all), Arc::clone(&ended));
        let observer = thread::spawn(move || {
            if over(&seen_by) {
                assert!(reads.load(Ordering::Relaxed), "a fiber was still to run");
            }
        });
        all[0].0.bump();
        sent.store(true, Ordering::Release);
        all[0].1.bump();
        other.join().unwrap();
        observer.join().unwrap();
    });
}

/// A fiber on the way to worker 1, and a worker that is not its host and sends it a message.
fn to_traveller(transit: &Transit<u32>, message: u32, is_wake: bool) -> Option<usize> {
    transit.leave(message, is_wake).map(|(host, _)| host)
}

/// A message for a fiber on the way is read on arrival, or sent on to the new host: once.
#[test]
fn loom_message_for_traveller_is_read_once() {
    every(|| {
        let transit = Arc::new(Transit::new(0));
        transit.depart(false);
        let theirs = Arc::clone(&transit);
        let sender = thread::spawn(move || to_traveller(&theirs, 7, false));
        let held = transit.arrive(1);
        let sent_on = sender.join().unwrap();
        match sent_on {
            None => assert_eq!(held, [7]),
            Some(host) => assert!(host == 1 && held.is_empty()),
        }
    });
}

/// The host gives a fiber away while a message is on its way to it.
#[test]
fn loom_message_for_departing_fiber_finds_its_host() {
    every(|| {
        let transit = Arc::new(Transit::new(0));
        let theirs = Arc::clone(&transit);
        let sender = thread::spawn(move || to_traveller(&theirs, 7, false));
        transit.depart(false);
        let held = transit.arrive(1);
        match sender.join().unwrap() {
            None => assert_eq!(held, [7]),
            // Worker 0 reads the message in its next turn, and sends it on.
            Some(0) => assert_eq!(to_traveller(&transit, 7, false), Some(1)),
            Some(host) => assert_eq!(host, 1),
        }
    });
}

/// A member of a family waits while the host gives the family away. Its wake-up is read once: on
/// arrival, or by the host that it is sent to.
#[test]
fn loom_wake_up_of_waiting_traveller_is_not_lost() {
    every(|| {
        let transit = Arc::new(Transit::new(0));
        let theirs = Arc::clone(&transit);
        let waker = thread::spawn(move || to_traveller(&theirs, 7, true));
        transit.depart(true);
        let held = transit.arrive(1);
        match waker.join().unwrap() {
            None => assert_eq!(held, [7], "the fiber waits for ever"),
            Some(0) => {
                assert!(held.is_empty());
                assert_eq!(to_traveller(&transit, 7, true), Some(1));
            }
            Some(host) => assert!(host == 1 && held.is_empty()),
        }
    });
}

/// A wake-up for a fiber on the way is dropped. Then the fiber sees what its sender did before.
#[test]
fn loom_dropped_wake_up_is_seen_by_the_next_check() {
    every(|| {
        let transit = Arc::new(Transit::new(0));
        let condition = Arc::new(AtomicBool::new(false));
        transit.depart(false);
        let (theirs, its) = (Arc::clone(&transit), Arc::clone(&condition));
        let waker = thread::spawn(move || {
            its.store(true, Ordering::Relaxed);
            to_traveller(&theirs, 0, true)
        });
        transit.arrive(1);
        let seen = condition.load(Ordering::Relaxed);
        match waker.join().unwrap() {
            None => assert!(seen, "the fiber waits for ever"),
            Some(host) => assert_eq!(host, 1, "the wake-up follows the fiber"),
        }
    });
}
