//! The worker's part in a trace: called by [`Events`] while one is recorded.
//!
//! Everything here is `cold`, to keep it out of the callers, which are hot.

use super::Events;
use crate::cancelled::Reason;
use crate::fiber::{FiberId, FiberRef, WAIT_WORDS, Wait};
use crate::identity::Meta;
use crate::shared::{MailBox, Unstarted};
use cringle_driver::trace::{self, Cause, EventNames, Kind, Recorder, RecorderPlace};
use cringle_driver::{Driver, OP_DONE_NAMES, OP_NAMES, Wait as Sleep};
use std::cell::{Cell, RefCell};
use std::time::Instant;

static WORDS: EventNames = EventNames {
    ops: OP_NAMES,
    done: OP_DONE_NAMES,
    waits: &WAIT_WORDS,
    wait_for_ops: Wait::Ops as u8,
    reasons: &Reason::WORDS,
};

/// The last of the words: a fiber that yields waits for nothing.
const YIELD: u8 = WAIT_WORDS.len() as u8 - 1;

/// The recorder of this worker, while a trace is recorded.
#[derive(Default)]
pub(super) struct Trace {
    /// Whether a trace is recorded. Tested first.
    is_on: Cell<bool>,
    epoch: Cell<u32>,
    recorder: RefCell<Option<Box<Recorder>>>,
    /// Refers to it.
    place: RecorderPlace,
    /// The start of virtual time.
    began: Cell<Option<Instant>>,
}

impl Events {
    /// Whether a trace has begun or ended.
    #[inline(always)]
    pub(in crate::worker) fn trace_has_changed(&self) -> bool {
        trace::epoch() != self.trace.epoch.get()
    }

    /// Joins a trace that has begun, leaves one that has ended.
    #[cold]
    pub(in crate::worker) fn change_trace(
        &self,
        worker: u32,
        driver: &RefCell<Driver>,
        fibers: impl FnOnce() -> Vec<FiberRef>,
    ) {
        self.trace.epoch.set(trace::epoch());
        self.leave_trace();
        let (is_simulated, now) = (!driver.borrow().is_in_real_time(), driver.borrow().now());
        let Some(recorder) = trace::attach(worker, &WORDS, is_simulated) else { return };
        self.trace.began.set(Some(now));
        self.trace.place.set(Some(self.trace.recorder.borrow_mut().insert(Box::new(recorder))));
        self.trace.is_on.set(true);
        // The trace begins with the fibers that exist.
        fibers().into_iter().for_each(|fiber| self.trace_present(fiber));
    }

    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        self.trace.is_on.get()
    }

    /// Makes the place of the recorder known to the calling thread.
    pub(in crate::worker) fn enter_thread(&self) {
        self.trace.place.enter_thread();
    }

    pub(in crate::worker) fn leave_thread() {
        RecorderPlace::leave_thread();
    }

    /// Stops recording.
    pub(in crate::worker) fn leave_trace(&self) {
        self.trace.is_on.set(false);
        self.trace.place.set(None);
        drop(self.trace.recorder.take());
    }

    #[cold]
    pub(super) fn trace_spawn(&self, unstarted: &mut Unstarted) {
        Recorder::with(|recorder| unstarted.origin = recorder.spawned());
    }

    #[cold]
    pub(super) fn trace_started(&self, fiber: FiberRef, origin: u64, at_once: bool) {
        self.note(Kind::Started, fiber.id().index, origin, u8::from(at_once), 0);
    }

    /// A fiber that began earlier, or elsewhere.
    #[cold]
    pub(super) fn trace_present(&self, fiber: FiberRef) {
        match fiber.take_departure(self.trace.epoch.get()) {
            Some(flow) => self.note(Kind::Arrived, fiber.id().index, flow, 0, 0),
            None => self.trace_started(fiber, 0, false),
        }
        if let Some(meta) = fiber.meta() {
            self.trace_name(fiber, meta);
        }
    }

    #[cold]
    pub(super) fn trace_name(&self, fiber: FiberRef, meta: &Meta) {
        let index = fiber.id().index;
        Recorder::with(|recorder| recorder.put_name(index, meta.name(), meta.spawned()));
    }

    #[cold]
    pub(super) fn trace_departed(&self, fiber: FiberRef) {
        Recorder::with(|recorder| {
            let flow = recorder.departed(fiber.id().index);
            fiber.set_departure(self.trace.epoch.get(), flow);
        });
    }

    #[cold]
    pub(super) fn trace_ended(&self, fiber: FiberRef) {
        self.note(Kind::Ended, fiber.id().index, 0, 0, 0);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn trace_resumed(&self, fiber: FiberRef) {
        let id = fiber.id();
        Recorder::with(|recorder| recorder.resumed(id.index, id.generation));
    }

    #[cold]
    pub(super) fn trace_suspended(&self, wait: Wait) {
        Recorder::with(|recorder| match wait {
            Wait::Ops => recorder.suspended_for_ops(wait as u8),
            _ => recorder.suspended(wait as u8),
        });
    }

    #[cold]
    pub(super) fn trace_yield(&self) {
        Recorder::with(|recorder| recorder.suspended(YIELD));
    }

    #[cold]
    pub(super) fn trace_ready(&self, fiber: FiberRef, cause: Cause) {
        Recorder::with(|recorder| {
            recorder.tick();
            let event = recorder.event(Kind::Ready, fiber.id().index, 0);
            recorder.put(event.detail(cause as u8));
        });
    }

    #[cold]
    pub(super) fn trace_cancel(&self, fiber: FiberRef, reason: Reason) {
        self.note(Kind::Cancelled, fiber.id().index, 0, reason.code(), 0);
    }

    #[cold]
    pub(super) fn trace_scope(&self, opened: bool) {
        let kind = if opened { Kind::ScopeOpened } else { Kind::ScopeClosed };
        self.note(kind, 0, 0, 0, 0);
    }

    #[cold]
    pub(super) fn trace_enter(&self, driver: &RefCell<Driver>, wait: Sleep) {
        let queued = driver.borrow().queued();
        Recorder::with(|recorder| recorder.enters(queued, wait != Sleep::No));
    }

    #[cold]
    pub(super) fn trace_entered(&self, driver: &RefCell<Driver>) {
        let began = self.trace.began.get();
        Recorder::with(|recorder| {
            if let Some(began) = began.filter(|_| recorder.is_virtual()) {
                recorder.set_virtual((driver.borrow().now() - began).as_nanos() as u64);
            }
            recorder.entered();
        });
    }

    /// Reads the trace's clock once for all completions that are taken now.
    #[cold]
    pub(super) fn trace_reap(&self) {
        Recorder::with(Recorder::tick);
    }

    #[cold]
    pub(super) fn trace_inline(&self, hit: bool) {
        self.note(Kind::Inline, 0, 0, u8::from(hit), 0);
    }

    #[cold]
    pub(super) fn trace_timer_set(&self, driver: &RefCell<Driver>, at: Instant) {
        let due = at.saturating_duration_since(driver.borrow().now()).as_nanos();
        self.note(Kind::TimerSet, 0, u64::try_from(due).unwrap_or(u64::MAX), 0, 0);
    }

    #[cold]
    pub(super) fn trace_timer_fired(&self) {
        self.note(Kind::TimerFired, 0, 0, 0, 0);
    }

    #[cold]
    pub(super) fn trace_wake_sent(&self, mailbox: &MailBox, id: FiberId) {
        let worker = mailbox.worker as u16;
        self.note(Kind::MessageSent, id.index, id.generation.into(), 0, worker);
    }

    /// Ends the slice of the last fiber: reading messages takes time that belongs to no fiber.
    #[cold]
    pub(super) fn trace_mail(&self) {
        Recorder::with(Recorder::close);
    }

    #[cold]
    pub(super) fn trace_wake_read(&self, id: FiberId) {
        self.note(Kind::MessageRead, id.index, id.generation.into(), 0, 0);
    }

    #[cold]
    pub(super) fn trace_wake(&self, mailbox: &MailBox) {
        self.note(Kind::Woke, 0, 0, 0, mailbox.worker as u16);
    }

    #[cold]
    pub(super) fn trace_steal(&self) {
        self.note(Kind::Stolen, 0, 0, 0, 0);
    }

    /// Records an event with the time of now.
    fn note(&self, kind: Kind, index: u32, value: u64, detail: u8, extra: u16) {
        Recorder::with(|recorder| {
            recorder.tick();
            recorder.put(recorder.event(kind, index, value).detail(detail).extra(extra));
        });
    }
}
