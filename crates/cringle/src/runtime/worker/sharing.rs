//! Which ready fibers move, and when, with [`Balance::Moving`].
//!
//! The load begins on the workers that spawn and accept. Few workers do it cheapest: they find
//! caches warm and the ring full, and wake nobody. So a worker shares its work only when it is
//! *pressed*:
//!
//! - A turn took more than [`LONG_TURN`], and more than [`HEAVY`] for each of its fibers: some of
//!   them compute, and others wait behind them.
//! - It has had something to do all the time for [`LONG_AWAKE`]: it needs a whole core.
//!
//! Then it *calls for help*: it offers all ready fibers but the first, and wakes a sleeper, which
//! takes half of what is offered. For [`PRESSED`] after that it offers fibers without a call in
//! every turn. An idle worker looks every [`STUCK_AFTER`] whether such a worker is still in the
//! same turn, because a fiber computes or the kernel runs another thread, and takes half then.
//!
//! # Rest
//!
//! A worker that has joined may be one too many. It measures itself in windows of [`WINDOW`], by
//! the kernel's account of its thread. It *rests* if it has waited for a processor for a tenth of
//! the time: then no core was free. Workers do not ask for a core again for a second after that,
//! and twice as long each further time. It also rests if worker 0 could do its work with time to
//! spare. It does not rest while one of the two has heavy fibers, which would meet the others. A
//! worker that rests sends its fibers to worker 0 as they become ready, and then sleeps.
//!
//! # Fibers that answer each other
//!
//! A fiber that another worker's fibers wake again and again, soon one after the other, follows
//! them to the worker with the lower number, if neither worker is pressed. (One that has woken it
//! only now may compute for long next, and nobody else could take the fiber from there meanwhile.)

use super::Worker;
use super::moving::Traveller;
use crate::runtime::balance::Balance;
use crate::runtime::fiber::{FiberRef, RunState, Wait};
use crate::runtime::shared::{Mail, Peer, Shared};
use crate::trace::Cause;
use crossbeam_deque::{Steal, Stealer};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const LONG_TURN: Duration = Duration::from_micros(300);
const HEAVY: Duration = Duration::from_micros(30);
const LONG_AWAKE: Duration = Duration::from_millis(20);
const PRESSED: Duration = Duration::from_secs(1);
const STUCK_AFTER: Duration = Duration::from_millis(1);
const WINDOW: Duration = Duration::from_millis(50);
/// For how long a worker rests. Fibers that wait for longer stay with it.
const REST: Duration = Duration::from_millis(200);
/// For how long nobody asks for a core after none was free, and how often that time doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MOST_FAILURES: u32 = 6;
/// A fiber follows its wakers after this number of wake-ups from one worker, each soon after the
/// one before.
const STREAK: u32 = 8;
const SOON: Duration = Duration::from_micros(200);
/// The part of a core, in thousandths, up to which one worker does the work of two.
const SPARE: u32 = 600;
/// The part of the time, in thousandths, for which a worker may wait for a processor.
const CROWDED: u32 = 100;

/// What a worker knows of its own pace and that of the others.
#[derive(Default)]
pub(super) struct Pace {
    /// When the current turn began, and its number of fibers.
    turn: Cell<Option<(Instant, u32)>>,
    /// Since when it has always had something to do, as far as it has looked.
    awake_since: Cell<Option<Instant>>,
    /// The turn in which each other worker was seen, and since when.
    seen: RefCell<Vec<(u64, Option<Instant>)>>,
    window: Cell<Option<Window>>,
    rests_until_ns: Cell<u64>,
}

/// The begin of a window, by the worker's coarse clock, and the account of its thread then.
#[derive(Clone, Copy)]
struct Window {
    began_ns: u64,
    ran: Duration,
    waited: Duration,
}

impl Pace {
    /// A turn begins, with this number of fibers. Returns the length of the turn before and its
    /// number of fibers, if nothing but turns lay in between.
    fn begin_turn(&self, now: Instant, fibers: u32) -> Option<(Duration, u32)> {
        if self.awake_since.get().is_none() {
            self.awake_since.set(Some(now));
        }
        let before = self.turn.replace(Some((now, fibers)));
        before.map(|(began, fibers)| (now - began, fibers))
    }

    fn is_long_awake(&self, now: Instant) -> bool {
        self.awake_since.get().is_some_and(|since| now - since > LONG_AWAKE)
    }

    /// Whether another worker has been in one turn for long.
    fn is_stuck(&self, number: usize, worker: &Peer, now: Instant) -> bool {
        let mut seen = self.seen.borrow_mut();
        if seen.len() <= number {
            seen.resize(number + 1, (0, None));
        }
        let turn = worker.counters.turns.get();
        match seen[number] {
            (seen, Some(since)) if seen == turn => now - since >= STUCK_AFTER,
            _ => {
                seen[number] = (turn, Some(now));
                false
            }
        }
    }
}

/// Whether workers that have joined have found a core of their own.
#[derive(Default)]
pub(in crate::runtime) struct Cores {
    /// No worker asks for another core before.
    not_before: Option<Instant>,
    /// Times in a row that no core was free.
    failures: u32,
}

impl Cores {
    fn may_be_free(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// A worker has waited for a processor. Several may find that at once.
    fn found_none(&mut self, now: Instant) {
        if self.may_be_free(now) {
            self.not_before = Some(now + FIRST_PAUSE * (1 << self.failures));
            self.failures = (self.failures + 1).min(MOST_FAILURES);
        }
    }

    /// A worker works, and has not waited for a processor.
    fn found_one(&mut self) {
        self.failures = 0;
    }
}

/// No fiber departs while it exists.
pub(in crate::runtime) struct HeldMoves<'a>(&'a Shared);

impl Drop for HeldMoves<'_> {
    fn drop(&mut self) {
        self.0.dumps.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    /// Keeps fibers from moving until the result is dropped.
    pub(in crate::runtime) fn hold_moves(&self) -> HeldMoves<'_> {
        self.dumps.fetch_add(1, Ordering::SeqCst);
        HeldMoves(self)
    }

    #[inline]
    fn holds_moves(&self) -> bool {
        self.dumps.load(Ordering::Relaxed) > 0
    }
}

fn is_heavy((length, fibers): (Duration, u32)) -> bool {
    length > LONG_TURN && length > HEAVY * fibers
}

// Giving.
impl Worker {
    /// Gives away some of the fibers that would run in this turn. Returns the others.
    #[cold]
    pub(super) fn share(&self, turn: Option<FiberRef>) -> Option<FiberRef> {
        if self.shared.holds_moves() {
            return turn;
        }
        match self.moves.balance {
            Balance::Fixed => turn,
            Balance::Moving => {
                self.follow_pace();
                if self.rests() { self.send_to(0, turn) } else { self.offer_some(turn) }
            }
            // To each worker in turn.
            Balance::Restless => self.send_to((self.index as usize + 1) % self.workers(), turn),
        }
    }

    /// Offers all but the first fiber, if this worker is pressed, and another one sleeps.
    fn offer_some(&self, turn: Option<FiberRef>) -> Option<FiberRef> {
        let Some(first) = turn else { return turn };
        let now = Instant::now();
        let before = self.moves.pace.begin_turn(now, first.count_queued());
        let was_heavy = self.note_turn(now, before);
        if !self.shared.has_idle_workers() {
            return turn;
        }
        let calls = was_heavy
            || (self.moves.pace.is_long_awake(now) && self.shared.cores().may_be_free(now));
        let is_news = calls && !self.me().is_pressed(now);
        if calls {
            self.me().set_pressed_until(now + PRESSED);
        }
        self.me().calls_for_help(calls);
        if !calls && !self.me().is_pressed(now) {
            return turn;
        }
        let mut next = first.unlink();
        self.schedule.ready().push(first);
        while let Some(fiber) = next {
            next = fiber.unlink();
            if self.may_move(fiber) {
                self.moves.offered.push(self.depart(fiber));
            } else {
                self.schedule.ready().push(fiber);
            }
        }
        // A sleeper that hears of it looks at this worker from now on, whatever is offered now.
        if (is_news || (calls && self.moves.has_offered()))
            && let Some(thief) = self.shared.thief_to_wake(self.index)
        {
            self.wake_peer(thief);
        }
        self.schedule.ready().take_all()
    }

    /// Sends each fiber that may move to another worker, but for those that have just arrived.
    fn send_to(&self, worker: usize, turn: Option<FiberRef>) -> Option<FiberRef> {
        if worker == self.index as usize {
            return turn;
        }
        let mailbox = &self.shared.peers[worker].mailbox;
        let mut next = turn;
        while let Some(fiber) = next {
            next = fiber.unlink();
            if fiber.take_arrived() || !self.may_move(fiber) {
                self.schedule.ready().push(fiber);
            } else {
                let traveller = self.depart(fiber);
                self.mail(mailbox, Mail::Arrive(traveller));
            }
        }
        self.schedule.ready().take_all()
    }

    /// Takes back the next fiber that this worker has offered.
    pub(super) fn take_back_offered(&self) -> Option<FiberRef> {
        loop {
            match self.moves.offered.pop() {
                Some(traveller) => return Some(self.arrive(traveller)),
                None if self.moves.offered.is_empty() => return None,
                None => {}
            }
        }
    }

    /// Takes back all fibers that this worker has offered.
    #[cold]
    pub(super) fn take_back_all(&self) {
        while let Some(fiber) = self.take_back_offered() {
            self.schedule.ready().push(fiber);
        }
    }

    /// Notes a turn that has ended. Returns whether it was heavy.
    fn note_turn(&self, now: Instant, turn: Option<(Duration, u32)>) -> bool {
        let was_heavy = turn.is_some_and(is_heavy);
        if was_heavy {
            self.me().set_heavy_until(now + PRESSED);
        }
        was_heavy
    }

    /// The worker has nothing to do.
    pub(super) fn end_turns(&self) {
        self.moves.pace.awake_since.set(None);
        if let Some((began, fibers)) = self.moves.pace.turn.take() {
            let now = Instant::now();
            self.note_turn(now, Some((now - began, fibers)));
        }
    }
}

// Taking.
impl Worker {
    /// Takes half of the fibers that another worker has offered, if that calls for help, or has not
    /// come to them for long. False if there is none.
    pub(super) fn take_offered(&self) -> bool {
        if !self.moves.may_happen() || self.shared.holds_moves() {
            return false;
        }
        let now = self.now();
        let count = self.workers();
        (1..count).any(|step| {
            let number = (self.index as usize + step) % count;
            let victim = &self.shared.peers[number];
            let is_stuck = victim.is_pressed(now) && self.moves.pace.is_stuck(number, victim, now);
            (is_stuck || victim.needs_help()) && self.take_half_of(&victim.offered)
        })
    }

    /// When to look again at workers that are pressed, though nothing wakes this one.
    pub(super) fn next_look_at_others(&self) -> Option<Instant> {
        if !self.moves.may_happen() {
            return None;
        }
        let now = self.now();
        let is_pressed = self.shared.peers.iter().any(|peer| peer.is_pressed(now));
        is_pressed.then(|| now + STUCK_AFTER)
    }

    fn take_half_of(&self, offered: &Stealer<Traveller>) -> bool {
        let mut left = offered.len().div_ceil(2);
        let mut has_taken = false;
        while left > 0 {
            match offered.steal() {
                Steal::Success(traveller) => {
                    self.receive(traveller);
                    has_taken = true;
                    left -= 1;
                }
                Steal::Retry => {}
                Steal::Empty => break,
            }
        }
        has_taken
    }
}

// Resting.
impl Worker {
    fn rests(&self) -> bool {
        self.events.clock_ns() < self.moves.pace.rests_until_ns.get()
    }

    /// Measures this worker when a window ends, and lets it rest if it is one too many.
    fn follow_pace(&self) {
        let now_ns = self.events.clock_ns();
        let before = self.moves.pace.window.get();
        let length = before.map(|before| now_ns.saturating_sub(before.began_ns));
        if length.is_some_and(|length| u128::from(length) < WINDOW.as_nanos()) {
            return;
        }
        let Some((ran, waited)) = self.me().counters.processor_times() else { return };
        self.moves.pace.window.set(Some(Window { began_ns: now_ns, ran, waited }));
        let (Some(before), Some(length)) = (before, length) else { return };
        let part = |time: Duration| (time.as_nanos() * 1000 / u128::from(length)) as u32;
        let busy = part(ran.saturating_sub(before.ran));
        let is_crowded = part(waited.saturating_sub(before.waited)) > CROWDED;
        self.me().set_busy(busy);
        if self.index > 0 && self.is_one_too_many(busy, is_crowded) {
            let rest = REST.as_nanos() as u64;
            self.moves.pace.rests_until_ns.set(now_ns + rest);
        }
    }

    fn is_one_too_many(&self, busy: u32, is_crowded: bool) -> bool {
        let (now, first) = (self.now(), &self.shared.peers[0]);
        if first.has_heavy(now) || self.me().has_heavy(now) {
            return false;
        }
        if is_crowded {
            self.shared.cores().found_none(now);
            return true;
        }
        if busy > SPARE / 2 {
            self.shared.cores().found_one();
        }
        busy + first.busy() < SPARE && !first.is_pressed(now) && !self.me().is_pressed(now)
    }
}

// Following a waker.
impl Worker {
    /// Whether a fiber that is woken from another worker goes on there.
    #[inline]
    pub(super) fn should_follow(&self, fiber: FiberRef, by: u32) -> bool {
        by < self.index && self.moves.balance == Balance::Moving && self.is_better_at(fiber, by)
    }

    fn is_better_at(&self, fiber: FiberRef, other: u32) -> bool {
        let ends_by_wake = match fiber.state() {
            RunState::Waiting(wait) => !matches!(wait, Wait::Ops | Wait::Room),
            RunState::Runnable | RunState::Vacant => false,
        };
        let now = self.now();
        ends_by_wake
            && fiber.count_wakes_from(other, now, SOON) >= STREAK
            && fiber.family().may_move()
            && !self.shared.holds_moves()
            && !self.me().is_pressed(now)
            && !self.shared.peers[other as usize].is_pressed(now)
    }

    /// Makes a waiting fiber ready on the worker that has woken it.
    #[cold]
    pub(super) fn send_after(&self, fiber: FiberRef, by: u32) {
        fiber.set_state(RunState::Runnable);
        self.events.made_ready(fiber, Cause::Wake);
        let traveller = self.depart(fiber);
        self.mail(&self.shared.peers[by as usize].mailbox, Mail::Arrive(traveller));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_turns_with_heavy_fibers_are_heavy() {
        let us = Duration::from_micros;
        assert!(is_heavy((us(301), 1)));
        assert!(is_heavy((us(50_000), 500)));
        assert!(!is_heavy((us(299), 1)), "a short turn");
        assert!(!is_heavy((us(2_500), 500)), "many light fibers");
    }

    #[test]
    fn a_machine_without_a_free_core_is_asked_less_and_less() {
        let (mut cores, mut now) = (Cores::default(), Instant::now());
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert!(cores.may_be_free(now));
            cores.found_none(now);
            // Another worker finds the same.
            cores.found_none(now + Duration::from_millis(10));
            now += Duration::from_secs(seconds);
            assert!(!cores.may_be_free(now - Duration::from_millis(1)));
        }
        assert!(cores.may_be_free(now));
        cores.found_one();
        cores.found_none(now);
        assert!(cores.may_be_free(now + Duration::from_secs(1)));
    }
}
