//! The moments in the life of fibers and ops that the worker records, one method for each.
//!
//! Code calls the method at the place where the moment occurs. The methods lie on the hot paths:
//! each adds to [`Counters`] that this worker alone writes, and tests one flag for a [trace], which
//! does its part out of line.
//!
//! # A new moment
//!
//! It is a method here, or a row of `traced!` if only a trace records it; its part in `trace.rs`;
//! and a `Kind` in `trace/event.rs` of `cringle-driver`, which is its last variant, `Kind::LAST`,
//! or stands before that. The compiler names `trace/perfetto/track.rs` of `cringle-run`, which
//! converts the event. By hand: in the same file an arm of `instant_of`, if the event is an
//! instant.

pub(super) mod trace;

use crate::cancelled::Reason;
use crate::counters::Counters;
use crate::fiber::{FiberId, FiberRef, RunState, Wait};
use crate::identity::Meta;
use crate::shared::{MailBox, Unstarted};
use cringle_driver::trace::Cause;
use cringle_driver::{self as driver, Driver};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;
use trace::Trace;

/// The clock is read after this number of turns even if the driver is not entered.
const TURNS_PER_CLOCK: u64 = 256;

/// The records of one worker: its counters, its coarse clock and its part in a trace.
pub struct Events {
    counters: Arc<Counters>,
    /// The time at which fibers count as suspended: read when the driver was last entered.
    clock_ns: Cell<u64>,
    trace: Trace,
}

impl Events {
    /// The offset of the clock, for debuggers.
    pub(super) const CLOCK: usize = std::mem::offset_of!(Events, clock_ns);

    pub(super) fn new(counters: Arc<Counters>, driver: &Driver) -> Events {
        let clock_ns = Cell::new(driver.coarse_ns());
        Events { counters, clock_ns, trace: Trace::default() }
    }

    /// The time of the coarse clock, by which `FiberRef::since_ns` counts, too.
    pub(super) fn clock_ns(&self) -> u64 {
        self.clock_ns.get()
    }

    /// Reads a clock that takes 5 ns and advances with the kernel's ticks, 100 to 1000 times a
    /// second.
    #[cold]
    pub(super) fn read_clock(&self, driver: &RefCell<Driver>) {
        self.clock_ns.set(driver.borrow().coarse_ns());
    }
}

/// Moments that a trace records, and nothing else.
macro_rules! traced {
    ($(
        $(#[$doc:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $type:ty),*) => $trace:ident;
    )*) => {
        impl Events {$(
            $(#[$doc])*
            #[inline(always)]
            $visibility fn $name(&self, $($argument: $type),*) {
                if self.is_traced() {
                    self.$trace($($argument),*);
                }
            }
        )*}
    };
}

traced! {
    /// The worker sends a fiber of another worker the message that it can continue.
    pub(super) fn sent_wake(mailbox: &MailBox, id: FiberId) => trace_wake_sent;
    /// A message of another worker says that this fiber can continue.
    pub(super) fn read_wake(id: FiberId) => trace_wake_read;
    /// An unstarted fiber was made. A trace leaves its mark in it.
    pub(super) fn spawned(unstarted: &mut Unstarted) => trace_spawn;
    /// The fiber has its name and origin from now on.
    pub fn named(fiber: FiberRef, meta: &Meta) => trace_name;
    /// A fiber's body has returned, and its block is still its own. (The count of ended fibers
    /// belongs to [`quiescence`](crate::quiescence).)
    pub(super) fn ended(fiber: FiberRef) => trace_ended;
    /// A fiber is resumed.
    pub(super) fn resumed(fiber: FiberRef) => trace_resumed;
    /// The running fiber yields.
    pub(super) fn yielded() => trace_yield;
    /// A region of a fiber is cancelled.
    pub(super) fn cancelled(fiber: FiberRef, reason: Reason) => trace_cancel;
    /// The running fiber has opened a scope, or closed one.
    pub fn scope_changed(opened: bool) => trace_scope;
    /// The driver is about to be entered.
    pub(super) fn entering(driver: &RefCell<Driver>, wait: driver::Wait) => trace_enter;
    /// Completions are about to be taken.
    pub(super) fn reaping() => trace_reap;
    /// A timer is set.
    pub(super) fn timer_set(driver: &RefCell<Driver>, at: Instant) => trace_timer_set;
    /// A timer has fired.
    pub(super) fn timer_fired() => trace_timer_fired;
}

// Workers.
impl Events {
    /// A turn begins. Returns whether it is time to read the clock.
    #[inline(always)]
    pub(super) fn count_turn(&self) -> bool {
        self.counters.turns.bump().is_multiple_of(TURNS_PER_CLOCK)
    }

    /// The worker begins, on its thread.
    pub(super) fn began(&self) {
        self.counters.set_thread();
    }

    /// The worker sleeps in the kernel.
    #[inline(always)]
    pub(super) fn slept(&self) {
        self.counters.sleeps.bump();
    }

    /// The worker took an unstarted fiber from another one.
    #[inline(always)]
    pub(super) fn stole(&self) {
        self.counters.steals.bump();
        if self.is_traced() {
            self.trace_steal();
        }
    }

    /// The worker wakes another one that sleeps.
    #[inline(always)]
    pub(super) fn woke(&self, mailbox: &MailBox) {
        self.counters.wakes.bump();
        if self.is_traced() {
            self.trace_wake(mailbox);
        }
    }

    /// Messages of other threads have been taken from the inbox.
    #[inline(always)]
    pub(super) fn took_mail(&self, messages: usize) {
        self.counters.messages.add(messages as u64);
        if self.is_traced() {
            self.trace_mail();
        }
    }
}

// Fibers.
impl Events {
    /// A fiber has a stack and is ready for the first time: either `at_once`, or after it was
    /// [`spawned`](Self::spawned) with this trace origin. `alive` includes it.
    #[inline(always)]
    pub(super) fn started(&self, fiber: FiberRef, alive: u32, origin: u64, at_once: bool) {
        self.counters.started.bump();
        let alive = u64::from(alive);
        if alive > self.counters.most_alive.get() {
            self.counters.most_alive.set(alive);
        }
        if self.is_traced() {
            self.trace_started(fiber, origin, at_once);
        }
    }

    /// A fiber leaves for another worker.
    pub(super) fn departed(&self, fiber: FiberRef) {
        if matches!(fiber.state(), RunState::Waiting(_)) {
            self.counters.waiting.take_one();
        }
        if self.is_traced() {
            self.trace_departed(fiber);
        }
    }

    /// A fiber has arrived from another worker, or this worker has taken it back.
    pub(super) fn arrived(&self, fiber: FiberRef) {
        if matches!(fiber.state(), RunState::Waiting(_)) {
            self.counters.waiting.bump();
        }
        if self.is_traced() {
            self.trace_present(fiber);
        }
    }

    /// A family of this number of fibers came from another worker.
    pub(super) fn received(&self, fibers: u32) {
        self.counters.moves.add(fibers.into());
    }

    /// The running fiber suspends itself in a wait.
    #[inline(always)]
    pub(super) fn suspended(&self, fiber: FiberRef, wait: Wait) {
        self.counters.waiting.bump();
        fiber.set_since_ns(self.clock_ns.get());
        if self.is_traced() {
            self.trace_suspended(wait);
        }
    }

    /// A fiber's wait has ended by its last completion, which is in the trace already.
    #[inline(always)]
    pub(super) fn completed(&self, _fiber: FiberRef) {
        self.counters.waiting.take_one();
    }

    /// A fiber's wait has ended by something other than a completion.
    #[inline(always)]
    pub(super) fn made_ready(&self, fiber: FiberRef, cause: Cause) {
        self.counters.waiting.take_one();
        if self.is_traced() {
            self.trace_ready(fiber, cause);
        }
    }
}

// The driver and timers.
impl Events {
    /// The driver was entered.
    #[inline(always)]
    pub(super) fn entered(&self, driver: &RefCell<Driver>) {
        self.read_clock(driver);
        if self.is_traced() {
            self.trace_entered(driver);
        }
    }

    /// A fiber has to wait for room among the ops in flight.
    #[inline(always)]
    pub(super) fn lacked_room(&self) {
        self.counters.room_waits.bump();
    }

    /// A plain call that does not wait was tried. On a hit it did its work, on a miss the driver
    /// has to.
    #[inline(always)]
    pub fn tried_inline(&self, hit: bool) {
        if hit {
            self.counters.inline_hits.bump();
        } else {
            self.counters.inline_misses.bump();
        }
        if self.is_traced() {
            self.trace_inline(hit);
        }
    }

    /// A read of a mapped file was copied from memory.
    #[inline(always)]
    pub fn copied_mapped(&self) {
        self.counters.mapped_copies.bump();
        if self.is_traced() {
            self.trace_inline(true);
        }
    }
}
