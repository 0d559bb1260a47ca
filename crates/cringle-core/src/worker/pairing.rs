//! Which worker is near to the peer of a fiber, with [`Balance::Moving`]: clients of a server may
//! run on the same machine.
//!
//! If the peer sleeps on the core of the fiber's worker, a message wakes it there: it answers
//! before the worker goes on, and the fiber finds the answer without a wait. On another core, the
//! message costs an interrupt there, and the peer waits until the worker of that core has used up
//! its time. The kernel brings a thread near to the one that wakes it, but not while workers and
//! peers are so busy that none of them really sleeps: then each stays where it began.
//!
//! So the family goes to its peer. Workers count the messages of each family in a window. If it
//! exchanges far fewer than those do that exchange the most, its peer is probably far, and it tries
//! another worker whose families exchange messages. (Or the peer is slow. Then the family has moved
//! in vain, and stays for [`STAY`].) As many go one way as the other, or a worker with few families
//! would serve each so often that its neighbours seemed far; so a worker that has more gives more.

use super::Worker;
use super::moving::may_move;
use crate::choices::Balance;
use crate::family::FamilyRef;
use crate::fiber::FiberRef;
use crate::load::Sign;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// A window lasts at least for this time, and until the families that exchange messages have
/// exchanged this number each.
const WINDOW: Duration = Duration::from_millis(50);
const MESSAGES: usize = 20;
/// A family with fewer messages in a window does not count.
const FEW: u32 = 3;
/// Within what time after a window families leave.
const LEAVE: Duration = Duration::from_millis(100);
/// For how long a family stays where it has gone.
const STAY: Duration = Duration::from_millis(500);

/// What a family has exchanged.
#[derive(Default)]
pub(crate) struct Exchange {
    messages: Cell<u32>,
    /// Few, so the family is to leave.
    is_far: Cell<bool>,
    stays_until: Cell<Option<Instant>>,
}

/// What a worker's families have exchanged.
#[derive(Default)]
pub(super) struct Pairing {
    began: Cell<Option<Instant>>,
    messages: Cell<usize>,
    /// The window does not end before that many.
    enough: Cell<usize>,
    /// Where the families go that are far, and how many are still to go.
    leaving: Cell<(usize, usize)>,
}

impl Pairing {
    #[inline(always)]
    pub(super) fn count_message(&self, fiber: FiberRef) {
        self.messages.set(self.messages.get() + 1);
        let family = fiber.family();
        let messages = &family.exchange().messages;
        messages.set(messages.get().saturating_add(1));
    }

    #[inline(always)]
    fn has_enough(&self) -> bool {
        self.messages.get() >= self.enough.get()
    }

    fn ends_window(&self, now: Instant) -> bool {
        let lasted = self.began.get().map(|began| now.saturating_duration_since(began));
        let ends = lasted.is_none_or(|lasted| lasted >= WINDOW);
        if ends {
            self.began.set(Some(now));
            self.messages.set(0);
        }
        ends
    }

    /// Where families go that are far, if one is still to go.
    pub(super) fn leads_to(&self, now: Instant) -> Option<usize> {
        let (to, left) = self.leaving.get();
        // Those that have fallen silent meanwhile may stay.
        let is_new = || self.began.get().is_some_and(|began| now < began + LEAVE);
        (left > 0 && is_new()).then_some(to)
    }

    /// Whether the family of a ready fiber goes now.
    pub(super) fn leaves(&self, fiber: FiberRef, now: Instant) -> bool {
        let family = fiber.family();
        let exchange = family.exchange();
        let (to, left) = self.leaving.get();
        // A family that another worker marked may have come on another way.
        let leaves = left > 0 && exchange.is_far.get() && may_move(fiber);
        if leaves {
            exchange.is_far.set(false);
            exchange.stays_until.set(Some(now + STAY));
            self.leaving.set((to, left - 1));
        }
        leaves
    }
}

/// How many families leave for another worker that has `others` of them. `messages` is what each
/// has exchanged, in descending order: the last ones leave.
fn count_leaving(messages: &[u32], others: usize) -> usize {
    let own = messages.len();
    let (more, fewer) = (own.saturating_sub(others), others.saturating_sub(own));
    let near = &messages[..own.div_ceil(4)];
    let mean = near.iter().sum::<u32>() / near.len().max(1) as u32;
    let far = messages.iter().rev().take_while(|&&it| it < mean / 8 * 5).count();
    let leaving = far.min((more / 2 + own.div_ceil(8)).saturating_sub(fewer / 2));
    let has_too_many = own * 4 > others * 5;
    if has_too_many { leaving.max(more / 2) } else { leaving }
}

impl Worker {
    /// Looks for families that are far, if a window ends. A look takes time for each fiber, so a
    /// window has a message for each.
    #[inline]
    pub(super) fn look_for_far(&self, now: Instant) {
        let moves = self.shared.workers() > 1 && self.moves.balance == Balance::Moving;
        if moves && self.pairing.has_enough() && self.pairing.ends_window(now) {
            self.find_far(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn find_far(&self, now: Instant) {
        let workers = self.shared.workers();
        let fibers = self.table.fibers();
        let exchanged = |fiber: &FiberRef| {
            let family = fiber.family();
            family.exchange().is_far.set(false);
            Some((family, family.exchange().messages.take()))
                .filter(|&(_, messages)| messages >= FEW)
        };
        let mut families: Vec<_> = fibers.iter().filter_map(exchanged).collect();
        families.sort_unstable_by_key(|&(_, messages)| std::cmp::Reverse(messages));
        let own = families.len();
        self.pairing.enough.set((own * MESSAGES).max(fibers.len() * workers).max(1));
        self.pairing.leaving.set((0, 0));
        if own == 0 {
            return;
        }
        let load = &self.me().load;
        load.set_exchanging(own as u32);
        load.note(Sign::Exchanges, now);
        let suits = |&number: &usize| {
            let other = &self.shared.peers[number].load;
            number != self.index as usize
                && other.shows(Sign::Exchanges, now)
                && other.may_take_from(load, now)
        };
        let others: Vec<usize> = (0..workers).filter(suits).collect();
        if others.is_empty() {
            return;
        }
        let to = others[self.me().counters.turns.get() as usize % others.len()];
        let messages: Vec<u32> = families.iter().map(|&(_, messages)| messages).collect();
        let leaving = count_leaving(&messages, self.shared.peers[to].load.exchanging() as usize);
        let may_go = |(family, _): &&(FamilyRef, u32)| {
            family.exchange().stays_until.get().is_none_or(|until| now >= until)
        };
        let far = families.iter().rev().take(leaving).filter(may_go);
        let count = far.inspect(|it| it.0.exchange().is_far.set(true)).count();
        self.pairing.leaving.set((to, count));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn workers_with_the_same_number_swap_those_that_are_far() {
        let near_and_far = |near, far| [vec![600; near], vec![200; far]].concat();
        assert_eq!(count_leaving(&near_and_far(8, 0), 8), 0);
        assert_eq!(count_leaving(&near_and_far(7, 1), 8), 1);
        assert_eq!(count_leaving(&near_and_far(3, 5), 8), 1, "not all at once");
        assert_eq!(count_leaving(&near_and_far(100, 150), 250), 32);
        assert_eq!(
            count_leaving(&near_and_far(0, 250), 250),
            0,
            "none is near, or the peers are slow"
        );
    }

    #[test]
    fn a_worker_with_too_many_gives_half_of_the_difference() {
        assert_eq!(count_leaving(&[600; 12], 4), 4);
        assert_eq!(count_leaving(&[600; 9], 7), 1);
        assert_eq!(count_leaving(&[600; 250], 240), 0, "not too many");
        assert_eq!(count_leaving(&[600, 600], 1), 0, "they would take turns");
        assert_eq!(count_leaving(&[600; 4], 12), 0);
        assert_eq!(count_leaving(&[], 5), 0);
    }

    #[test]
    fn families_that_are_silent_leave_no_more() {
        let (pairing, start) = (Pairing::default(), Instant::now());
        assert!(pairing.ends_window(start));
        assert_eq!(pairing.leads_to(start), None, "none is far");
        pairing.leaving.set((3, 1));
        assert_eq!(pairing.leads_to(start + LEAVE / 2), Some(3));
        assert_eq!(pairing.leads_to(start + LEAVE), None);
    }

    #[test]
    fn a_window_ends_after_its_time_and_with_enough_messages() {
        let (pairing, start) = (Pairing::default(), Instant::now());
        assert!(pairing.ends_window(start), "the first look compares nothing");
        pairing.enough.set(100);
        pairing.messages.set(100);
        assert!(pairing.has_enough() && !pairing.ends_window(start + WINDOW / 2));
        pairing.messages.set(99);
        assert!(!pairing.has_enough());
        assert!(pairing.ends_window(start + WINDOW));
        assert_eq!(pairing.messages.get(), 0);
    }
}
