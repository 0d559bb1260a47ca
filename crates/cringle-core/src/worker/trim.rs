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
//! [`ask_to_give_pages_back`]: crate::fiber::Fiber::ask_to_give_pages_back

use super::admission::Admission;
use super::fiber_table::FiberTable;
use super::foreground::Foreground;
use crate::fiber::{FiberRef, RunState};
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
    is_off: bool,
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
    /// In a simulation nothing is to be saved, and time passes only when all fibers wait.
    pub(super) fn new(is_in_real_time: bool) -> Trim {
        Trim { is_off: !is_in_real_time, ..Trim::default() }
    }

    /// Fibers run in this turn.
    #[inline(always)]
    pub(super) fn note_run(&self) {
        self.ran.set(true);
    }

    /// Whether fibers have run since the last search.
    pub(super) fn may_find_some(&self) -> bool {
        self.ran.get()
    }

    /// Makes a slice of the search if one is due. `clock_ns` is the time by which fibers count as
    /// suspended. Returns when the next one is due, for which the worker must be awake.
    pub(super) fn search(
        &self,
        now: Instant,
        clock_ns: u64,
        table: &FiberTable,
        foreground: &Foreground,
        admission: &Admission,
    ) -> Option<Instant> {
        if self.ran.get() && self.due.get().is_none() {
            self.due.set((!self.is_off).then_some(now + IDLE));
        }
        let at = self.due.get()?;
        if now < at {
            return Some(at);
        }
        if self.next.get().is_none() {
            self.ran.set(false);
            self.found_young.set(false);
        }
        let mut block = self.next.get().unwrap_or_default();
        let (mut stacks, mut blocks) = (0, 0);
        while stacks < MOST_STACKS && blocks < MOST_BLOCKS {
            let Some(hosted) = table.next_block(&mut block) else {
                self.next.set(None);
                admission.stacks().give_idle_pages_back();
                let again = self.ran.get() || self.found_young.get();
                self.due.set(again.then_some(now + IDLE));
                return self.due.get();
            };
            let trims = hosted.is_some_and(|fiber| self.trim(fiber, clock_ns, foreground));
            stacks += usize::from(trims);
            blocks += 1;
        }
        self.next.set(Some(block));
        Some(now)
    }

    /// Makes a fiber give pages back, if it is idle and has not done so in this wait.
    fn trim(&self, fiber: FiberRef, clock_ns: u64, foreground: &Foreground) -> bool {
        let RunState::Waiting(_) = fiber.state() else { return false };
        let since = fiber.since_ns();
        if fiber.trimmed_ns() == since {
            return false;
        }
        if Duration::from_nanos(clock_ns.saturating_sub(since)) < IDLE {
            self.found_young.set(true);
            return false;
        }
        fiber.set_trimmed_ns(since);
        foreground.probe(fiber, |fiber| {
            fiber.ask_to_give_pages_back();
            Some(())
        });
        true
    }
}
