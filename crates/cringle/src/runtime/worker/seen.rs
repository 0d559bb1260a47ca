//! The moments that are taken note of, each called by one line where it happens.
//!
//! What is done here is on the hot paths: plain additions to numbers that this worker alone writes, and
//! one test whether there is a [trace](super::traced).

use super::Worker;
use crate::driver;
use crate::runtime::cancelled::Reason;
use crate::runtime::fiber::{FiberId, FiberRef, Wait};
use crate::runtime::identity::Meta;
use crate::runtime::shared::{MailBox, Unstarted};
use crate::trace::Cause;
use std::time::Instant;

/// What the fibers are told for the time they were suspended at is read when the driver was entered, and
/// after so many turns without that.
const TURNS_BY_ONE_CLOCK: u64 = 256;

// Workers, turns, sleeps.
impl Worker {
    /// The worker begins, on its thread.
    pub(super) fn seen_begin(&self) {
        self.tally.tell_thread();
        self.me().roster.open(&self.running);
    }

    /// The worker's last fiber has ended.
    pub(super) fn seen_end(&self) {
        self.me().roster.close();
    }

    /// A turn begins with the fibers that are ready now.
    #[inline(always)]
    pub(super) fn seen_turn(&self) {
        self.look_for_trace();
        if self.tally.turns.bump().is_multiple_of(TURNS_BY_ONE_CLOCK) {
            self.read_clock();
        }
    }

    /// A clock that takes 5 ns and goes by the kernel's ticks, of which there are 100 to 1000 a second.
    #[cold]
    pub(super) fn read_clock(&self) {
        self.clock_ns.set(self.driver.borrow().coarse_ns());
    }

    /// It sleeps until something comes.
    #[inline(always)]
    pub(super) fn seen_asleep(&self) {
        self.tally.sleeps.bump();
    }

    /// A fiber that another worker had not started was taken from it.
    #[inline(always)]
    pub(super) fn seen_steal(&self) {
        self.tally.steals.bump();
        if self.is_traced() {
            self.trace_steal();
        }
    }
}

// Fibers.
impl Worker {
    /// A fiber was made that has no stack yet.
    #[inline(always)]
    pub(super) fn seen_spawn(&self, unstarted: &mut Unstarted) {
        if self.is_traced() {
            self.trace_spawn(unstarted);
        }
    }

    /// A fiber has got its stack, and is ready for the first time: at once, or after it was
    /// [made](Self::seen_spawn), with the origin that it had then.
    #[inline(always)]
    pub(super) fn seen_started(&self, fiber: FiberRef, origin: u64, at_once: bool) {
        self.tally.started.bump();
        let alive = u64::from(self.alive.get());
        if alive > self.tally.most.get() {
            self.tally.most.set(alive);
        }
        if self.is_traced() {
            self.trace_started(fiber, origin, at_once);
        }
    }

    /// The fiber is known by this from now on.
    #[inline(always)]
    pub(crate) fn seen_named(&self, fiber: FiberRef, meta: &Meta) {
        if self.is_traced() {
            self.trace_name(fiber, meta);
        }
    }

    /// A fiber's body has returned; its block is still its own. (That it ended is counted for the census.)
    #[inline(always)]
    pub(super) fn seen_ended(&self, fiber: FiberRef) {
        if self.is_traced() {
            self.trace_ended(fiber);
        }
    }

    /// A fiber runs now, until it is suspended or ends.
    #[inline(always)]
    pub(super) fn seen_resume(&self, fiber: FiberRef) {
        if self.is_traced() {
            self.trace_resumed(fiber);
        }
    }

    /// The running fiber waits.
    #[inline(always)]
    pub(super) fn seen_suspend(&self, fiber: FiberRef, wait: Wait) {
        self.tally.waiting.bump();
        fiber.set_since_ns(self.clock_ns.get());
        if self.is_traced() {
            self.trace_suspended(wait);
        }
    }

    /// The running fiber lets others run.
    #[inline(always)]
    pub(super) fn seen_yield(&self) {
        if self.is_traced() {
            self.trace_yield();
        }
    }

    /// A fiber's last completion has come, which says so in a trace itself: it can go on.
    #[inline(always)]
    pub(super) fn seen_completed(&self, _fiber: FiberRef) {
        self.tally.waiting.take_one();
    }

    /// A fiber's wait has ended by something else: it can go on.
    #[inline(always)]
    pub(super) fn seen_ready(&self, fiber: FiberRef, cause: Cause) {
        self.tally.waiting.take_one();
        if self.is_traced() {
            self.trace_ready(fiber, cause);
        }
    }

    #[inline(always)]
    pub(super) fn seen_cancel(&self, fiber: FiberRef, reason: Reason) {
        if self.is_traced() {
            self.trace_cancel(fiber, reason);
        }
    }

    /// The running fiber has opened a scope, or closed one.
    #[inline(always)]
    pub(crate) fn seen_scope(&self, opened: bool) {
        if self.is_traced() {
            self.trace_scope(opened);
        }
    }
}

// The kernel, timers.
impl Worker {
    /// The driver is about to be entered.
    #[inline(always)]
    pub(super) fn seen_enter(&self, wait: driver::Wait) {
        if self.is_traced() {
            self.trace_enter(wait);
        }
    }

    /// The driver was entered.
    #[inline(always)]
    pub(super) fn seen_entered(&self) {
        self.read_clock();
        if self.is_traced() {
            self.trace_entered();
        }
    }

    /// Completions are about to be taken.
    #[inline(always)]
    pub(super) fn seen_reap(&self) {
        if self.is_traced() {
            self.trace_reap();
        }
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
        if self.is_traced() {
            self.trace_inline(hit);
        }
    }

    #[inline(always)]
    pub(super) fn seen_timer_set(&self, at: Instant) {
        if self.is_traced() {
            self.trace_timer_set(at);
        }
    }

    #[inline(always)]
    pub(super) fn seen_timer_fired(&self) {
        if self.is_traced() {
            self.trace_timer_fired();
        }
    }
}

// Other workers.
impl Worker {
    /// A fiber of another worker is told that it can go on.
    #[inline(always)]
    pub(super) fn seen_message_sent(&self, mailbox: &MailBox, id: FiberId) {
        if self.is_traced() {
            self.trace_message_sent(mailbox, id);
        }
    }

    /// So many messages have come from other threads.
    #[inline(always)]
    pub(super) fn seen_mail(&self, messages: usize) {
        self.tally.messages.add(messages as u64);
        if self.is_traced() {
            self.trace_mail();
        }
    }

    /// Another worker has told that this fiber can go on.
    #[inline(always)]
    pub(super) fn seen_message_read(&self, id: FiberId) {
        if self.is_traced() {
            self.trace_message_read(id);
        }
    }

    /// Another worker sleeps, and is woken by this one.
    #[inline(always)]
    pub(super) fn seen_wake(&self, mailbox: &MailBox) {
        self.tally.wakes.bump();
        if self.is_traced() {
            self.trace_wake(mailbox);
        }
    }
}
