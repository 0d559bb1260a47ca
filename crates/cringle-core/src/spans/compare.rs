//! Spans of the `tracing` crate that a fiber is in while it is suspended.
//!
//! Subscribers keep the entered spans by thread, so the next fiber seems to be in that span, too.
//! (With the feature `tracing` spans follow their fiber.) A fiber that is suspended in a span in
//! which it was not resumed, and which no other fiber was resumed in, has entered it.

use crate::foreign;
use crate::hazards::{Site, is_active, is_first, report};
use crate::worker::Current;
use std::cell::{Cell, RefCell};
use tracing_core::metadata::LevelFilter;
use tracing_core::{Metadata, dispatcher};

thread_local! {
    /// The spans in which fibers of this family were resumed, since one was resumed in none.
    static KNOWN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The span in which a fiber was resumed.
#[derive(Default)]
pub struct OfFiber(Cell<Option<u64>>);

impl OfFiber {
    /// Prepares for a new fiber.
    pub(crate) fn reset(&self) {
        self.0.set(None);
    }
}

/// Those of `run`'s caller are looked at as any other.
#[derive(Default)]
pub(crate) struct OuterSpans;

impl OuterSpans {
    pub(crate) fn leave(&self) {}
    pub(crate) fn enter(&self) {}
    pub(crate) fn enter_again(&self) {}
}

/// Whether there may be spans. Without a subscriber this is two loads.
#[inline(always)]
fn may_exist() -> bool {
    is_active() && LevelFilter::current() != LevelFilter::OFF
}

/// The span that the thread is in.
#[cold]
fn current_span() -> Option<(u64, &'static Metadata<'static>)> {
    // The subscriber is called beside the fiber: it cannot suspend the fiber, and nothing unwinds
    // out of it (I12, I13).
    let current = foreign::call_beside(|| dispatcher::get_default(|it| it.current_span()))?;
    Some((current.id()?.into_u64(), current.metadata()?))
}

#[cold]
fn note(fiber: Current) {
    let id = current_span().map(|(id, _)| id);
    fiber.fiber.spans().0.set(id);
    with_known(|known| match id {
        None => known.clear(),
        Some(id) if known.contains(&id) => {}
        Some(id) => known.push(id),
    });
}

/// Calls `f` with the known spans. `None` while the thread-locals end.
fn with_known<R>(f: impl FnOnce(&mut Vec<u64>) -> R) -> Option<R> {
    let result = KNOWN.try_with(|known| known.try_borrow_mut().ok().map(|mut known| f(&mut known)));
    result.ok().flatten()
}

/// A wait of a fiber.
pub(crate) struct AcrossWait;

impl AcrossWait {
    /// Reports the span that the running fiber, which is about to be suspended, has entered.
    #[inline(always)]
    pub(crate) fn begin(current: Current) -> AcrossWait {
        if may_exist()
            && let Some((id, span)) = current_span()
            && current.fiber.spans().0.get() != Some(id)
        {
            report_span(current, id, span);
        }
        AcrossWait
    }

    #[inline(always)]
    pub(crate) fn end(self, current: Current) {
        begin_body(current);
    }
}

/// Notes the span in which the running fiber begins, or continues.
#[inline(always)]
pub(crate) fn begin_body(current: Current) {
    if may_exist() {
        note(current);
    }
}

#[inline(always)]
pub(crate) fn end_body(_: Current) {}

#[cold]
fn report_span(current: Current, id: u64, span: &'static Metadata<'static>) {
    let is_known = with_known(|known| known.contains(&id)).unwrap_or(true);
    if is_known || current.is_alone_in_family() {
        return;
    }
    if is_first("span", Site::Number(std::ptr::from_ref(span).addr())) {
        let (file, line) = (span.file().unwrap_or("an unknown file"), span.line().unwrap_or(0));
        report(format_args!(
            "{} stays in the span `{}` of `tracing`, of {file}:{line}, while it {}; other \
             fibers of worker {} seem to be in that span, too; leave it before the wait, or \
             enable the feature `tracing` of the crate `cringle`",
            current.fiber.origins().in_full(),
            span.name(),
            current.describe_own_wait(),
            current.worker.index(),
        ));
    }
}
