//! Where a worker notes what happens: one line at each place, one method here for each kind.
//!
//! Without a trace each is a test of a pointer; what is done with one is kept out of the callers' way
//! (`cold`), as these lie where every nanosecond counts.

use super::Worker;
use crate::driver::Wait as Sleep;
use crate::driver::op::{OP_DONE_WORDS, OP_WORDS};
use crate::runtime::cancelled::Reason;
use crate::runtime::fiber::{FiberId, FiberRef, WAIT_WORDS, Wait};
use crate::runtime::identity::Meta;
use crate::runtime::shared::{MailBox, Unstarted};
use crate::trace::{self, Cause, Kind, Recorder, Words};
use std::cell::{Cell, RefCell};
use std::time::Instant;

static WORDS: Words = Words {
    ops: &OP_WORDS,
    done: &OP_DONE_WORDS,
    waits: &WAIT_WORDS,
    wait_for_ops: Wait::Ops as u8,
    reasons: &Reason::WORDS,
};

/// A fiber that lets others run waits for nothing: the last of the words.
const YIELD: u8 = WAIT_WORDS.len() as u8 - 1;

/// The worker's part in a trace.
#[derive(Default)]
pub(super) struct Seen {
    /// Whether there is one: what is asked first.
    on: Cell<bool>,
    epoch: Cell<u32>,
    recorder: RefCell<Option<Box<Recorder>>>,
    /// Where virtual time began.
    began: Cell<Option<Instant>>,
}

impl Worker {
    /// Looks whether a trace has begun or ended.
    #[inline(always)]
    pub(super) fn seen_turn(&self) {
        if trace::epoch() != self.seen.epoch.get() {
            self.change_trace();
        }
    }

    #[cold]
    fn change_trace(&self) {
        self.seen.epoch.set(trace::epoch());
        self.leave_trace();
        let Some(recorder) = trace::attach(self.index, &WORDS, self.is_simulated()) else { return };
        self.seen.began.set(Some(self.now()));
        self.seen.recorder.borrow_mut().insert(Box::new(recorder)).enter();
        self.seen.on.set(true);
        // Those that are there already.
        for fiber in self.table.borrow().occupied() {
            self.note_started(fiber, 0, false);
            if let Some(meta) = fiber.meta() {
                self.note_name(fiber, meta);
            }
        }
    }

    /// Nothing is noted from now on.
    pub(super) fn leave_trace(&self) {
        self.seen.on.set(false);
        Recorder::leave();
        drop(self.seen.recorder.take());
    }

    /// A fiber was given a stack; if it was made before that, by the origin's flow.
    #[inline(always)]
    pub(super) fn seen_started(&self, fiber: FiberRef, origin: u64, at_once: bool) {
        if self.seen.on.get() {
            self.note_started(fiber, origin, at_once);
        }
    }

    #[cold]
    fn note_started(&self, fiber: FiberRef, origin: u64, at_once: bool) {
        self.note(Kind::Started, fiber.id().index, origin, u8::from(at_once), 0);
    }

    /// The fiber is known by this from now on.
    #[inline(always)]
    pub(crate) fn seen_named(&self, fiber: FiberRef, meta: &Meta) {
        if self.seen.on.get() {
            self.note_name(fiber, meta);
        }
    }

    #[cold]
    fn note_name(&self, fiber: FiberRef, meta: &Meta) {
        let index = fiber.id().index;
        Recorder::with(|recorder| match (meta.name(), meta.place()) {
            (Some(name), _) => recorder.put_name(index, name),
            (None, Some(place)) => {
                recorder.put(recorder.event(Kind::Placed, index, std::ptr::from_ref(place) as u64));
            }
            (None, None) => {}
        });
    }

    #[inline(always)]
    pub(super) fn seen_ended(&self, fiber: FiberRef) {
        if self.seen.on.get() {
            self.note(Kind::Ended, fiber.id().index, 0, 0, 0);
        }
    }

    /// The running fiber waits.
    #[inline(always)]
    pub(super) fn seen_suspend(&self, fiber: FiberRef, wait: Wait) {
        if self.seen.on.get() {
            self.note_suspended(fiber, wait as u8);
        }
    }

    /// The running fiber lets others run.
    #[inline(always)]
    pub(super) fn seen_yield(&self, fiber: FiberRef) {
        if self.seen.on.get() {
            self.note_suspended(fiber, YIELD);
        }
    }

    #[cold]
    fn note_suspended(&self, fiber: FiberRef, wait: u8) {
        Recorder::with(|recorder| {
            // An op that was queued just now has the time of that.
            if wait != Wait::Ops as u8 {
                recorder.tick();
            }
            let event = recorder.event(Kind::Suspended, fiber.id().index, 0);
            recorder.put_suspended(event.detail(wait));
        });
    }

    #[inline(always)]
    pub(super) fn seen_resume(&self, fiber: FiberRef) {
        if self.seen.on.get() {
            self.note_resumed(fiber);
        }
    }

    /// At the time of the last suspension, if nothing was between.
    #[cold]
    fn note_resumed(&self, fiber: FiberRef) {
        let id = fiber.id();
        Recorder::with(|recorder| {
            if !recorder.has_just_suspended() {
                recorder.tick();
            }
            recorder.put(recorder.event(Kind::Resumed, id.index, id.generation.into()));
        });
    }

    /// A fiber can go on, by something else than its last completion, which says so itself.
    #[inline(always)]
    pub(super) fn seen_ready(&self, fiber: FiberRef, cause: Cause) {
        if self.seen.on.get() {
            self.note_ready(fiber, cause);
        }
    }

    #[cold]
    fn note_ready(&self, fiber: FiberRef, cause: Cause) {
        Recorder::with(|recorder| {
            recorder.tick();
            let event = recorder.event(Kind::Ready, fiber.id().index, 0);
            recorder.put(event.detail(cause as u8));
        });
    }

    /// A fiber was made that has no stack yet.
    #[inline(always)]
    pub(super) fn seen_spawn(&self, unstarted: &mut Unstarted) {
        if self.seen.on.get() {
            Recorder::with(|recorder| unstarted.origin = recorder.spawned());
        }
    }

    /// The kernel is about to be entered.
    #[inline(always)]
    pub(super) fn seen_enter(&self, wait: Sleep) {
        if self.seen.on.get() {
            let queued = self.driver.borrow().queued();
            let sleeps = u8::from(wait != Sleep::No);
            self.note(Kind::Enter, 0, 0, sleeps, queued.min(u16::MAX.into()) as u16);
        }
    }

    /// The kernel has returned.
    #[inline(always)]
    pub(super) fn seen_entered(&self) {
        if self.seen.on.get() {
            self.note_entered();
        }
    }

    #[cold]
    fn note_entered(&self) {
        let began = self.seen.began.get();
        Recorder::with(|recorder| {
            if let Some(began) = began.filter(|_| recorder.is_virtual()) {
                recorder.set_virtual((self.now() - began).as_nanos() as u64);
            }
        });
        self.note(Kind::Entered, 0, 0, 0, 0);
    }

    /// Completions are about to be taken: they have this time.
    #[inline(always)]
    pub(super) fn seen_reap(&self) {
        if self.seen.on.get() {
            Recorder::with(Recorder::tick);
        }
    }

    /// A fiber of another worker is told that it can go on.
    #[inline(always)]
    pub(super) fn seen_mail(&self, mailbox: &MailBox, id: FiberId) {
        if self.seen.on.get() {
            let worker = mailbox.worker as u16;
            self.note(Kind::MessageSent, id.index, id.generation.into(), 0, worker);
        }
    }

    /// Another worker has told that this fiber can go on.
    #[inline(always)]
    pub(super) fn seen_message(&self, id: FiberId) {
        if self.seen.on.get() {
            self.note(Kind::MessageRead, id.index, id.generation.into(), 0, 0);
        }
    }

    /// Another worker is woken from its sleep.
    #[inline(always)]
    pub(super) fn seen_wake(&self, mailbox: &MailBox) {
        if self.seen.on.get() {
            self.note(Kind::Woke, 0, 0, 0, mailbox.worker as u16);
        }
    }

    /// An unstarted fiber was taken from another worker.
    #[inline(always)]
    pub(super) fn seen_steal(&self) {
        if self.seen.on.get() {
            self.note(Kind::Stolen, 0, 0, 0, 0);
        }
    }

    #[inline(always)]
    pub(super) fn seen_cancel(&self, fiber: FiberRef, reason: Reason) {
        if self.seen.on.get() {
            self.note(Kind::Cancelled, fiber.id().index, 0, reason.code(), 0);
        }
    }

    /// The running fiber has opened a scope, or closed one.
    #[inline(always)]
    pub(crate) fn seen_scope(&self, opened: bool) {
        if self.seen.on.get() {
            let kind = if opened { Kind::ScopeOpened } else { Kind::ScopeClosed };
            self.note(kind, 0, 0, 0, 0);
        }
    }

    #[inline(always)]
    pub(super) fn seen_timer_set(&self, at: Instant) {
        if self.seen.on.get() {
            let due = at.saturating_duration_since(self.now()).as_nanos();
            self.note(Kind::TimerSet, 0, u64::try_from(due).unwrap_or(u64::MAX), 0, 0);
        }
    }

    #[inline(always)]
    pub(super) fn seen_timer_fired(&self) {
        if self.seen.on.get() {
            self.note(Kind::TimerFired, 0, 0, 0, 0);
        }
    }

    /// A call was tried without the ring; `hit`: it had its answer at once.
    #[inline(always)]
    pub(crate) fn seen_inline(&self, hit: bool) {
        if self.seen.on.get() {
            self.note(Kind::Inline, 0, 0, u8::from(hit), 0);
        }
    }

    /// Notes something that happens now.
    #[cold]
    fn note(&self, kind: Kind, index: u32, value: u64, detail: u8, extra: u16) {
        Recorder::with(|recorder| {
            recorder.tick();
            recorder.put(recorder.event(kind, index, value).detail(detail).extra(extra));
        });
    }
}
