//! Keeps the spans of the `tracing` crate with their fiber.
//!
//! Subscribers of that crate keep the entered spans by thread. If a fiber waited within a span, all
//! other fibers of its worker would run within it, and would leave it in the wrong order. So a
//! fiber leaves its spans when it is suspended and enters them again when it is resumed, as an
//! instrumented future does at each poll. The spans of `run`'s caller belong to the main fiber
//! during the run.

use crate::foreign;
use crate::worker::Current;
use std::cell::RefCell;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Id, dispatcher};

/// The most spans that are left at once. Without it a subscriber that leaves none would hold the
/// worker for ever.
const MAX_DEPTH: usize = 1024;

/// A fiber keeps its spans in the frame of its wait.
#[derive(Default)]
pub struct OfFiber;

impl OfFiber {
    #[inline(always)]
    pub(crate) fn reset(&self) {}
}

/// The spans of a suspended fiber, the innermost first.
pub(crate) struct AcrossWait(Vec<Id>);

/// The spans of `run`'s caller.
#[derive(Default)]
pub(crate) struct OuterSpans(RefCell<Vec<Id>>);

impl AcrossWait {
    /// Leaves all spans of the thread.
    #[inline]
    pub(crate) fn begin(_: Current) -> AcrossWait {
        AcrossWait(leave())
    }

    #[inline]
    pub(crate) fn end(self, _: Current) {
        if !self.0.is_empty() {
            enter_all(&self.0);
        }
    }
}

#[inline]
fn leave() -> Vec<Id> {
    if LevelFilter::current() == LevelFilter::OFF { Vec::new() } else { leave_all() }
}

// The subscriber is called beside the fiber: it cannot suspend the fiber, and nothing unwinds out
// of it (I12, I13).

#[cold]
fn leave_all() -> Vec<Id> {
    let mut spans = Vec::new();
    foreign::call_beside(|| {
        let dispatch = subscriber();
        while spans.len() < MAX_DEPTH
            && let Some(id) = dispatch.current_span().id()
        {
            spans.push(id.clone());
            dispatch.exit(id);
        }
    });
    spans
}

#[cold]
fn enter_all(spans: &[Id]) {
    let mut spans = spans.iter().rev();
    let mut enter = || {
        let dispatch = subscriber();
        spans.by_ref().for_each(|id| dispatch.enter(id));
    };
    // A panic for one span skips only that span.
    while foreign::call_beside(&mut enter).is_none() {}
}

/// Returns a clone, because a span that ends asks for the subscriber again, which must not be
/// borrowed then.
fn subscriber() -> Dispatch {
    dispatcher::get_default(Dispatch::clone)
}

impl OuterSpans {
    /// Leaves the spans that the thread is in when the worker begins. They are for the main fiber.
    pub(crate) fn leave(&self) {
        self.0.replace(leave());
    }

    /// Enters them again for the caller when the worker has ended.
    pub(crate) fn enter_again(&self) {
        enter_all(&self.0.take());
    }

    /// Enters them for the main fiber when it begins.
    pub(crate) fn enter(&self) {
        let spans = self.0.borrow().clone();
        if !spans.is_empty() {
            enter_all(&spans);
        }
    }
}

#[inline(always)]
pub(crate) fn begin_body(_: Current) {}

/// Leaves the spans that the code of the calling fiber has forgotten to leave. Subscribers keep
/// them by thread: afterwards the fiber's thread-locals may end.
pub(crate) fn end_body(current: Current) {
    // The caller's thread-locals have the spans of the caller, too.
    if !current.worker.families.are_callers(current.fiber) {
        drop(leave());
    }
}
