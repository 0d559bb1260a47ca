//! Cancelling fibers, and the effect of a cancel on the calls of a fiber.
//!
//! A cancel marks a [region](crate::region) of a fiber and ends the fiber's wait, if that
//! lies within. Ops are not abandoned: the kernel is asked to end them, and the fiber waits for
//! their last completion (**I1**). From a region the cancel spreads to the fibers of the scopes
//! within it.

use super::{Current, Within, Worker};
use crate::cancelled::{self, Reason};
use crate::fiber::{FiberId, FiberRef, RunState};
use crate::members::{Address, MemberSlot, Members};
use crate::region::Region;
use crate::shared::Mail;
use cringle_driver::trace::Cause;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Calls refused to a cancelled fiber before it is unwound.
const MAX_REFUSALS: u32 = 1000;

/// Fibers that a cancel has yet to reach. A queue instead of a recursion, because the tree of
/// scopes is as deep as the program makes it.
#[derive(Default)]
pub(super) struct CancelQueue {
    members: RefCell<VecDeque<(Address, Reason)>>,
    is_draining: Cell<bool>,
}

impl CancelQueue {
    fn extend(&self, members: Vec<Address>, reason: Reason) {
        if !members.is_empty() {
            self.members.borrow_mut().extend(members.into_iter().map(|member| (member, reason)));
        }
    }

    /// Cancels the queued fibers, and the fibers that their cancels queue. Does nothing within
    /// itself.
    fn drain(&self) {
        if self.is_draining.replace(true) {
            return;
        }
        loop {
            let next = self.members.borrow_mut().pop_front();
            let Some((member, reason)) = next else { break };
            member.cancel(reason);
        }
        self.is_draining.set(false);
    }
}

// The calls of a cancelled fiber.
impl Current {
    /// Whether the next call of this fiber, one shaped to block, is refused because the fiber is
    /// cancelled.
    ///
    /// A refused call [spends](Self::spend) from the fiber's budget, so that other fibers run
    /// beside a loop which ignores its errors. After [`MAX_REFUSALS`] the fiber is unwound, so that
    /// such a loop ends.
    #[inline]
    pub fn refuses(self) -> bool {
        self.fiber.is_cancelled() && self.refuses_cancelled(true)
    }

    /// [`refuses`](Self::refuses) for a call that never suspends.
    #[inline]
    pub fn refuses_at_once(self) -> bool {
        self.fiber.is_cancelled() && self.refuses_cancelled(false)
    }

    /// Refuses the call if the fiber is cancelled: see [`refuses`](Self::refuses).
    #[inline]
    pub fn admit(self) -> io::Result<()> {
        if self.refuses() { Err(self.fiber.cancel_error()) } else { Ok(()) }
    }

    #[cold]
    fn refuses_cancelled(self, spends: bool) -> bool {
        if self.surely_unwinds() {
            return false;
        }
        if spends {
            self.spend();
        }
        // C code cannot be unwound (I12): the next call of the library outside of it is.
        if self.fiber.count_refusal() > MAX_REFUSALS && !self.fiber.is_in_libc_call() {
            cancelled::unwind_at_once();
        }
        true
    }

    /// Whether a wait of this fiber ends because the fiber is cancelled. Counts nothing.
    #[inline]
    pub fn is_interrupted(self) -> bool {
        self.fiber.is_cancelled() && !self.surely_unwinds()
    }

    /// Unwinds the fiber if it is cancelled. For waits whose signature has no error. Where panics
    /// abort it does nothing.
    #[inline]
    pub fn interrupt_if_cancelled(self) {
        if self.is_interrupted() {
            cancelled::unwind();
        }
    }

    /// Whether a wait of this fiber for a fiber of its own scope ends because of a cancel from
    /// outside that scope. A cancel of the scope itself has cancelled the other fiber too, whose
    /// end the caller waits for.
    pub fn is_interrupted_beyond(self, scope: &Arc<Members>) -> bool {
        self.is_interrupted() && self.fiber.regions().cause_but_for(Some(scope)).is_some()
    }
}

// Cancellation points of libc.
impl Current {
    /// Calls `f`, which does not unwind, as a cancellation point of libc. Returns whether a cancel
    /// of the point has reached it.
    pub fn in_point<R>(self, f: impl FnOnce() -> R) -> (R, bool) {
        let region = Region::default();
        // SAFETY: I3. The guard is dropped below.
        let within = unsafe { Within::enter(self, &region) };
        self.fiber.set_point(Some(&region));
        let result = f();
        self.fiber.set_point(None);
        drop(within);
        (result, region.cause().is_some())
    }

    /// Whether a cancel has reached the cancellation point that the fiber is in.
    pub fn is_point_cancelled(self) -> bool {
        self.fiber.point().is_some_and(|region| region.cause().is_some())
    }
}

// Beginning.
impl Current {
    /// Marks the calling fiber, which begins, as one that belongs to no scope.
    pub fn enter_root(self) {
        self.fiber.set_root();
        if self.worker.shared.is_cancelled() {
            self.fiber.regions().cancel(self.fiber.regions().body(), Reason::Cancelled);
            self.fiber.update_cancelled();
        }
    }

    /// Enters the calling fiber, which begins, into a scope.
    pub fn enter_scope(self, members: &Members, daemon: bool) -> MemberSlot {
        if !members.home().is_some_and(|home| self.worker.shared.has(home)) {
            // The scope was opened outside of this runtime, whose end cancels none of its owners.
            self.enter_root();
        }
        self.fiber.set_scope(members.origin());
        let (slot, cause) = members.enter(self.address(), daemon);
        if let Some(reason) = cause {
            self.fiber.regions().cancel(self.fiber.regions().body(), reason);
            self.fiber.update_cancelled();
        }
        slot
    }
}

// Cancelling.
impl Worker {
    /// Cancels the whole body of a fiber.
    pub(super) fn cancel_fiber(&self, id: FiberId, reason: Reason) {
        if let Some(fiber) = self.find(id, || Mail::Cancel(id, reason)) {
            self.cancel_region(fiber, fiber.regions().body(), reason);
        }
    }

    /// Cancels the part of a fiber that lies within a scope which it has opened.
    pub fn cancel_in_scope(&self, id: FiberId, members: &Arc<Members>, reason: Reason) {
        let message = || Mail::CancelScope(id, Arc::clone(members), reason);
        if let Some(fiber) = self.find(id, message)
            && let Some(region) = fiber.regions().of_scope(members)
        {
            self.cancel_region(fiber, region, reason);
        }
    }

    /// Cancels the cancellation point of libc that a fiber is in, and so waits there.
    pub(super) fn cancel_point(&self, id: FiberId) {
        if let Some(fiber) = self.find(id, || Mail::CancelPoint(id))
            && let Some(region) = fiber.point()
        {
            self.cancel_region(fiber, region, Reason::Cancelled);
        }
    }

    /// Cancels a region whose deadline has passed.
    pub(super) fn expire(&self, fiber: FiberRef, region: NonNull<Region>) {
        // SAFETY: I3. `Deadline` takes the alarm back before the region's frame goes, so the region
        // exists.
        let region = unsafe { region.as_ref() };
        let elapsed = region.deadline().expect("a region with an alarm has a deadline");
        self.cancel_region(fiber, region, Reason::Elapsed(elapsed));
    }

    /// Cancels a region of a fiber: the fiber, if it is within the region and not shielded from it,
    /// and the fibers of the scopes within. Only the first reason counts. Ends the fiber's wait,
    /// where a cancel may end it.
    pub(super) fn cancel_region(&self, fiber: FiberRef, region: &Region, reason: Reason) {
        if region.cause().is_some() {
            return;
        }
        self.events.cancelled(fiber, reason);
        let was_cancelled = fiber.is_cancelled();
        let scopes = fiber.regions().cancel(region, reason);
        if !was_cancelled {
            fiber.update_cancelled();
            if fiber.is_cancelled() {
                // A region around a shield may have left some.
                fiber.reset_refusals();
                if let RunState::Waiting(wait) = fiber.state() {
                    if self.foreground.unwinds(fiber) {
                        // Its destructors finish what they have begun.
                        self.watch_for_end(fiber);
                    } else if wait.is_cancellable() {
                        self.make_runnable(fiber, Cause::Cancel);
                    } else {
                        self.ask_to_end(fiber);
                    }
                }
            }
        }
        for members in scopes {
            self.cancels.extend(members.take_for_cancel(reason), reason);
        }
        self.cancels.drain();
    }

    /// Asks the kernel to end the ops that a cancelled fiber waits for.
    #[cold]
    pub(super) fn ask_to_end(&self, fiber: FiberRef) {
        self.give_up_ops(fiber);
        self.watch_for_end(fiber);
    }
}
