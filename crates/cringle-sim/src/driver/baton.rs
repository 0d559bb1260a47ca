//! Which worker of a run runs, if there are several.
//!
//! Workers are threads, but only the one that holds the *baton* runs. It hands the baton over at
//! points of the scheduler, where it holds no lock: in each turn, and where it would sleep. The
//! next holder is drawn by the seed among the workers that can run. So the interleaving of the
//! workers depends on nothing else.
//!
//! A worker that sleeps can run again when its bell has rung, or at the time of its next event. If
//! it has ops that wait for a peer, it can also run after each step of another worker, which may
//! have been the peer. If no worker can run, the virtual time jumps to the next event of any. If
//! there is none, the run is deadlocked: then each worker runs once more, to list its fibers.
//!
//! With one worker nothing is drawn here.
//!
//! If the holder waits for another worker in the kernel, as by a lock of std, neither continues.
//! The others cannot know that the holder does not compute, so they only report that it has not
//! handed the baton over.

use super::rng::Rng;
use super::{Core, HaltReason};
use cringle_sys::lock::{Condvar, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the holder may be away, in real time, before the others say so.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module. The part of the [`Core`] that concerns the workers.
pub(super) struct Baton {
    rng: Rng,
    /// The baton is handed over at one in this number of chances.
    rarity: u64,
    /// A fiber that may move does so at one in this number of chances.
    move_rarity: u64,
    seats: Vec<Seat>,
    holder: usize,
    /// The steps of all workers that ops of other workers may have waited for.
    steps: u64,
    halt: Option<HaltReason>,
    /// What the fibers of each worker wait for, after a halt.
    waits: BTreeMap<usize, String>,
    /// The start failed: the workers that exist end, without an order.
    is_abandoned: bool,
    /// It was said that a holder has not come back.
    has_complained: bool,
}

/// What the others know of a worker.
#[derive(Default)]
struct Seat {
    state: SeatState,
    /// Set when another thread wakes the worker.
    bell: Arc<AtomicBool>,
    is_next: Arc<Condvar>,
    has_heeded_halt: bool,
}

#[derive(Clone, Copy, Default)]
enum SeatState {
    #[default]
    Ready,
    Asleep {
        /// The time of its next event.
        until_ns: Option<u64>,
        /// The number of steps, if it has ops that wait for a peer.
        watches: Option<u64>,
    },
    /// It has ended.
    Left,
}

impl Baton {
    pub(super) fn new(seed: u64) -> Baton {
        let mut rng = Rng::stream(seed, "workers");
        Baton {
            rarity: 1 << rng.below(4),
            move_rarity: 1 << rng.between(1, 6),
            rng,
            seats: Vec::new(),
            holder: 0,
            steps: 0,
            halt: None,
            waits: BTreeMap::new(),
            is_abandoned: false,
            has_complained: false,
        }
    }

    /// A run begins with worker 0.
    pub(super) fn begin_run(&mut self, workers: usize) {
        self.seats = (0..workers).map(|_| Seat::default()).collect();
        (self.holder, self.halt, self.is_abandoned) = (0, None, false);
        self.waits.clear();
    }

    pub(super) fn hang_bell(&mut self, worker: usize, bell: Arc<AtomicBool>) {
        self.seats[worker].bell = bell;
    }

    pub(super) fn is_alone(&self) -> bool {
        self.seats.len() == 1
    }

    /// Notes that ops of other workers may be able to continue.
    pub(super) fn note_step(&mut self) {
        self.steps += 1;
    }

    pub(super) fn draw_below(&mut self, limit: u64) -> u64 {
        self.rng.below(limit)
    }

    pub(super) fn draw_move(&mut self) -> bool {
        self.rng.one_in(self.move_rarity)
    }

    pub(super) fn take_ring(&self, worker: usize) -> bool {
        self.seats[worker].bell.swap(false, Ordering::Relaxed)
    }

    fn can_run(&self, seat: &Seat, now_ns: u64) -> bool {
        match seat.state {
            SeatState::Ready => true,
            SeatState::Left => false,
            SeatState::Asleep { until_ns, watches } => {
                seat.bell.load(Ordering::Relaxed)
                    || until_ns.is_some_and(|at| at <= now_ns)
                    || watches.is_some_and(|steps| steps != self.steps)
                    || (self.halt.is_some() && !seat.has_heeded_halt)
            }
        }
    }

    /// Draws a worker that can run.
    fn draw_holder(&mut self, now_ns: u64) -> Option<usize> {
        let can_run = |worker: &usize| self.can_run(&self.seats[*worker], now_ns);
        let able: Vec<usize> = (0..self.seats.len()).filter(can_run).collect();
        match *able {
            [] => None,
            [only] => Some(only),
            _ => Some(able[self.rng.below(able.len() as u64) as usize]),
        }
    }

    #[cfg(any(test, feature = "sabotage"))]
    fn silence_bells(&self) {
        self.seats.iter().for_each(|seat| seat.bell.store(false, Ordering::Relaxed));
    }

    /// The time of the next event of any worker.
    fn next_event_ns(&self) -> Option<u64> {
        let times = self.seats.iter().map(|seat| match seat.state {
            SeatState::Asleep { until_ns, .. } => until_ns,
            SeatState::Ready | SeatState::Left => None,
        });
        times.flatten().min()
    }
}

// The end of a run that cannot continue.
impl Baton {
    /// Makes each worker list its fibers.
    pub(super) fn halt(&mut self, reason: HaltReason) {
        self.halt.get_or_insert(reason);
    }

    /// Returns why the run halts, once to each worker.
    pub(super) fn heed(&mut self, worker: usize) -> Option<HaltReason> {
        let reason = self.halt?;
        let is_news = !std::mem::replace(&mut self.seats[worker].has_heeded_halt, true);
        is_news.then_some(reason)
    }

    /// Notes what the fibers of a worker wait for. Returns all waits to the last worker.
    pub(super) fn describe(&mut self, worker: usize, waits: String) -> Option<String> {
        self.waits.insert(worker, waits);
        let is_missing = |worker: &usize| {
            !matches!(self.seats[*worker].state, SeatState::Left)
                && !self.waits.contains_key(worker)
        };
        if (0..self.seats.len()).any(|worker| is_missing(&worker)) {
            return None;
        }
        self.halt = None;
        self.seats.iter_mut().for_each(|seat| seat.has_heeded_halt = false);
        Some(std::mem::take(&mut self.waits).into_values().collect())
    }

    /// The start has failed.
    pub(super) fn abandon(&mut self) {
        self.is_abandoned = true;
        self.seats.iter().for_each(|seat| seat.is_next.notify_all());
    }
}

type Guard<'a> = MutexGuard<'a, Core>;

/// Waits until the worker holds the baton.
pub(super) fn wait_for_turn(mut core: Guard<'_>, me: usize) -> Guard<'_> {
    let is_next = Arc::clone(&core.baton.seats[me].is_next);
    while core.baton.holder != me && !core.baton.is_abandoned {
        let before = (core.baton.holder, core.baton.steps);
        let is_late;
        (core, is_late) = is_next.wait_timeout(core, PATIENCE);
        let is_away = is_late && before == (core.baton.holder, core.baton.steps);
        if is_away && !std::mem::replace(&mut core.baton.has_complained, true) {
            cringle_sys::report(format_args!(
                "a fiber of worker {} has run for {} s, while the other workers wait for their \
                 turn; if it waits for one of them by a lock or a channel of std, it waits for \
                 ever: use those of `cringle::sync`, or one worker",
                before.0,
                PATIENCE.as_secs(),
            ));
        }
    }
    core
}

/// Hands the baton to the worker that the seed draws, and waits until this one has it again.
pub(super) fn hand_over(mut core: Guard<'_>, me: usize) -> Guard<'_> {
    if core.baton.is_alone() || core.baton.is_abandoned {
        return core;
    }
    core.baton.note_step();
    let rarity = core.baton.rarity;
    if !core.baton.rng.one_in(rarity) {
        return core;
    }
    let next = core.draw_holder().expect("the holder can run");
    give_to(core, me, next)
}

/// Sleeps until this time, or until the bell rings.
pub(super) fn sleep(
    mut core: Guard<'_>,
    me: usize,
    until_ns: Option<u64>,
    has_blocked: bool,
) -> Guard<'_> {
    let watches = has_blocked.then_some(core.baton.steps);
    core.baton.seats[me].state = SeatState::Asleep { until_ns, watches };
    let next = core.next_holder();
    let mut core = give_to(core, me, next);
    core.baton.seats[me].state = SeatState::Ready;
    core
}

/// The worker has ended.
pub(super) fn leave(mut core: Guard<'_>, me: usize) {
    core.baton.seats[me].state = SeatState::Left;
    let has_ended = |seat: &Seat| matches!(seat.state, SeatState::Left);
    if core.baton.is_abandoned || core.baton.seats.iter().all(has_ended) {
        return;
    }
    let next = core.next_holder();
    core.baton.holder = next;
    core.baton.seats[next].is_next.notify_all();
}

fn give_to(mut core: Guard<'_>, me: usize, next: usize) -> Guard<'_> {
    if next == me {
        return core;
    }
    core.note(9, next as u64, 0);
    core.baton.holder = next;
    core.baton.seats[next].is_next.notify_all();
    wait_for_turn(core, me)
}

impl Core {
    fn draw_holder(&mut self) -> Option<usize> {
        #[cfg(any(test, feature = "sabotage"))]
        if self.is_sabotaged(super::Sabotage::WakeUpLost) {
            self.baton.silence_bells();
        }
        self.baton.draw_holder(self.now_ns)
    }

    /// Draws the next holder, when the present one cannot continue. Lets the time jump if no worker
    /// can run.
    fn next_holder(&mut self) -> usize {
        loop {
            if let Some(next) = self.draw_holder() {
                return next;
            }
            match self.baton.next_event_ns() {
                Some(at) => self.now_ns = self.now_ns.max(at),
                None => {
                    self.baton.halt(HaltReason::Deadlock);
                    #[cfg(any(test, feature = "sabotage"))]
                    self.end_sabotage();
                }
            }
        }
    }
}
