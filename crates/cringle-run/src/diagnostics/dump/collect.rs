//! Asks the workers for their fibers, and waits for the answers.
//!
//! A question is a message to the worker. So the one thread that may look at its fibers answers it,
//! between two of them (**I3**). A question that is dropped unread, because its worker has ended,
//! counts as answered.
//!
//! A worker reads its messages once a turn. If it has not begun to answer after [`PATIENCE`], its
//! turn lasts that long. The dump then holds what other threads may read of that worker: the
//! running fiber, and whether the turn is still the same. Time in which a busy machine gave the
//! worker's thread no processor, or the asking thread, does not count.

use super::report::{self, Who};
use super::{Dump, SilentWorker};
use cringle_core::counters::ThreadTimes;
use cringle_core::fiber::Wait;
use cringle_core::label::Label;
use cringle_core::shared::{Mail, Peer, Shared};
use cringle_core::waker::Waker;
use cringle_core::worker::{Current, FiberSnapshot, Question, Worker};
use cringle_sys as sys;
use cringle_sys::lock::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a worker may run, or wait in a system call, before it begins to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The interval at which that is measured.
const LOOK: Duration = Duration::from_millis(50);
/// The limit for a worker whose thread is stopped, or gets no processor at all.
const LONGEST: Duration = Duration::from_secs(60);

/// One dump in the making.
struct Inquiry {
    backtraces: bool,
    answers: Mutex<Answers>,
    asker: Waker,
}

struct Answers {
    /// By worker.
    progress: Vec<Progress>,
    snapshots: Vec<FiberSnapshot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Awaited,
    Begun,
    Done,
}

/// The question for one worker.
struct ForWorker {
    inquiry: Arc<Inquiry>,
    worker: usize,
}

// A snapshot may leave its worker's thread: names are reference-counted, places in the source are
// static, and backtraces are `Send`.
const _: fn() = || {
    fn assert_send<T: Send>() {}
    assert_send::<FiberSnapshot>();
};

impl Question for ForWorker {
    fn answer(self: Box<Self>, worker: &Worker) {
        self.inquiry.answers().progress[self.worker] = Progress::Begun;
        let snapshots = worker.snapshots(self.inquiry.backtraces);
        self.inquiry.answers().snapshots.extend(snapshots);
    }
}

impl Drop for ForWorker {
    fn drop(&mut self) {
        self.inquiry.answers().progress[self.worker] = Progress::Done;
        self.inquiry.asker.wake();
    }
}

impl Inquiry {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        // A panic of the program's allocator may have poisoned the lock. The answers so far are
        // good.
        self.answers.lock()
    }

    /// Whether an answer is still expected. If a worker has begun, always, because it answers
    /// without waiting; otherwise as long as there is patience left for it.
    fn is_expected(&self, patience: &[Patience]) -> bool {
        let answers = self.answers();
        answers.progress.iter().zip(patience).any(|(progress, patience)| match progress {
            Progress::Awaited => !patience.is_spent(),
            Progress::Begun => true,
            Progress::Done => false,
        })
    }

    /// Waits for the answers. Returns how long that took.
    fn wait(&self, peers: &[Peer], current: Option<Current>) -> Duration {
        let now = || current.map_or_else(sys::now, |current| current.worker.now());
        let start = now();
        let mut patience: Vec<_> = peers.iter().map(|_| Patience::new(start)).collect();
        while self.is_expected(&patience) {
            let until = now() + LOOK;
            match current {
                Some(current) => current.suspend_until(Wait::Answers, Some(until)),
                None => std::thread::park_timeout(until.saturating_duration_since(now())),
            }
            let now = now();
            patience.iter_mut().zip(peers).for_each(|(patience, peer)| patience.look(peer, now));
        }
        if current.is_none() {
            // The wait may have consumed a token that was meant for the program's own `park`.
            std::thread::current().unpark();
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
        // After a longer pause the asker had no processor, and may have sent the question late.
        let elapsed = (now - self.looked).min(2 * LOOK);
        let before = std::mem::replace(&mut self.times, peer.counters.thread_times());
        self.looked = now;
        self.spent += match (&self.times, before) {
            (Some(times), Some(before)) => times.spent_since(&before, elapsed).min(elapsed),
            // The first look has nothing to compare with.
            (Some(_), None) => Duration::ZERO,
            // Without the thread's times, all of it counts.
            (None, _) => elapsed,
        };
    }

    fn is_spent(&self) -> bool {
        self.spent >= PATIENCE || self.looked - self.start >= LONGEST
    }
}

/// What other threads can see of a worker.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OutsideView {
    turns: u64,
    running: usize,
}

impl OutsideView {
    fn of(peer: &Peer) -> OutsideView {
        OutsideView { turns: peer.counters.turns.get(), running: peer.roster.running_number() }
    }
}

/// Makes a dump of a runtime.
pub(super) fn collect(shared: &Arc<Shared>, backtraces: bool) -> Dump {
    let current = Current::get();
    let here = Worker::here();
    let count = shared.peers.len();
    // Else a fiber that moves between two answers would be in both or in none.
    let _held = shared.hold_moves();
    let inquiry = Arc::new(Inquiry {
        backtraces,
        answers: Mutex::new(Answers {
            progress: vec![Progress::Awaited; count],
            snapshots: Vec::new(),
        }),
        asker: match current {
            Some(current) => current.waker(),
            None => Waker::Thread(std::thread::current()),
        },
    });
    let before: Vec<OutsideView> = shared.peers.iter().map(OutsideView::of).collect();
    for (worker, peer) in shared.peers.iter().enumerate() {
        let question = Box::new(ForWorker { inquiry: Arc::clone(&inquiry), worker });
        match here {
            Some(here) if Arc::ptr_eq(here.mailbox(), &peer.mailbox) => question.answer(&here),
            Some(here) => here.mail(&peer.mailbox, Mail::Ask(question)),
            None => drop(peer.mailbox.inbox.send(Mail::Ask(question))),
        }
    }
    let waited = inquiry.wait(&shared.peers, current);
    if current.is_none() {
        // The wait may have taken a token that was meant for a `park` of the program.
        std::thread::current().unpark();
    }
    let mut answers = inquiry.answers();
    let silent = (0..count).filter(|&worker| answers.progress[worker] == Progress::Awaited);
    let silent = silent.map(|worker| {
        let peer = &shared.peers[worker];
        silent_worker(worker, peer, before[worker], waited)
    });
    let silent = silent.collect();
    let snapshots = std::mem::take(&mut answers.snapshots);
    drop(answers);
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
    before: OutsideView,
    silent_for: Duration,
) -> SilentWorker {
    let now = OutsideView::of(peer);
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
