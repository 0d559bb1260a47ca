//! Cancelling fibers, and what a cancelled fiber is told.

use super::{Here, Worker};
use crate::runtime::cancelled::{self, Reason};
use crate::runtime::fiber::{FiberId, FiberRef, State};
use crate::runtime::members::{Address, Members, Place};
use crate::runtime::region::Region;
use crate::runtime::timers::{Alarm, TimerId};
use crate::trace::Cause;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Calls refused to a cancelled fiber before it is unwound.
const MAX_REFUSALS: u32 = 1000;
/// A cancelled fiber whose wait has not ended after this is reported: the kernel does not give up an
/// op, or the fiber waits for others that go on.
const STUBBORN_AFTER: Duration = Duration::from_secs(5);
/// At most one such report of a worker in this time: what is due by then is counted in the next.
const STUBBORN_EVERY: Duration = Duration::from_secs(1);

impl Worker {
    /// Whether the next call of this fiber, one shaped to block, is refused because the fiber is cancelled. A fiber
    /// that asks on after [`MAX_REFUSALS`] of them is unwound, so that a loop which logs its errors and goes on
    /// cannot spin for ever. A refused call [spends](Self::spend) as one that succeeds does: so others run beside
    /// a loop that catches even that unwinding.
    #[inline]
    pub(crate) fn refuses(&self, fiber: FiberRef) -> bool {
        fiber.is_cancelled() && self.refuses_cancelled(fiber, true)
    }

    /// The same for a call that never suspends.
    #[inline]
    pub(crate) fn refuses_at_once(&self, fiber: FiberRef) -> bool {
        fiber.is_cancelled() && self.refuses_cancelled(fiber, false)
    }

    /// Takes note of deadlines that have passed and of messages that have come, a cancel perhaps: for
    /// a fiber that computes, and keeps its worker from looking.
    pub(crate) fn look_for_cancel(&self) {
        if self.has_timers.get() {
            self.fire_timers();
        }
        if self.mailbox.inbox.has_messages() {
            self.read_mail();
        }
    }

    #[cold]
    fn refuses_cancelled(&self, fiber: FiberRef, spends: bool) -> bool {
        if self.surely_unwinds(fiber) {
            return false;
        }
        if spends {
            self.spend(fiber);
        }
        if fiber.count_refusal() > MAX_REFUSALS {
            cancelled::unwind_at_once();
        }
        true
    }

    /// Whether a wait of this fiber is to end because it is cancelled; nothing is counted.
    #[inline]
    pub(crate) fn is_interrupted(&self, fiber: FiberRef) -> bool {
        fiber.is_cancelled() && !self.surely_unwinds(fiber)
    }

    /// Unwinds the fiber if it is cancelled: what a wait does whose signature has no room for an
    /// error. Not where panics abort.
    #[inline]
    pub(crate) fn interrupt_if_cancelled(&self, fiber: FiberRef) {
        if self.is_interrupted(fiber) {
            cancelled::unwind();
        }
    }

    /// Whether a wait of this fiber for another one of a scope that it has opened is to end because it
    /// is cancelled. If it is the scope itself that was cancelled, so was the other fiber: its end is
    /// what the caller asked for, and it comes.
    pub(crate) fn is_interrupted_beyond(&self, fiber: FiberRef, scope: &Arc<Members>) -> bool {
        self.is_interrupted(fiber) && fiber.regions().cause_but_for(Some(scope)).is_some()
    }

    /// The runtime ends: what nobody waits for is cancelled, and with it the scopes it has opened.
    pub(super) fn begin_stop(&self) {
        self.stopping_since.set(Some(self.now()));
        self.cancel_roots();
    }

    /// Cancels the fibers that belong to no scope, and so all that are not in a protected call.
    pub(super) fn cancel_roots(&self) {
        let fibers: Vec<FiberRef> = self.table.borrow().occupied().collect();
        for fiber in fibers.into_iter().filter(|fiber| fiber.is_root()) {
            self.cancel_fiber(fiber.id(), Reason::Cancelled);
        }
    }

    /// The calling fiber begins, and belongs to no scope.
    pub(crate) fn enter_root(&self, fiber: FiberRef) {
        fiber.set_root();
        if self.shared.is_cancelled() {
            fiber.regions().cancel(fiber.regions().body(), Reason::Cancelled);
            fiber.update_cancelled();
        }
    }

    /// The calling fiber begins, and belongs to this scope.
    pub(crate) fn enter_scope(&self, fiber: FiberRef, members: &Members, daemon: bool) -> Place {
        if !members.home().is_some_and(|home| self.shared.has(home)) {
            // The scope was opened outside of this runtime, whose end cancels no owner of it.
            self.enter_root(fiber);
        }
        fiber.set_scope(members.origin());
        let (place, cause) = members.enter(self.address(fiber), daemon);
        if let Some(reason) = cause {
            fiber.regions().cancel(fiber.regions().body(), reason);
            fiber.update_cancelled();
        }
        place
    }

    pub(crate) fn address(&self, fiber: FiberRef) -> Address {
        Address { home: Arc::clone(self.mailbox()), id: fiber.id() }
    }

    /// Cancels a fiber of this worker, whatever it is in.
    pub(super) fn cancel_fiber(&self, id: FiberId, reason: Reason) {
        let fiber = self.table.borrow().get(id);
        if let Some(fiber) = fiber {
            self.cancel_region(fiber, fiber.regions().body(), reason);
        }
    }

    /// Cancels what of a fiber of this worker is within a scope that it has opened.
    pub(super) fn cancel_in_scope(&self, id: FiberId, members: &Arc<Members>, reason: Reason) {
        let fiber = self.table.borrow().get(id);
        if let Some(fiber) = fiber
            && let Some(region) = fiber.regions().of_scope(members)
        {
            self.cancel_region(fiber, region, reason);
        }
    }

    /// Cancels a region of a fiber of this worker: the fiber, if it is there unprotected, and the
    /// fibers of the scopes within. The first reason stands.
    pub(super) fn cancel_region(&self, fiber: FiberRef, region: &Region, reason: Reason) {
        if region.cause().is_some() {
            return;
        }
        self.events.cancelled(fiber, reason);
        let was_cancelled = fiber.is_cancelled();
        let scopes = fiber.regions().cancel(region, reason);
        if !was_cancelled {
            fiber.update_cancelled();
            self.disturb(fiber);
        }
        for members in scopes {
            let mut told = members.take_for_cancel(reason).into_iter().peekable();
            if told.peek().is_some() {
                self.to_cancel.borrow_mut().extend(told.map(|member| (member, reason)));
            }
        }
        // Not by recursion: the tree of scopes is as deep as the program likes.
        if self.cancelling.replace(true) {
            return;
        }
        loop {
            let next = self.to_cancel.borrow_mut().pop_front();
            match next {
                Some((member, reason)) => member.cancel(reason),
                None => break,
            }
        }
        self.cancelling.set(false);
    }

    /// Ends the wait of a fiber that is cancelled, where that may be.
    pub(super) fn disturb(&self, fiber: FiberRef) {
        if !fiber.is_cancelled() {
            return;
        }
        let State::Waiting(wait) = fiber.state() else { return };
        if self.unwinds_suspended(fiber) {
            // What its destructors have begun goes to its end.
            return self.watch_for_end(fiber);
        }
        if wait.is_cancellable() {
            fiber.set_state(State::Runnable);
            self.ready.push(fiber);
            self.events.made_ready(fiber, Cause::Cancel);
        } else {
            self.ask_to_end(fiber);
        }
    }

    /// Asks the kernel to give up the ops that a cancelled fiber waits for, and takes note of when, to
    /// report a wait that goes on for long.
    #[cold]
    pub(super) fn ask_to_end(&self, fiber: FiberRef) {
        self.watch_for_end(fiber);
        self.give_up_ops(fiber);
    }

    fn watch_for_end(&self, fiber: FiberRef) {
        let now = self.now();
        fiber.set_asked_to_end(Some(now));
        if self.watches_stubborn.get().is_none() {
            self.watch_stubborn(now + STUBBORN_AFTER);
        }
    }

    /// A deadline has passed.
    pub(super) fn expire(&self, fiber: FiberRef, region: NonNull<Region>) {
        // SAFETY: I3. A region's alarm is taken back before its frame goes (`Within`), and this one
        // was set until now.
        let region = unsafe { region.as_ref() };
        let elapsed = region.deadline().expect("a region with an alarm has a deadline");
        self.cancel_region(fiber, region, Reason::Elapsed(elapsed));
    }

    /// Reports the cancelled fibers whose waits have outlasted their cancel by so much, however busy
    /// the worker is.
    #[cold]
    pub(super) fn report_stubborn(&self) {
        let now = self.now();
        let mut next: Option<Instant> = None;
        let mut due = Vec::new();
        for fiber in self.table.borrow().occupied() {
            let Some(asked) = fiber.asked_to_end() else { continue };
            match asked + STUBBORN_AFTER {
                at if at <= now => due.push((asked, fiber)),
                at => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        due.iter().for_each(|(_, fiber)| fiber.set_asked_to_end(None));
        if let Some(&(_, first)) = due.iter().min_by_key(|(asked, _)| *asked) {
            self.report_stubborn_fiber(first, due.len() - 1);
        }
        if let Some(fired) = self.watches_stubborn.take() {
            self.take_back_timer(fired);
        }
        if let Some(next) = next {
            self.watch_stubborn(next.max(now + STUBBORN_EVERY));
        }
    }

    fn watch_stubborn(&self, at: Instant) {
        self.watches_stubborn.set(Some(self.set_alarm(at, Alarm::ReportStubborn)));
    }

    /// Reports, once, that a cancelled fiber still waits, and for what; and how many others do.
    fn report_stubborn_fiber(&self, fiber: FiberRef, others: usize) {
        let State::Waiting(wait) = fiber.state() else { return };
        let name = fiber.meta().and_then(|meta| meta.name()).unwrap_or("<unnamed>");
        let what = fiber.op_name().unwrap_or(wait.describe());
        let why = fiber.cause().map_or("cancelled", Reason::describe);
        let more = match others {
            0 => String::new(),
            1 => " (as does 1 other fiber of its worker)".to_owned(),
            _ => format!(" (as do {others} other fibers of its worker)"),
        };
        crate::sys::report(format_args!(
            "fiber '{name}' was {why} {} s ago, and still waits for: {what}{more}",
            STUBBORN_AFTER.as_secs()
        ));
    }
}

/// A region that the calling fiber is in until this is dropped, by a return or an unwinding.
///
/// It borrows the region from the caller's frame, and the fiber leaves that frame only through it.
pub(crate) struct Within<'a> {
    worker: Here,
    fiber: FiberRef,
    region: &'a Region,
    /// Those of the fiber when it entered.
    refusals: u32,
}

impl<'a> Within<'a> {
    /// Has the calling fiber enter a region. What is opened while it unwinds is shielded: nothing is
    /// cancelled there.
    ///
    /// # Safety
    ///
    /// The value is dropped (not forgotten), before those that were made earlier, on this fiber.
    #[inline]
    pub(crate) unsafe fn enter(worker: Here, fiber: FiberRef, region: &'a Region) -> Within<'a> {
        if worker.is_unwinding(fiber) {
            region.shield();
        }
        // SAFETY: I3. The region is borrowed until this is dropped, which leaves it.
        unsafe { fiber.regions().enter(region) };
        let refusals = fiber.refusals();
        if region.is_shielded() {
            fiber.update_cancelled();
            // It begins anew in there, and goes on where it was afterwards: a loop that ignores its
            // refusals, but protects what it does about them, cannot spin for ever either.
            fiber.set_refusals(0);
        }
        Within { worker, fiber, region, refusals }
    }

    /// Has the region cancelled when the time is up that it has: now, if it is.
    #[inline]
    pub(crate) fn expire_in_time(&self, now: Instant) -> Deadline<'_> {
        let deadline = self.region.deadline().expect("a region with a deadline").deadline();
        let here = NonNull::from(self.region);
        if deadline <= now {
            self.worker.expire(self.fiber, here);
        }
        let timer = self.worker.set_alarm(deadline, Alarm::Expire(self.fiber, here));
        Deadline { within: self, timer }
    }
}

impl Drop for Within<'_> {
    #[inline]
    fn drop(&mut self) {
        // Else it is what it was outside.
        let may_change = self.fiber.is_cancelled() || self.region.is_shielded();
        self.fiber.regions().leave(self.region);
        if may_change {
            self.fiber.update_cancelled();
        }
        if self.region.is_shielded() {
            self.fiber.set_refusals(self.refusals);
        } else if !self.fiber.is_cancelled() {
            self.fiber.set_refusals(0);
        }
    }
}

/// The alarm of a region, until this is dropped.
pub(crate) struct Deadline<'a> {
    within: &'a Within<'a>,
    timer: TimerId,
}

impl Drop for Deadline<'_> {
    #[inline]
    fn drop(&mut self) {
        self.within.worker.take_back_timer(self.timer);
    }
}
