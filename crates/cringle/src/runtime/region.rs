//! What can be cancelled as a whole: a stretch of one fiber's stack, and the fibers below it.
//!
//! A fiber's regions lie within each other, each in the frame that opened it: the fiber's body, then
//! scopes, deadlines and protected calls, innermost last. Where a scope was opened, the region knows
//! the scope's [`Members`]: the fibers below. So the regions of all fibers are one tree, which is kept
//! by nobody: each fiber's part is touched by its own worker alone (**I3**), and a cancel goes from a
//! region to the fibers of the scopes within it, by message where they live elsewhere.
//!
//! A fiber is cancelled while a region that it is in is, unless a *shielded* one (a protected call, or
//! whatever is opened while the fiber unwinds) lies between. Each region keeps whether a cancel *reaches* it, so
//! that entering and leaving one takes no walk over the others, however deep they are nested: a region is marked
//! once, by the first cancel that reaches it.

use super::cancelled::{Elapsed, Reason};
use super::members::Members;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(crate) struct Region {
    outer: Cell<Option<NonNull<Region>>>,
    inner: Cell<Option<NonNull<Region>>>,
    /// It is cancelled, or one further out that no shield keeps from it.
    reached: Cell<bool>,
    shielded: Cell<bool>,
    /// It was cancelled, and why first.
    cause: Cell<Option<Reason>>,
    /// When its time is up.
    deadline: Option<Elapsed>,
    members: Option<Arc<Members>>,
}

impl Region {
    /// One that has so much time.
    #[inline]
    pub(crate) fn with_deadline(elapsed: Elapsed) -> Region {
        Region { deadline: Some(elapsed), ..Region::default() }
    }

    /// One that no cancel from outside reaches.
    pub(crate) fn shielded() -> Region {
        Region { shielded: Cell::new(true), ..Region::default() }
    }

    /// That of a scope with these fibers.
    pub(crate) fn of_scope(members: &Arc<Members>) -> Region {
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

    pub(crate) fn cause(&self) -> Option<Reason> {
        self.cause.get()
    }

    fn is_of(&self, members: &Arc<Members>) -> bool {
        self.members.as_ref().is_some_and(|own| Arc::ptr_eq(own, members))
    }
}

/// The regions of one fiber. Each, but for the outermost, lies in a frame of that fiber.
pub(crate) struct Regions {
    /// The fiber's body.
    body: Region,
    /// The innermost within the body, if there are any.
    innermost: Cell<Option<NonNull<Region>>>,
}

impl Regions {
    pub(super) fn new() -> Regions {
        Regions { body: Region::default(), innermost: Cell::new(None) }
    }

    /// For the block's next tenant.
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
    /// I3: [`leave`](Self::leave) is called for it before it is moved or goes away, on the fiber that
    /// entered it, which is this one.
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
        debug_assert_eq!(self.innermost.get(), Some(NonNull::from(region)));
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

    /// Cancels one of them. The first reason stands. Returns the scopes, innermost first, that the cancel
    /// reaches and none has reached before.
    pub(super) fn cancel(&self, region: &Region, reason: Reason) -> Vec<Arc<Members>> {
        let mut scopes = Vec::new();
        if region.cause.get().is_none() {
            region.cause.set(Some(reason));
        }
        let mut next = Some(region);
        while let Some(region) = next.filter(|region| !region.reached.replace(true)) {
            scopes.extend(region.members.clone());
            // SAFETY: I3, as above.
            let inner = region.inner.get().map(|inner| unsafe { inner.as_ref() });
            next = inner.filter(|inner| !inner.shielded.get());
        }
        scopes.reverse();
        scopes
    }

    /// From the innermost one outwards, the fiber's body last.
    fn outwards(&self) -> impl Iterator<Item = &Region> {
        let mut next = self.innermost.get();
        let inner = std::iter::from_fn(move || {
            // SAFETY: I3. A region is in the list only while its frame holds it (`enter`'s contract),
            // and the list is used by the fiber's own worker alone.
            let region = unsafe { next?.as_ref() };
            next = region.outer.get();
            Some(region)
        });
        inner.chain(std::iter::once(&self.body))
    }

    /// Why the fiber is cancelled where it is now, if it is: the outermost cause that reaches it.
    pub(super) fn cause(&self) -> Option<Reason> {
        self.cause_but_for(None)
    }

    /// The same, not counting the cancel of one scope's own region.
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

    /// What a walk over all regions says, from the outermost one inwards.
    fn reached(regions: &[&Region]) -> Vec<bool> {
        let mut outside = false;
        let reach = |region: &&Region| {
            outside = region.cause.get().is_some() || (outside && !region.shielded.get());
            outside
        };
        regions.iter().map(reach).collect()
    }

    proptest! {
        /// Whatever is entered, left and cancelled in whatever order: each region knows what a walk finds, and
        /// each scope is returned by the first cancel that reaches it.
        #[test]
        fn regions_know_whether_a_cancel_reaches_them(
            steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>(), any::<bool>()), 1..100)
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
                        // SAFETY: all of them stay until the end, and `regions` is not used after them.
                        unsafe { regions.enter(region) };
                        if !shielded && regions.is_cancelled() {
                            // Its scope is opened cancelled.
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
                    let is_scope = region.members.is_some();
                    prop_assert_eq!(cancelled.contains(&std::ptr::from_ref(*region)), *reached && is_scope);
                }
                prop_assert_eq!(regions.is_cancelled(), *reached.last().unwrap());
                prop_assert_eq!(regions.cause().is_some(), regions.is_cancelled());
            }
        }
    }
}
