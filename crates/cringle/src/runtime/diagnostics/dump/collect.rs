//! Asking the workers, and waiting for what they say.
//!
//! A question goes by the worker's mail, so that it is answered between two fibers, by the one thread that
//! may look at them (**I3**). Each question counts for one answer, given or not: one that is dropped unread,
//! because its worker has ended, counts as given.
//!
//! A worker reads its mail once a turn. One that has not begun to answer after [`PATIENCE`] is in a turn that
//! lasts for as long. The dump then holds what other threads may read of that worker: which fiber runs, and
//! whether the turn is the same as before. Time in which a busy machine gave the worker's thread no processor,
//! or the asker none, does not count.

use super::report::{self, Who};
use super::{Dump, SilentWorker};
use crate::runtime::counters::ThreadTimes;
use crate::runtime::fiber::{FiberRef, Wait};
use crate::runtime::label::Label;
use crate::runtime::shared::{Mail, Peer, Shared};
use crate::runtime::waker::Waker;
use crate::runtime::worker::{FiberSnapshot, Here, Question, Worker};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a worker may run, or wait in a call, before it begins to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often that is measured.
const LOOK: Duration = Duration::from_millis(50);
/// The limit where the worker's thread is stopped, or the machine gives it no time at all.
const LONGEST: Duration = Duration::from_secs(60);

/// One dump that is asked for.
struct Inquiry {
    backtraces: bool,
    state: Mutex<State>,
    asker: Waker,
}

struct State {
    answers: Vec<Answer>,
    snapshots: Vec<FiberSnapshot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Awaited,
    Begun,
    Given,
}

/// The question for one worker.
struct ForWorker {
    inquiry: Arc<Inquiry>,
    worker: usize,
}

// A snapshot holds nothing of its worker's thread: names are counted, places in the text are static,
// backtraces may be sent.
const _: fn() = || {
    fn sent<T: Send>() {}
    sent::<FiberSnapshot>();
};

impl Question for ForWorker {
    fn answer(self: Box<Self>, worker: &Worker) {
        self.inquiry.state().answers[self.worker] = Answer::Begun;
        let snapshots = worker.snapshots(self.inquiry.backtraces);
        self.inquiry.state().snapshots.extend(snapshots);
    }
}

impl Drop for ForWorker {
    fn drop(&mut self) {
        self.inquiry.state().answers[self.worker] = Answer::Given;
        self.inquiry.asker.wake();
    }
}

impl Inquiry {
    fn state(&self) -> MutexGuard<'_, State> {
        // An allocator that panics may have left it; what is there can be told.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether an answer is still expected: one that was begun always, as the worker computes it without
    /// waiting; others for as long as the worker has patience left.
    fn is_expected(&self, patience: &[Patience]) -> bool {
        let state = self.state();
        state.answers.iter().zip(patience).any(|(answer, patience)| match answer {
            Answer::Awaited => !patience.is_spent(),
            Answer::Begun => true,
            Answer::Given => false,
        })
    }

    /// Waits for the answers; how long that took.
    fn wait(&self, peers: &[Peer], current: Option<(Here, FiberRef)>) -> Duration {
        let now = || current.map_or_else(Instant::now, |(worker, _)| worker.now());
        let start = now();
        let mut patience: Vec<_> = peers.iter().map(|_| Patience::new(start)).collect();
        while self.is_expected(&patience) {
            let until = now() + LOOK;
            match current {
                Some((worker, fiber)) => {
                    let timer = worker.set_timer(until, fiber);
                    worker.suspend(fiber, Wait::Answers);
                    worker.take_back_timer(timer);
                }
                None => std::thread::park_timeout(until.saturating_duration_since(now())),
            }
            let now = now();
            patience.iter_mut().zip(peers).for_each(|(patience, peer)| patience.look(peer, now));
        }
        now() - start
    }
}

/// For how long a worker did not answer, measured by its own thread's time.
struct Patience {
    start: Instant,
    looked: Instant,
    times: Option<ThreadTimes>,
    spent: Duration,
}

impl Patience {
    fn new(start: Instant) -> Patience {
        Patience { start, looked: start, times: None, spent: Duration::ZERO }
    }

    fn look(&mut self, peer: &Peer, now: Instant) {
        if now - self.looked < LOOK {
            return;
        }
        // If it was longer, the asker had no processor, and the question may have been sent late.
        let elapsed = (now - self.looked).min(2 * LOOK);
        let before = std::mem::replace(&mut self.times, peer.counters.thread_times());
        self.looked = now;
        self.spent += match (&self.times, before) {
            (Some(times), Some(before)) => times.spent_since(&before, elapsed).min(elapsed),
            // The first look has nothing to compare with.
            (Some(_), None) => Duration::ZERO,
            // The kernel reports nothing of threads.
            (None, _) => elapsed,
        };
    }

    fn is_spent(&self) -> bool {
        self.spent >= PATIENCE || self.looked - self.start >= LONGEST
    }
}

/// What can be seen of a worker from outside.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outside {
    turns: u64,
    running: usize,
}

impl Outside {
    fn of(peer: &Peer) -> Outside {
        Outside { turns: peer.counters.turns.get(), running: peer.roster.running_number() }
    }
}

pub(super) fn collect(shared: &Arc<Shared>, backtraces: bool) -> Dump {
    let current = Worker::current();
    let here = Worker::here();
    let count = shared.peers.len();
    let inquiry = Arc::new(Inquiry {
        backtraces,
        state: Mutex::new(State { answers: vec![Answer::Awaited; count], snapshots: Vec::new() }),
        asker: match current {
            Some((worker, fiber)) => worker.waker(fiber),
            None => Waker::Thread(std::thread::current()),
        },
    });
    let before: Vec<Outside> = shared.peers.iter().map(Outside::of).collect();
    for (worker, peer) in shared.peers.iter().enumerate() {
        let question = Box::new(ForWorker { inquiry: Arc::clone(&inquiry), worker });
        match here {
            Some(here) if here.lives_at(&peer.mailbox) => question.answer(&here),
            Some(here) => here.mail(&peer.mailbox, Mail::Ask(question)),
            None => drop(peer.mailbox.inbox.send(Mail::Ask(question))),
        }
    }
    let waited = inquiry.wait(&shared.peers, current);
    if current.is_none() {
        // A token may have been taken that was meant for a `park` of the thread's own.
        std::thread::current().unpark();
    }
    let mut state = inquiry.state();
    let silent = (0..count).filter(|&worker| state.answers[worker] == Answer::Awaited);
    let silent = silent.map(|worker| {
        let peer = &shared.peers[worker];
        silent_worker(worker, peer, before[worker], waited)
    });
    let silent = silent.collect();
    let snapshots = std::mem::take(&mut state.snapshots);
    drop(state);
    Dump {
        fibers: report::reports(snapshots),
        silent,
        unstarted: shared.peers.iter().map(|peer| peer.stealer.len()).sum(),
        workers: count,
    }
}

fn silent_worker(
    worker: usize,
    peer: &Peer,
    before: Outside,
    silent_for: Duration,
) -> SilentWorker {
    let now = Outside::of(peer);
    let runs = peer.roster.look(Label::read);
    let alive = peer.counters.started.get().saturating_sub(peer.ended.read());
    SilentWorker {
        worker,
        is_stuck: now == before && runs.is_some(),
        others: alive.saturating_sub(u64::from(runs.is_some())),
        runs: runs.as_ref().map(Who::of),
        silent_for,
    }
}
