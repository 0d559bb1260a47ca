//! Regions, the units of cancellation: a stretch of one fiber's stack, and the fibers of the scopes
//! within it.
//!
//! The regions of a fiber are nested, each in the frame that opened it: the fiber's body, then
//! scopes, deadlines and protected calls. The region of a scope knows the scope's [`Members`]. So
//! the regions of all fibers form one tree, but no structure holds it: only a fiber's own worker
//! touches the fiber's part (**I3**), and a cancel spreads from a region to the fibers of the
//! scopes within it, by message if they live elsewhere.
//!
//! A fiber is cancelled while a region around it is, unless a *shielded* region lies between the
//! two: a protected call, or any region that was opened while the fiber unwinds. Each region
//! records whether a cancel *reaches* it. So entering and leaving a region walks over no other,
//! however deeply they are nested. A region is marked once, by the first cancel that reaches it.

use super::cancelled::{Elapsed, Reason};
use super::members::Members;
use super::timers::TimerId;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub struct Region {
    outer: Cell<Option<NonNull<Region>>>,
    inner: Cell<Option<NonNull<Region>>>,
    /// It is cancelled, or a region around it is and no shield lies between.
    reached: Cell<bool>,
    shielded: Cell<bool>,
    /// The reason of its first cancel.
    cause: Cell<Option<Reason>>,
    deadline: Option<Elapsed>,
    /// The timer of the deadline, until it is taken back.
    alarm: Cell<Option<TimerId>>,
    /// The timer was taken back for a move of the fiber, and is to be set again.
    packed: Cell<bool>,
    members: Option<Arc<Members>>,
}

impl Region {
    /// A region with a deadline.
    #[inline]
    pub fn with_deadline(elapsed: Elapsed) -> Region {
        Region { deadline: Some(elapsed), ..Region::default() }
    }

    /// A region that no cancel from outside reaches.
    pub fn shielded() -> Region {
        Region { shielded: Cell::new(true), ..Region::default() }
    }

    /// The region of a scope.
    pub fn of_scope(members: &Arc<Members>) -> Region {
        Region { members: Some(Arc::clone(members)), ..Region::default() }
    }

    pub(crate) fn shield(&self) {
        self.shielded.set(true);
    }

    #[inline]
    pub(super) fn is_shielded(&self) -> bool {
        self.shielded.get()
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<Elapsed> {
        self.deadline
    }

    /// Notes the timer of the deadline.
    pub(super) fn set_alarm(&self, alarm: TimerId) {
        let before = self.alarm.replace(Some(alarm));
        debug_assert!(before.is_none(), "I9: a timer of another host is left");
    }

    /// Returns the timer of the deadline, to be taken back.
    pub(super) fn take_alarm(&self) -> Option<TimerId> {
        self.alarm.take()
    }

    /// Returns the timer of the deadline, to be taken back for a move of the fiber.
    pub(super) fn pack_alarm(&self) -> Option<TimerId> {
        self.packed.set(self.alarm.get().is_some() && self.cause.get().is_none());
        self.alarm.take()
    }

    pub fn cause(&self) -> Option<Reason> {
        self.cause.get()
    }

    fn is_of(&self, members: &Arc<Members>) -> bool {
        self.members.as_ref().is_some_and(|own| Arc::ptr_eq(own, members))
    }
}

/// The regions of one fiber. All but the outermost lie in frames of that fiber.
pub(crate) struct Regions {
    /// The fiber's body.
    body: Region,
    /// The innermost region within the body, if one is open.
    innermost: Cell<Option<NonNull<Region>>>,
}

impl Regions {
    pub(super) fn new() -> Regions {
        Regions { body: Region::default(), innermost: Cell::new(None) }
    }

    /// Prepares for the next fiber of the block.
    pub(super) fn reset(&self) {
        debug_assert!(self.innermost.get().is_none(), "a fiber ended within a region");
        self.body.cause.set(None);
        self.body.reached.set(false);
    }

    pub(super) fn body(&self) -> &Region {
        &self.body
    }

    /// Opens a region in the calling frame.
    ///
    /// # Safety
    ///
    /// I3: the caller runs on this fiber, and calls [`leave`](Self::leave) there before the region
    /// is moved or dropped.
    #[inline]
    pub(super) unsafe fn enter(&self, region: &Region) {
        let outer = self.innermost();
        region
            .reached
            .set(region.cause.get().is_some() || (outer.reached.get() && !region.shielded.get()));
        outer.inner.set(Some(NonNull::from(region)));
        region.outer.set(self.innermost.replace(Some(NonNull::from(region))));
    }

    /// Closes the innermost region.
    #[inline]
    pub(super) fn leave(&self, region: &Region) {
        let innermost = self.innermost.get();
        debug_assert_eq!(innermost, Some(NonNull::from(region)), "I12: regions are nested");
        debug_assert!(region.alarm.get().is_none(), "I9: the timer of a region outlives it");
        self.innermost.set(region.outer.get());
        self.innermost().inner.set(None);
    }

    #[inline]
    fn innermost(&self) -> &Region {
        // SAFETY: I3. A region is in the list only while its frame holds it (`enter`'s contract).
        self.innermost.get().map_or(&self.body, |region| unsafe { region.as_ref() })
    }

    /// Whether a cancel reaches the place where the fiber is.
    #[inline]
    pub(super) fn is_cancelled(&self) -> bool {
        self.innermost().reached.get()
    }

    /// Cancels one of the regions. Only the first reason counts. Returns the scopes that this
    /// cancel is the first to reach, innermost first.
    pub(super) fn cancel(&self, region: &Region, reason: Reason) -> Vec<Arc<Members>> {
        let mut scopes = Vec::new();
        if region.cause.get().is_none() {
            region.cause.set(Some(reason));
        }
        let mut next = Some(region);
        while let Some(region) = next.filter(|region| !region.reached.replace(true)) {
            scopes.extend(region.members.clone());
            // SAFETY: I3, as in `innermost`.
            let inner = region.inner.get().map(|inner| unsafe { inner.as_ref() });
            next = inner.filter(|inner| !inner.shielded.get());
        }
        scopes.reverse();
        scopes
    }

    /// All regions from the innermost outwards, the body last.
    fn outwards(&self) -> impl Iterator<Item = &Region> {
        let mut next = self.innermost.get();
        let inner = std::iter::from_fn(move || {
            // SAFETY: I3, as in `innermost`. Only the fiber's own worker walks the list.
            let region = unsafe { next?.as_ref() };
            next = region.outer.get();
            Some(region)
        });
        inner.chain(std::iter::once(&self.body))
    }

    /// The regions with a deadline.
    pub(super) fn with_alarms(&self) -> impl Iterator<Item = &Region> {
        self.outwards().filter(|region| region.deadline.is_some())
    }

    /// The regions whose timers are to be set again.
    pub(super) fn with_packed_alarms(&self) -> impl Iterator<Item = &Region> {
        self.outwards().filter(|region| region.packed.replace(false))
    }

    /// Why the fiber is cancelled at the place where it is: the outermost cause that reaches it.
    pub(super) fn cause(&self) -> Option<Reason> {
        self.cause_but_for(None)
    }

    /// [`cause`](Self::cause) without the region of the given scope.
    pub(super) fn cause_but_for(&self, scope: Option<&Arc<Members>>) -> Option<Reason> {
        let mut cause = None;
        for region in self.outwards() {
            if !scope.is_some_and(|scope| region.is_of(scope)) {
                cause = region.cause.get().or(cause);
            }
            if region.shielded.get() {
                break;
            }
        }
        cause
    }

    /// The region of a scope, if the fiber is in it.
    pub(super) fn of_scope(&self, members: &Arc<Members>) -> Option<&Region> {
        self.outwards().find(|region| region.is_of(members))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The model: a walk over all regions, from the outermost inwards.
    fn reached(regions: &[&Region]) -> Vec<bool> {
        let mut outside = false;
        let reach = |region: &&Region| {
            outside = region.cause.get().is_some() || (outside && !region.shielded.get());
            outside
        };
        regions.iter().map(reach).collect()
    }

    proptest! {
        /// After any sequence of steps each region agrees with the walk, and each scope was
        /// returned by the first cancel that reached it.
        #[test]
        fn regions_agree_with_a_walk(
            steps in prop::collection::vec(
                (0u8..4, any::<prop::sample::Index>(), any::<bool>()),
                1..100,
            )
        ) {
            let regions = Regions::new();
            let all: Vec<Region> =
                steps.iter().map(|_| Region::of_scope(&Members::new(None, None))).collect();
            let mut free = all.iter();
            let mut open = vec![regions.body()];
            let mut cancelled = HashSet::new();
            for (step, nth, shielded) in steps {
                match step {
                    0 | 1 => {
                        let region = free.next().unwrap();
                        region.shielded.set(shielded);
                        // SAFETY: I3. All regions live until the end of the test, as `regions`
                        // does.
                        unsafe { regions.enter(region) };
                        if !shielded && regions.is_cancelled() {
                            // Its scope is cancelled from the start.
                            cancelled.insert(std::ptr::from_ref(region));
                        }
                        open.push(region);
                    }
                    2 if open.len() > 1 => regions.leave(open.pop().unwrap()),
                    _ => {
                        let region = *nth.get(&open);
                        let scopes = regions.cancel(region, Reason::Cancelled);
                        for members in scopes {
                            let region = open.iter().find(|region| region.is_of(&members)).unwrap();
                            prop_assert!(cancelled.insert(std::ptr::from_ref(*region)));
                        }
                    }
                }
                let reached = reached(&open);
                for (region, reached) in open.iter().zip(&reached) {
                    prop_assert_eq!(region.reached.get(), *reached);
                    let is_cancelled = cancelled.contains(&std::ptr::from_ref(*region));
                    prop_assert_eq!(is_cancelled, *reached && region.members.is_some());
                }
                prop_assert_eq!(regions.is_cancelled(), *reached.last().unwrap());
                prop_assert_eq!(regions.cause().is_some(), regions.is_cancelled());
            }
        }
    }
}
