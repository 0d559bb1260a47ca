//! Stacks that were used deep once give their pages back.
//!
//! A fiber that once called deep keeps the pages of those frames while it waits, and a free stack
//! of the pool keeps the pages of its last fiber. A worker that has nothing to do looks for both: a
//! fiber that has been suspended for [`IDLE`] is resumed to give back the pages below its stack
//! pointer (see [`ask_to_give_pages_back`]), and the pool does so for the stacks that no fiber has
//! taken since the last search. The frames of a suspended fiber, with all that it has lent to the
//! kernel, lie above its stack pointer and stay as they are (**I1**).
//!
//! The fiber itself gives the pages back, so their address is exact without a store at each
//! suspension.
//!
//! A search is made in slices, between which the worker looks for other work. After it the worker
//! is woken for another one only if fibers have run meanwhile or were not idle for long enough: a
//! worker whose fibers all wait is woken twice. A worker that never sleeps makes a slice now and
//! then, between two turns.
//!
//! [`ask_to_give_pages_back`]: crate::runtime::fiber::Fiber::ask_to_give_pages_back

use super::Worker;
use crate::runtime::fiber::{FiberRef, RunState};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time for which a fiber or a free stack has been idle before it gives pages back, and the
/// time between two searches.
const IDLE: Duration = Duration::from_millis(400);
/// The stacks, and the blocks of fibers, of a slice.
const MOST_STACKS: usize = 32;
const MOST_BLOCKS: usize = 1024;

/// The worker's search for idle stacks.
#[derive(Default)]
pub(super) struct Trim {
    /// Fibers have run since the last search began.
    ran: Cell<bool>,
    /// When the next search begins, or its next slice is due.
    due: Cell<Option<Instant>>,
    /// Where the next slice begins: a worker, and a position among its blocks.
    next: Cell<Option<(usize, usize)>>,
    /// A fiber was not idle for long enough.
    found_young: Cell<bool>,
}

impl Trim {
    /// Fibers run in this turn.
    #[inline(always)]
    pub(super) fn note_run(&self) {
        self.ran.set(true);
    }
}

impl Worker {
    /// Makes a slice of the search if one is due. For a worker that may never sleep.
    #[cold]
    pub(super) fn trim_beside_work(&self) {
        if self.trim.ran.get() {
            self.trim_idle_stacks(self.now());
        }
    }

    /// Searches for idle stacks if a search is due. For a worker that is about to sleep: returns
    /// when it must be awake for the next one.
    pub(super) fn trim_idle_stacks(&self, now: Instant) -> Option<Instant> {
        let Trim { ran, due, next, found_young } = &self.trim;
        if ran.get() && due.get().is_none() {
            // In a simulation nothing is to be saved, and time passes only when all fibers wait.
            due.set((!self.is_simulated()).then_some(now + IDLE));
        }
        let at = due.get()?;
        if now < at {
            return Some(at);
        }
        if next.get().is_none() {
            ran.set(false);
            found_young.set(false);
            self.events.read_clock(&self.driver);
            next.set(Some((0, 0)));
        }
        if self.trim_slice() {
            return Some(now);
        }
        next.set(None);
        self.admission.stacks.borrow_mut().give_idle_pages_back();
        let again = ran.get() || found_young.get();
        due.set(again.then_some(now + IDLE));
        due.get()
    }

    /// Trims some fibers. Returns whether any are left.
    fn trim_slice(&self) -> bool {
        let (mut peer, mut position) = self.trim.next.get().unwrap_or_default();
        let (mut stacks, mut blocks) = (0, 0);
        while stacks < MOST_STACKS && blocks < MOST_BLOCKS {
            match self.hosted_at(peer, position) {
                Some(Some(fiber)) => stacks += usize::from(self.trim_fiber(fiber)),
                Some(None) => {}
                None if peer + 1 < self.workers() => {
                    (peer, position) = (peer + 1, 0);
                    continue;
                }
                None => return false,
            }
            (position, blocks) = (position + 1, blocks + 1);
        }
        self.trim.next.set(Some((peer, position)));
        true
    }

    /// Makes a fiber give pages back, if it is idle and has not done so in this wait.
    fn trim_fiber(&self, fiber: FiberRef) -> bool {
        let RunState::Waiting(_) = fiber.state() else { return false };
        let since = fiber.since_ns();
        if fiber.trimmed_ns() == since {
            return false;
        }
        let idle = Duration::from_nanos(self.events.clock_ns().saturating_sub(since));
        if idle < IDLE {
            self.trim.found_young.set(true);
            return false;
        }
        fiber.set_trimmed_ns(since);
        self.foreground.probe(fiber, |fiber| {
            fiber.ask_to_give_pages_back();
            Some(())
        });
        true
    }
}
