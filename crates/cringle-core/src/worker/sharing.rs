//! Which ready fibers move, and when, with [`Balance::Moving`]. Where this page says a fiber, its
//! whole family is meant.
//!
//! The load begins on the workers that spawn and accept. Few workers do it cheapest: they find
//! caches warm and the ring full, and wake no other worker. So a worker shares its work only when
//! it is *pressed*:
//!
//! - A turn was [heavy](super::turns): some of its fibers compute, and others wait behind them.
//! - It has had something to do all the time for [`LONG_AWAKE`], so it needs a whole core; and a
//!   quarter of another one [was free](super::cores) of late. (Where the clients of a server run on
//!   the same machine, it has often none to spare.)
//!
//! A pressed worker *calls for help*: it offers all ready fibers but the first, and wakes a
//! sleeping worker, which takes half of the offer. For a second after that it offers fibers in
//! every turn, without a call. Of the fibers that compute for long, one stays; and a worker that
//! has such a fiber takes none from a worker that has none. So light fibers gather elsewhere. Every
//! [`STUCK_AFTER`] an idle worker looks for a worker that has offered fibers and is still in the
//! same turn, because a fiber computes or the kernel runs another thread, and takes half of its
//! offer.
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
//! them to the worker with the lower number, if neither worker is pressed. (A single wake-up is not
//! enough: the waker may compute for long next, and no other worker could take the fiber there.)
//! Fibers whose peers are outside of the process: see [`pairing`](super::pairing).

use super::Worker;
use super::cores::idle_time;
use super::moving::{Traveller, awaits_wake, computes, may_follow, may_move};
use super::turns::Turns;
use crate::choices::Balance;
use crate::family::FamilyRef;
use crate::fiber::{FiberRef, RunState};
use crate::load::Sign;
use crate::shared::{Mail, MailBox, Peer, Shared};
use cringle_sys as sys;
use crossbeam_deque::{Steal, Worker as Deque};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG_AWAKE: Duration = Duration::from_millis(20);
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

/// The part of a worker that decides which fibers move. It offers families to others, and measures
/// its own pace and the pace of the others.
pub struct Moves {
    index: u32,
    shared: Arc<Shared>,
    pub(crate) balance: Balance,
    /// A simulation draws which fibers run and move.
    are_drawn: bool,
    /// Families with fibers that this worker would run next, and others may take.
    offered: Deque<Traveller>,
    turns: Turns,
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

/// What becomes of the fibers of a turn.
enum Plan {
    Keep,
    /// All that may leave go to this worker.
    Send(usize),
    /// Those that are [far](super::pairing) from their peers go to this worker.
    SendFar(usize),
    Offer(Offer),
}

/// All but the first fiber are offered to other workers.
struct Offer {
    now: Instant,
    calls: bool,
    /// The worker did not call before.
    is_news: bool,
}

/// An idle worker first: families that are far may fall silent, and never leave.
fn choose(offer: Option<Offer>, far_to: Option<usize>) -> Plan {
    offer.map(Plan::Offer).or(far_to.map(Plan::SendFar)).unwrap_or(Plan::Keep)
}

impl Moves {
    pub fn new(
        index: u32,
        shared: Arc<Shared>,
        balance: Balance,
        offered: Deque<Traveller>,
        are_drawn: bool,
    ) -> Moves {
        Moves {
            index,
            shared,
            balance,
            are_drawn,
            offered,
            turns: Turns::default(),
            seen: RefCell::default(),
            window: Cell::new(None),
            rests_until_ns: Cell::new(0),
        }
    }

    /// Whether fibers move between the workers.
    #[inline(always)]
    pub fn may_happen(&self) -> bool {
        self.balance != Balance::Fixed
    }

    #[inline(always)]
    pub(super) fn are_drawn(&self) -> bool {
        self.are_drawn
    }

    fn me(&self) -> &Peer {
        &self.shared.peers[self.index as usize]
    }
}

// Measuring.
impl Moves {
    /// Whether the runs of fibers are measured in this turn.
    #[inline(always)]
    pub(super) fn measure_runs(&self) -> bool {
        self.turns.measure_runs()
    }

    /// Notes a run of a fiber that is measured.
    #[cold]
    #[inline(never)]
    pub(super) fn note_run(&self, fiber: FiberRef) {
        let now = sys::now();
        fiber.note_run(self.turns.end_run(now));
        if fiber.computes() {
            self.me().load.note(Sign::Computes, now);
        }
    }

    /// The worker has nothing to do.
    #[inline]
    pub(super) fn end_turns(&self) {
        if self.turns.end(sys::now, sys::thread_ran) {
            self.me().load.note(Sign::Heavy, sys::now());
        }
    }

    /// Measures this worker when a window ends, and lets it rest if it is one too many.
    fn follow_pace(&self, now_ns: u64) {
        let before = self.window.get();
        let length = before.map(|before| now_ns.saturating_sub(before.began_ns));
        if length.is_some_and(|length| u128::from(length) < WINDOW.as_nanos()) {
            return;
        }
        let Some((ran, waited)) = self.me().counters.processor_times() else { return };
        self.window.set(Some(Window { began_ns: now_ns, ran, waited }));
        let (Some(before), Some(length)) = (before, length) else { return };
        let part = |time: Duration| (time.as_nanos() * 1000 / u128::from(length)) as u32;
        let busy = part(ran.saturating_sub(before.ran));
        let is_crowded = part(waited.saturating_sub(before.waited)) > CROWDED;
        self.me().load.set_busy(busy);
        if self.index > 0 && self.is_one_too_many(busy, is_crowded) {
            self.rests_until_ns.set(now_ns + REST.as_nanos() as u64);
        }
    }

    fn is_one_too_many(&self, busy: u32, is_crowded: bool) -> bool {
        let (now, first, own) = (sys::now(), &self.shared.peers[0].load, &self.me().load);
        if first.shows(Sign::Heavy, now) || own.shows(Sign::Heavy, now) {
            return false;
        }
        if is_crowded {
            self.shared.cores().found_none(now);
            return true;
        }
        if busy > SPARE / 2 {
            self.shared.cores().found_one();
        }
        busy + first.busy() < SPARE
            && !first.shows(Sign::Pressed, now)
            && !own.shows(Sign::Pressed, now)
    }
}

// Giving.
impl Moves {
    /// `far_to` is where the families go that are far, if there are any.
    fn plan(
        &self,
        turn: Option<FiberRef>,
        now: Instant,
        clock_ns: u64,
        far_to: Option<usize>,
    ) -> Plan {
        match self.balance {
            Balance::Fixed => Plan::Keep,
            Balance::Moving => {
                self.follow_pace(clock_ns);
                if clock_ns < self.rests_until_ns.get() {
                    return Plan::Send(0);
                }
                choose(turn.and_then(|first| self.plan_offer(first, now)), far_to)
            }
            // To each worker in turn.
            Balance::Restless => Plan::Send((self.index as usize + 1) % self.shared.workers()),
        }
    }

    /// Offers fibers if this worker is pressed, and another one sleeps.
    fn plan_offer(&self, first: FiberRef, now: Instant) -> Option<Offer> {
        let load = &self.me().load;
        let was_heavy = self.turns.begin(now, || first.count_queued(), sys::thread_ran);
        if was_heavy {
            load.note(Sign::Heavy, now);
        }
        if !self.shared.has_idle_taker(self.me(), now) {
            return None;
        }
        let calls = was_heavy
            || (self.turns.are_unbroken_for(LONG_AWAKE, now)
                && self.shared.cores().has_free(now, idle_time));
        let is_news = calls && !load.shows(Sign::Pressed, now);
        if calls {
            load.note(Sign::Pressed, now);
        }
        load.call_for_help(calls);
        load.shows(Sign::Pressed, now).then_some(Offer { now, calls, is_news })
    }

    /// Parts the fibers of a turn. Collects the ready members of each family that leaves, and calls
    /// `stays` for the other fibers. Whether a family leaves is decided once in a turn, by one of
    /// them: so they go together.
    pub(super) fn part(
        &self,
        turn: Option<FiberRef>,
        mut leaves: impl FnMut(FiberRef) -> bool,
        mut stays: impl FnMut(FiberRef),
    ) -> Vec<FamilyRef> {
        let (mut next, mut leaving) = (turn, Vec::new());
        let number = self.me().counters.turns.get();
        while let Some(fiber) = next {
            next = fiber.unlink();
            let family = fiber.family();
            let goes = family.verdict(number).unwrap_or_else(|| {
                let goes = leaves(fiber);
                family.set_verdict(number, goes);
                goes
            });
            fiber.set_arrived(false);
            if !goes {
                stays(fiber);
                continue;
            }
            if family.held().is_empty() {
                leaving.push(family);
            }
            family.held().push(fiber);
        }
        leaving
    }

    pub(super) fn offer(&self, traveller: Traveller) {
        self.offered.push(traveller);
    }

    #[inline]
    pub(super) fn has_offered(&self) -> bool {
        !self.offered.is_empty()
    }

    /// Takes back the next family that this worker has offered.
    pub(super) fn take_back(&self) -> Option<Traveller> {
        loop {
            match self.offered.pop() {
                None if self.has_offered() => {}
                taken => return taken,
            }
        }
    }

    /// A sleeper that is to hear of the offer. It looks at this worker from then on, whatever is
    /// offered now.
    fn sleeper_to_wake(&self, offer: &Offer) -> Option<&Arc<MailBox>> {
        if !(offer.is_news || offer.calls && self.has_offered()) {
            return None;
        }
        let suits = |thief: &Peer| thief.load.may_take_from(&self.me().load, offer.now);
        self.shared.thief_to_wake(self.index, suits)
    }
}

// Taking.
impl Moves {
    /// Takes half of the families that another worker has offered, if that calls for help, or has
    /// not come to them for long.
    pub(super) fn take_offered(&self, now: Instant) -> Vec<Traveller> {
        let mut taken = Vec::new();
        if !self.may_happen() || self.shared.holds_moves() {
            return taken;
        }
        let count = self.shared.workers();
        for number in (1..count).map(|step| (self.index as usize + step) % count) {
            let victim = &self.shared.peers[number];
            let is_stuck =
                victim.load.shows(Sign::Pressed, now) && self.is_stuck(number, victim, now);
            if !(is_stuck || victim.needs_help())
                || !self.me().load.may_take_from(&victim.load, now)
            {
                continue;
            }
            let most = victim.offered.len().div_ceil(2);
            while taken.len() < most {
                match victim.offered.steal() {
                    Steal::Success(traveller) => taken.push(traveller),
                    Steal::Retry => {}
                    Steal::Empty => break,
                }
            }
            if !taken.is_empty() {
                break;
            }
        }
        taken
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

    /// When to look again at workers that are pressed, though nothing wakes this one.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        let is_pressed =
            || self.shared.peers.iter().any(|peer| peer.load.shows(Sign::Pressed, now));
        (self.may_happen() && is_pressed()).then(|| now + STUCK_AFTER)
    }

    /// Whether a fiber that is woken from another worker goes on there. `draws` says whether a
    /// simulation wants it.
    #[inline]
    pub(super) fn follows(
        &self,
        fiber: FiberRef,
        by: u32,
        now: impl FnOnce() -> Instant,
        draws: impl FnOnce() -> bool,
    ) -> bool {
        by < self.index
            && self.balance == Balance::Moving
            && awaits_wake(fiber)
            && self.is_better_at(fiber, by, now(), draws)
    }

    fn is_better_at(
        &self,
        fiber: FiberRef,
        other: u32,
        now: Instant,
        draws: impl FnOnce() -> bool,
    ) -> bool {
        let wakes = fiber.count_wakes_from(other, now, SOON);
        ((self.are_drawn() && draws()) || wakes >= STREAK)
            && may_follow(fiber)
            && !self.shared.holds_moves()
            && !self.me().load.shows(Sign::Pressed, now)
            && !self.shared.peers[other as usize].load.shows(Sign::Pressed, now)
    }
}

impl Worker {
    /// Gives away some of the fibers that would run in this turn. Returns the others.
    #[cold]
    pub(super) fn share(&self, turn: Option<FiberRef>) -> Option<FiberRef> {
        if self.shared.holds_moves() {
            return turn;
        }
        if self.moves.are_drawn() {
            return self.share_as_drawn(turn);
        }
        let ready = self.schedule.ready();
        let stays = |fiber| ready.push(fiber);
        let now = sys::now();
        self.look_for_far(now);
        let far_to = self.pairing.leads_to(now);
        match self.moves.plan(turn, now, self.events.clock_ns(), far_to) {
            Plan::Keep => return turn,
            Plan::Send(worker) => {
                // But for families that have just arrived.
                let leaves = |fiber: FiberRef| {
                    may_move(fiber)
                        && !fiber.family().siblings().iter().any(|it| it.awaits_first_run())
                };
                self.give_away(self.moves.part(turn, leaves, stays), || Some(worker));
            }
            Plan::SendFar(worker) => {
                let leaves = |fiber| self.pairing.leaves(fiber, now);
                self.give_away(self.moves.part(turn, leaves, stays), || Some(worker));
            }
            Plan::Offer(offer) => {
                let first = turn;
                let mut keeps_one = first.is_some_and(computes);
                let leaves = |fiber: FiberRef| {
                    first.is_some_and(|first| fiber.family() != first.family())
                        && (!computes(fiber) || std::mem::replace(&mut keeps_one, true))
                        && may_move(fiber)
                };
                self.give_away(self.moves.part(turn, leaves, stays), || None);
                if let Some(sleeper) = self.moves.sleeper_to_wake(&offer) {
                    self.wake_peer(sleeper);
                }
            }
        }
        ready.take_all()
    }

    /// Gives away families whose ready members were collected: to the worker that `to` names, or as
    /// an offer.
    pub(super) fn give_away(&self, leaving: Vec<FamilyRef>, mut to: impl FnMut() -> Option<usize>) {
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
            let traveller = self.depart(first);
            match to() {
                None => self.moves.offer(traveller),
                Some(to) => self.mail(&self.shared.peers[to].mailbox, Mail::Arrive(traveller)),
            }
        }
    }

    /// Takes back all fibers that this worker has offered.
    #[cold]
    pub(super) fn take_back_all(&self) {
        while let Some(traveller) = self.moves.take_back() {
            let mut next = Some(self.arrive(traveller));
            while let Some(fiber) = next {
                next = fiber.unlink();
                self.schedule.ready().push(fiber);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[test]
fn idle_worker_gets_an_offer_though_families_are_far() {
    let offer = || Some(Offer { now: Instant::now(), calls: true, is_news: true });
    assert!(matches!(choose(offer(), Some(1)), Plan::Offer(_)));
    assert!(matches!(choose(None, Some(1)), Plan::SendFar(1)));
    assert!(matches!(choose(None, None), Plan::Keep));
}
