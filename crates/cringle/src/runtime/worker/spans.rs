//! Spans of the `tracing` crate follow their fiber.
//!
//! That crate's subscribers keep the spans that are entered by thread. A fiber that waits within one would
//! have all others of its worker run within it, and would leave it in the wrong order. So a fiber leaves
//! its spans when it is suspended and enters them again when it goes on: what an instrumented future does
//! at each poll. Those that the caller of `run` is in are the main fiber's, and the caller's again
//! afterwards.

use super::Worker;
use crate::runtime::foreign;
use std::cell::RefCell;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Id, dispatcher};

/// Spans entered in each other, at most: a subscriber that leaves none must not keep a worker for ever.
const DEEPEST: usize = 1024;

/// The spans that a fiber is in, the innermost first, while it is suspended.
pub(super) struct Spans(Vec<Id>);

/// Spans of who called `run`.
#[derive(Default)]
pub(super) struct Outer(RefCell<Vec<Id>>);

impl Spans {
    /// Leaves all that the thread is in.
    #[inline]
    pub(super) fn leave() -> Spans {
        match LevelFilter::current() == LevelFilter::OFF {
            true => Spans(Vec::new()),
            false => Spans(leave_all()),
        }
    }

    #[inline]
    pub(super) fn enter_again(self) {
        if !self.0.is_empty() {
            enter_all(&self.0);
        }
    }
}

// The fiber cannot be suspended here, nor anything unwind: the subscriber is called beside it (I12, I13).

#[cold]
fn leave_all() -> Vec<Id> {
    let mut spans = Vec::new();
    foreign::call_beside(|| {
        let dispatch = subscriber();
        while spans.len() < DEEPEST
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
    // A panic for one span ends that one.
    while foreign::call_beside(&mut enter).is_none() {}
}

/// Not called while it is borrowed: a span that ends asks for it again.
fn subscriber() -> Dispatch {
    dispatcher::get_default(Dispatch::clone)
}

impl Worker {
    /// The worker begins: what its thread is in is no fiber's but the main one's.
    pub(super) fn leave_outer_spans(&self) {
        self.outer_spans.0.replace(Spans::leave().0);
    }

    pub(super) fn enter_outer_spans_again(&self) {
        enter_all(&self.outer_spans.0.take());
    }

    /// For the main fiber, as it begins.
    pub(crate) fn enter_outer_spans(&self) {
        let spans = self.outer_spans.0.borrow().clone();
        if !spans.is_empty() {
            enter_all(&spans);
        }
    }
}
