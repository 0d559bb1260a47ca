//! Which worker is near to the peer of a fiber, with [`Balance::Moving`]: clients of a server may
//! run on the same machine.
//!
//! If the peer sleeps on the core of the fiber's worker, a message wakes it there: it answers
//! before the worker goes on, and the fiber finds the answer without a wait. On another core, the
//! message costs an interrupt there, and the peer waits until the worker of that core has used up
//! its time. The kernel brings a thread near to the one that wakes it, but not while workers and
//! peers are so busy that none of them really sleeps: then each stays where it began.
//!
//! So the family goes to its peer. Workers count the messages of each family in a window. Where it
//! exchanges less than half as many as the others do, its peer is probably far, and it tries
//! another worker that exchanges messages. (Or the peer is slow. Then the family has moved in vain,
//! and stays for [`STAY`].) As many families go one way as the other, or a worker with few of them
//! would serve each so often that its neighbours seemed far: the more families a worker has, the
//! more it gives away.

use super::Worker;
use super::moving::may_move;
use crate::choices::Balance;
use crate::fiber::FiberRef;
use crate::load::Sign;
use cringle_sys as sys;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// A window lasts at least for this time, and until the families that exchange messages have
/// exchanged this number each.
const WINDOW: Duration = Duration::from_millis(50);
const MESSAGES: usize = 40;
/// A family with fewer messages in a window does not count.
const FEW: u32 = 5;
/// For how long a family stays where it has gone.
const STAY: Duration = Duration::from_millis(500);

/// What a family has exchanged.
#[derive(Default)]
pub(crate) struct Exchange {
    messages: Cell<u32>,
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
    /// Windows that have ended.
    windows: Cell<usize>,
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
            self.windows.set(self.windows.get() + 1);
        }
        ends
    }

    /// Where families go that are [far](Exchange), if one is still to go.
    pub(super) fn leads_to(&self) -> Option<usize> {
        let (to, left) = self.leaving.get();
        (left > 0).then_some(to)
    }

    /// Whether the family of a ready fiber goes now.
    pub(super) fn leaves(&self, fiber: FiberRef) -> bool {
        let family = fiber.family();
        let exchange = family.exchange();
        let leaves = exchange.is_far.get() && may_move(fiber);
        if leaves {
            exchange.is_far.set(false);
            exchange.stays_until.set(Some(sys::now() + STAY));
            let (to, left) = self.leaving.get();
            self.leaving.set((to, left - 1));
        }
        leaves
    }
}

/// Which of a worker's families may leave for another one.
#[derive(Debug, PartialEq)]
struct Verdict {
    at_most: usize,
    /// Those that have exchanged no more messages.
    up_to: u64,
}

/// `own` families have exchanged `messages` in sum, and the other worker has `others`.
fn judge(own: usize, messages: u64, others: usize) -> Verdict {
    let mean = messages / own.max(1) as u64;
    let has_too_many = own * 4 > others * 5;
    Verdict {
        at_most: (own / 2 + (own / 16).max(1)).saturating_sub(others / 2),
        up_to: if has_too_many { mean } else { mean / 2 },
    }
}

impl Worker {
    /// Looks for families that are far, if a window ends. A look takes time for each fiber, so a
    /// window has a message for each.
    #[inline]
    pub(super) fn look_for_far(&self) {
        let moves = self.shared.workers() > 1 && self.moves.balance == Balance::Moving;
        if moves && self.pairing.has_enough() {
            let now = sys::now();
            if self.pairing.ends_window(now) {
                self.find_far(now);
            }
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
        let families: Vec<_> = fibers.iter().filter_map(exchanged).collect();
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
        let Some(&to) = others.get(self.pairing.windows.get() % others.len().max(1)) else {
            return;
        };
        let messages = families.iter().map(|&(_, messages)| u64::from(messages)).sum();
        let verdict = judge(own, messages, self.shared.peers[to].load.exchanging() as usize);
        let far = families.iter().filter(|(family, messages)| {
            let stays = family.exchange().stays_until.get().is_some_and(|until| now < until);
            u64::from(*messages) <= verdict.up_to && !stays
        });
        let count =
            far.take(verdict.at_most).inspect(|it| it.0.exchange().is_far.set(true)).count();
        self.pairing.leaving.set((to, count));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn workers_with_the_same_number_swap_and_only_families_that_are_far() {
        assert_eq!(judge(8, 8 * 600, 8), Verdict { at_most: 1, up_to: 300 });
        assert_eq!(judge(250, 250 * 60, 250), Verdict { at_most: 15, up_to: 30 });
    }

    #[test]
    fn a_worker_with_more_gives_half_of_what_it_has_more() {
        assert_eq!(judge(12, 12 * 600, 4), Verdict { at_most: 5, up_to: 600 });
        assert_eq!(judge(9, 9 * 600, 7), Verdict { at_most: 2, up_to: 600 });
        assert_eq!(judge(16, 16 * 600, 0).at_most, 9);
    }

    #[test]
    fn a_worker_with_fewer_gives_none() {
        assert_eq!(judge(4, 4 * 600, 12).at_most, 0);
        assert_eq!(judge(200, 200 * 60, 300).at_most, 0);
        assert_eq!(judge(0, 0, 5).at_most, 0);
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
