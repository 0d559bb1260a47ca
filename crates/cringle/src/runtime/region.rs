//! What can be cancelled as a whole: a stretch of one fiber's stack, and the fibers below it.
//!
//! A fiber's regions lie within each other, each in the frame that opened it: the fiber's body, then
//! scopes, deadlines and protected calls, innermost last. Where a scope was opened, the region knows
//! the scope's [`Members`]: the fibers below. So the regions of all fibers are one tree, which is kept
//! by nobody: each fiber's part is touched by its own worker alone (**I3**), and a cancel goes from a
//! region to the fibers of the scopes within it, by message where they live elsewhere.
//!
//! A fiber is cancelled while a region that it is in is, unless a *shielded* one (a protected call, or
//! whatever is opened while the fiber unwinds) lies between.

use super::cancelled::Reason;
use super::members::Members;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(crate) struct Region {
    outer: Cell<Option<NonNull<Region>>>,
    shielded: Cell<bool>,
    /// It was cancelled, and why first.
    cause: Cell<Option<Reason>>,
    members: Option<Arc<Members>>,
}

impl Region {
    /// One that a deadline may cancel.
    pub(crate) fn new() -> Region {
        Region::default()
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

    pub(super) fn is_shielded(&self) -> bool {
        self.shielded.get()
    }

    pub(crate) fn cause(&self) -> Option<Reason> {
        self.cause.get()
    }

    pub(super) fn set_cause(&self, reason: Reason) {
        self.cause.set(Some(reason));
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
        Regions { body: Region::new(), innermost: Cell::new(None) }
    }

    /// For the block's next tenant.
    pub(super) fn reset(&self) {
        debug_assert!(self.innermost.get().is_none(), "a fiber ended within a region");
        self.body.cause.set(None);
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
    pub(super) unsafe fn enter(&self, region: &Region) {
        region.outer.set(self.innermost.replace(Some(NonNull::from(region))));
    }

    /// Closes the innermost region.
    pub(super) fn leave(&self, region: &Region) {
        debug_assert_eq!(self.innermost.get(), Some(NonNull::from(region)));
        self.innermost.set(region.outer.get());
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

    /// The scopes within a region (it included) that its cancel reaches, innermost first.
    pub(super) fn reached_from(&self, region: &Region) -> Vec<Arc<Members>> {
        let mut reached = Vec::new();
        for inner in self.outwards() {
            reached.extend(inner.members.clone());
            if std::ptr::eq(inner, region) {
                break;
            }
            if inner.shielded.get() {
                // What is within it is not reached.
                reached.clear();
            }
        }
        reached
    }
}
