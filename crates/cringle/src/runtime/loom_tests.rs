//! The protocols between threads, in every interleaving that the memory model allows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p cringle --lib --release loom
//! ```
//!
//! A wake-up that is lost shows as a deadlock: each model waits for what must come.

use super::identity::Token;
use super::inbox::{Bell, Inbox, Posted};
use super::quiescence::{Count, Idlers, is_over};
use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;
use std::collections::VecDeque;

/// Every interleaving of two threads.
fn every(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

/// Of three threads those with at most three preemptions: what is lost is lost with fewer.
fn most(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Stands for the descriptor of a worker and for its ring's messages: a signal stays until the
/// sleeper has seen it.
#[derive(Clone)]
struct Signal {
    notify: Arc<Notify>,
    /// The descriptor was closed, and its number may be another's.
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

/// What a worker does until `enough` says so: looks, and sleeps when there is nothing.
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
fn loom_no_message_is_slept_over() {
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

/// A worker with a ring wakes another not by the bell but by a message of its ring, once it is told
/// that it must.
#[test]
fn loom_a_post_says_when_the_sender_must_wake() {
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

/// That the runtime ends is no message, but a state that each worker is nudged to look at.
#[test]
fn loom_a_nudge_is_not_slept_over() {
    every(|| {
        let signal = Signal::new();
        let inbox = Arc::new(Inbox::<u32, Signal>::new(signal.clone()));
        let stopped = Arc::new(AtomicBool::new(false));
        let (theirs, says) = (Arc::clone(&inbox), Arc::clone(&stopped));
        let stops = thread::spawn(move || {
            says.store(true, Ordering::Release);
            theirs.nudge();
        });
        // The state is looked at where messages are, and nowhere else.
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

/// Each message is taken, handed out at the end, or given back to its sender; and nobody rings after
/// the end.
#[test]
fn loom_a_message_to_a_worker_that_ends_is_never_lost() {
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

/// Parks until there is a token: a park may end for no reason, as here the model's waits do.
fn park(token: &Token, wake: &Notify) {
    while !token.take_or_park() {
        wake.wait();
        if token.unparked() {
            return;
        }
    }
}

#[test]
fn loom_no_unpark_is_lost_and_what_came_before_it_is_seen() {
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

/// One token is enough for the one `unpark`: `park` returns, and sees what the other did before.
#[test]
fn loom_a_park_sees_what_happened_before_its_unpark() {
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

/// A fiber whose park ended for another reason (a timer) is not waited for by a late `unpark`, whose
/// token the next `park` takes.
#[test]
fn loom_a_token_that_comes_after_a_timeout_is_kept() {
    every(|| {
        let token = Arc::new(Token::new());
        let wake = Arc::new(Notify::new());
        let (theirs, wakes) = (Arc::clone(&token), Arc::clone(&wake));
        let unparker = thread::spawn(move || {
            if theirs.make_available() {
                wakes.notify();
            }
        });
        // The timer comes at once.
        if !token.take_or_park() && !token.unparked() {
            park(&token, &wake);
        }
        unparker.join().unwrap();
    });
}

#[test]
fn loom_no_loot_is_slept_over() {
    every(|| {
        let signal = Signal::new();
        let inbox = Arc::new(Inbox::<u32, Signal>::new(signal.clone()));
        let idlers = Arc::new(Idlers::default());
        // The deque publishes a fiber by a store of its end.
        let loot = Arc::new(AtomicUsize::new(0));
        let (theirs, sees, makes) = (Arc::clone(&inbox), Arc::clone(&idlers), Arc::clone(&loot));
        let ring = signal.clone();
        let spawner = thread::spawn(move || {
            makes.store(1, Ordering::Release);
            if sees.any() && theirs.rouse() == Posted::MustWake {
                ring.notify.notify();
            }
        });
        while loot.load(Ordering::Acquire) == 0 {
            idlers.enter();
            if inbox.fall_asleep() && loot.load(Ordering::Acquire) == 0 {
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

/// The last fibers of two workers end at once. If neither saw that all are over, both would sleep.
#[test]
fn loom_one_of_two_workers_that_become_idle_at_once_sees_the_end() {
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

/// A fiber makes another one on the next worker and ends, and so on: whoever sees the end sees it
/// after the last.
#[test]
fn loom_the_end_is_not_seen_before_it_has_come() {
    most(|| {
        let all = counts(2);
        all[0].0.bump();
        let ended = Arc::new(AtomicBool::new(false));
        let (theirs, last) = (Arc::clone(&all), Arc::clone(&ended));
        let sent = Arc::new(AtomicBool::new(false));
        let arrives = Arc::clone(&sent);
        let other = thread::spawn(move || {
            // The message with the new fiber; the model goes on without it where it comes late.
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
