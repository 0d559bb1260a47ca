//! Which ready fibers move, and when, with [`Balance::Moving`]. Where this page says a fiber, its
//! whole family is meant.
//!
//! The load begins on the workers that spawn and accept. Few workers do it cheapest: they find
//! caches warm and the ring full, and wake no other worker. So a worker shares its work only when
//! it is *pressed*:
//!
//! - A turn was [heavy](super::turns): some of its fibers compute, and others wait behind them.
//! - It has had something to do all the time for [`LONG_AWAKE`], so it needs a whole core; and half
//!   of another one [was free](super::cores) of late. (Where the clients of a server run on the
//!   same machine, it has often none to spare.)
//!
//! Then it *calls for help*: it offers all ready fibers but the first, and wakes a sleeper, which
//! takes half of what is offered. One of the fibers that compute for long stays, and a worker that
//! has such a fiber takes none from one that has none: so light fibers come together elsewhere. For
//! [`PRESSED`] after that it offers fibers without a call in every turn. An idle worker looks every
//! [`STUCK_AFTER`] whether such a worker is still in the same turn, because a fiber computes or the
//! kernel runs another thread, and takes half then.
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
//! them to the worker with the lower number, if neither worker is pressed. (After a single wake-up
//! the fiber stays: the waker may compute for long next, and no other worker could take the fiber
//! from there meanwhile.)

use super::Worker;
use super::cores::idle_time;
use super::moving::{MOST_MEMBERS, Traveller};
use super::turns::Turns;
use crate::runtime::balance::Balance;
use crate::runtime::family::FamilyRef;
use crate::runtime::fiber::{FiberRef, RunState, Wait};
use crate::runtime::shared::{Mail, Peer, Shared};
use crate::sys;
use crate::trace::Cause;
use crossbeam_deque::{Steal, Stealer};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const LONG_AWAKE: Duration = Duration::from_millis(20);
const PRESSED: Duration = Duration::from_secs(1);
const STUCK_AFTER: Duration = Duration::from_millis(1);
const WINDOW: Duration = Duration::from_millis(50);
/// For how long a worker rests. Fibers that wait for longer stay with it.
const REST: Duration = Duration::from_millis(200);
/// A fiber follows its wakers after this number of wake-ups from one worker, each soon after the
/// one before.
const STREAK: u32 = 8;
const SOON: Duration = Duration::from_micros(200);
/// The part of a core, in thousandths, up to which one worker does the work of two.
const SPARE: u32 = 600;
/// The part of the time, in thousandths, for which a worker may wait for a processor.
const CROWDED: u32 = 100;

/// Families that leave in this turn.
pub(super) type Leaving = Vec<FamilyRef>;

/// What a worker knows of its own pace and the pace of the others.
#[derive(Default)]
pub(super) struct Pace {
    pub(super) turns: Turns,
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

/// Whether a member of the fiber's family computes. (Of a large family, which stays, the others are
/// not looked at.)
fn computes(fiber: FiberRef) -> bool {
    let family = fiber.family();
    fiber.computes()
        || (family.members() <= MOST_MEMBERS && family.siblings().iter().any(|it| it.computes()))
}

/// Adds a ready fiber to the ready members of its family, which leaves.
pub(super) fn collect(fiber: FiberRef, leaving: &mut Leaving) {
    let family = fiber.family();
    if family.held().is_empty() {
        leaving.push(family);
    }
    family.held().push(fiber);
}

// Giving.
impl Worker {
    /// Gives away some of the fibers that would run in this turn. Returns the others.
    #[cold]
    pub(super) fn share(&self, turn: Option<FiberRef>) -> Option<FiberRef> {
        if self.shared.holds_moves() {
            return turn;
        }
        #[cfg(feature = "sim")]
        if self.moves.are_drawn {
            return self.share_as_drawn(turn);
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
        let now = sys::now();
        let turns = &self.moves.pace.turns;
        let was_heavy = turns.begin(now, || first.count_queued(), sys::thread_ran);
        if was_heavy {
            self.note_heavy_turn(now);
        }
        if !self.shared.has_idle_taker(self.me(), now) {
            return turn;
        }
        let calls = was_heavy
            || (turns.are_unbroken_for(LONG_AWAKE, now)
                && self.shared.cores().has_free(now, idle_time));
        let is_news = calls && !self.me().load.is_pressed(now);
        if calls {
            self.me().load.set_pressed_until(now + PRESSED);
        }
        self.me().load.call_for_help(calls);
        if !calls && !self.me().load.is_pressed(now) {
            return turn;
        }
        let mut next = first.unlink();
        self.schedule.ready().push(first);
        let mut keeps_one = computes(first);
        let mut leaving = Leaving::new();
        while let Some(fiber) = next {
            next = fiber.unlink();
            let suits = || {
                fiber.family() != first.family()
                    && (!computes(fiber) || std::mem::replace(&mut keeps_one, true))
            };
            if self.leaves(fiber, suits) {
                collect(fiber, &mut leaving);
            } else {
                self.schedule.ready().push(fiber);
            }
        }
        self.dispatch(leaving, |traveller| self.moves.offered.push(traveller));
        // A sleeper that the call wakes looks at this worker from now on, whatever is offered now.
        if (is_news || (calls && self.moves.has_offered()))
            && let Some(thief) = self
                .shared
                .thief_to_wake(self.index, |thief| thief.load.may_take_from(&self.me().load, now))
        {
            self.wake_peer(thief);
        }
        self.schedule.ready().take_all()
    }

    /// Whether the family of a ready fiber leaves. That is decided once in a turn, so that its
    /// ready members go together.
    pub(super) fn leaves(&self, fiber: FiberRef, suits: impl FnOnce() -> bool) -> bool {
        let family = fiber.family();
        let turn = self.me().counters.turns.get();
        family.verdict(turn).unwrap_or_else(|| {
            let leaves = suits() && self.may_move(fiber);
            family.set_verdict(turn, leaves);
            leaves
        })
    }

    /// Gives away families whose ready members were collected.
    pub(super) fn dispatch(&self, leaving: Leaving, mut publish: impl FnMut(Traveller)) {
        for family in leaving {
            let first = family.held().first().expect("a ready member was collected");
            debug_assert!(
                family
                    .siblings()
                    .iter()
                    .filter(|member| member.state() == RunState::Runnable)
                    .count()
                    == first.count_queued() as usize,
                "I3: a ready member is in another queue"
            );
            publish(self.depart(first));
        }
    }

    /// Sends each family that may move to another worker, but for families that have just arrived.
    fn send_to(&self, worker: usize, turn: Option<FiberRef>) -> Option<FiberRef> {
        if worker == self.index as usize {
            return turn;
        }
        let mailbox = &self.shared.peers[worker].mailbox;
        let mut next = turn;
        let mut leaving = Leaving::new();
        while let Some(fiber) = next {
            next = fiber.unlink();
            let has_run =
                || !fiber.family().siblings().iter().any(|member| member.awaits_first_run());
            if self.leaves(fiber, has_run) {
                collect(fiber, &mut leaving);
            } else {
                self.schedule.ready().push(fiber);
            }
            fiber.set_arrived(false);
        }
        self.dispatch(leaving, |traveller| self.mail(mailbox, Mail::Arrive(traveller)));
        self.schedule.ready().take_all()
    }

    /// Takes back the next family that this worker has offered. Returns its ready members, linked.
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
        while let Some(first) = self.take_back_offered() {
            let mut next = Some(first);
            while let Some(fiber) = next {
                next = fiber.unlink();
                self.schedule.ready().push(fiber);
            }
        }
    }

    /// Notes a run of a fiber that is measured.
    #[cold]
    pub(super) fn note_run(&self, fiber: FiberRef) {
        let now = sys::now();
        fiber.note_run(self.moves.pace.turns.end_run(now));
        if fiber.computes() {
            self.me().load.set_computes_until(now + PRESSED);
        }
    }

    /// The worker has nothing to do.
    #[inline]
    pub(super) fn end_turns(&self) {
        if self.moves.pace.turns.end(sys::now, sys::thread_ran) {
            self.note_heavy_turn(sys::now());
        }
    }

    #[cold]
    fn note_heavy_turn(&self, now: Instant) {
        self.me().load.set_heavy_until(now + PRESSED);
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
            let is_stuck =
                victim.load.is_pressed(now) && self.moves.pace.is_stuck(number, victim, now);
            (is_stuck || victim.needs_help())
                && self.me().load.may_take_from(&victim.load, now)
                && self.take_half_of(&victim.offered)
        })
    }

    /// When to look again at workers that are pressed, though nothing wakes this one.
    pub(super) fn next_look_at_others(&self) -> Option<Instant> {
        if !self.moves.may_happen() {
            return None;
        }
        let now = self.now();
        let is_pressed = self.shared.peers.iter().any(|peer| peer.load.is_pressed(now));
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
        self.me().load.set_busy(busy);
        if self.index > 0 && self.is_one_too_many(busy, is_crowded) {
            let rest = REST.as_nanos() as u64;
            self.moves.pace.rests_until_ns.set(now_ns + rest);
        }
    }

    fn is_one_too_many(&self, busy: u32, is_crowded: bool) -> bool {
        let (now, first) = (self.now(), &self.shared.peers[0]);
        if first.load.has_heavy(now) || self.me().load.has_heavy(now) {
            return false;
        }
        if is_crowded {
            self.shared.cores().found_none(now);
            return true;
        }
        if busy > SPARE / 2 {
            self.shared.cores().found_one();
        }
        busy + first.load.busy() < SPARE
            && !first.load.is_pressed(now)
            && !self.me().load.is_pressed(now)
    }
}

// Following a waker.
impl Worker {
    /// Whether a fiber that is woken from another worker continues on that worker.
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
            && self.is_streak(fiber.count_wakes_from(other, now, SOON))
            && self.may_follow(fiber)
            && !self.shared.holds_moves()
            && !self.me().load.is_pressed(now)
            && !self.shared.peers[other as usize].load.is_pressed(now)
    }

    fn is_streak(&self, wakes: u32) -> bool {
        #[cfg(feature = "sim")]
        if self.draws_move() {
            return true;
        }
        wakes >= STREAK
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
