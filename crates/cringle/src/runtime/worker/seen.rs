//! The moments that are taken note of, each called by one line where it happens.
//!
//! What is done here is on the hot paths: plain additions to numbers that this worker alone writes.

use super::Worker;
use crate::driver;
use crate::runtime::fiber::{FiberRef, Wait};
use crate::runtime::shared::MailBox;

/// What the fibers are told for the time they were suspended at is read when the driver was entered, and
/// after so many turns without that.
const TURNS_BY_ONE_CLOCK: u64 = 256;

impl Worker {
    /// A clock that takes 5 ns and goes by the kernel's ticks, of which there are 100 to 1000 a second.
    #[cold]
    pub(super) fn read_clock(&self) {
        self.clock_ns.set(self.driver.borrow().coarse_ns());
    }

    /// The worker begins, on its thread.
    pub(super) fn seen_begin(&self) {
        self.tally.tell_thread();
        self.me().roster.open(&self.running);
    }

    /// A turn begins with the fibers that are ready now.
    #[inline(always)]
    pub(super) fn seen_turn(&self) {
        if self.tally.turns.bump().is_multiple_of(TURNS_BY_ONE_CLOCK) {
            self.read_clock();
        }
    }

    /// A fiber has got its stack, and is ready for the first time.
    #[inline(always)]
    pub(super) fn seen_started(&self, _fiber: FiberRef) {
        self.tally.started.bump();
        let alive = u64::from(self.alive.get());
        if alive > self.tally.most.get() {
            self.tally.most.set(alive);
        }
    }

    /// A fiber's body has returned; its block is still its own. (That it ended is counted for the census.)
    #[inline(always)]
    pub(super) fn seen_ended(&self, _fiber: FiberRef) {}

    /// A fiber is suspended, and waits.
    #[inline(always)]
    pub(super) fn seen_suspend(&self, fiber: FiberRef, _wait: Wait) {
        self.tally.waiting.bump();
        fiber.set_since_ns(self.clock_ns.get());
    }

    /// A fiber's wait has ended, and it is put into the row of those that are ready.
    #[inline(always)]
    pub(super) fn seen_ready(&self, _fiber: FiberRef) {
        self.tally.waiting.take_one();
    }

    /// The worker's last fiber has ended.
    pub(super) fn seen_end(&self) {
        self.me().roster.close();
    }

    /// The driver is about to be entered.
    #[inline(always)]
    pub(super) fn seen_enter(&self, _wait: driver::Wait) {}

    /// The driver was entered.
    #[inline(always)]
    pub(super) fn seen_entered(&self) {
        self.read_clock();
    }

    /// It sleeps until something comes.
    #[inline(always)]
    pub(super) fn seen_asleep(&self) {
        self.tally.sleeps.bump();
    }

    /// So many messages have come from other threads.
    #[inline(always)]
    pub(super) fn seen_mail(&self, messages: usize) {
        self.tally.messages.add(messages as u64);
    }

    /// Another worker sleeps, and is woken by this one.
    #[inline(always)]
    pub(super) fn seen_wake(&self, _mailbox: &MailBox) {
        self.tally.wakes.bump();
    }

    /// A fiber that another worker had not started was taken from it.
    #[inline(always)]
    pub(super) fn seen_steal(&self) {
        self.tally.steals.bump();
    }

    /// A fiber has to wait for room among the ops in flight.
    #[inline(always)]
    pub(super) fn seen_room_wait(&self) {
        self.tally.room_waits.bump();
    }

    /// A call was tried that does not wait: whether it did what was asked for.
    #[inline(always)]
    pub(crate) fn seen_inline(&self, hit: bool) {
        match hit {
            true => self.tally.inline_hits.bump(),
            false => self.tally.inline_misses.bump(),
        };
    }
}
