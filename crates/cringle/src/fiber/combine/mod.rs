//! Running closures beside each other, and making one result of theirs.
//!
//! Each of these opens a scope of fibers of the calling fiber's worker, and returns when all of them
//! have ended; so closures borrow, and need not be `Send`. Three rules hold for all:
//!
//! - the first panic cancels what runs beside it, and is raised when all of that has ended;
//! - what has not begun when all is decided is dropped, not begun;
//! - a cancel of the caller reaches every closure. One that it unwinds (a wait without room for an
//!   error) has no result; where the combinator needs one, and cannot return an error, it unwinds too.

mod join;
mod par;
mod race;

pub use join::{join, join_all};
pub use par::{par_for_each, par_map, try_par_for_each, try_par_map};
pub use race::{any, race, race_with};

use super::scope::Scope;
use super::spawn::{Builder, expect_spawned};
use crate::runtime::cancelled::Cancelled;
use crate::runtime::foreign;
use crate::runtime::label::Origin;
use crate::runtime::unwinding;
use std::any::Any;
use std::cell::Cell;
use std::panic::Location;

/// What the closures of one combinator tell each other. They are fibers of one worker.
struct Course {
    /// Where the combinator was called: so its fibers are told of.
    caller: Origin,
    /// Nothing more is begun, and what runs is cancelled.
    decided: Cell<bool>,
    /// The first panic.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    /// A closure was unwound because it was cancelled.
    cut_short: Cell<bool>,
}

impl Course {
    #[track_caller]
    fn new() -> Course {
        Course {
            caller: Location::caller(),
            decided: Cell::default(),
            panic: Cell::default(),
            cut_short: Cell::default(),
        }
    }

    fn builder(&self) -> Builder {
        Builder::new().origin(self.caller)
    }

    fn spawn<'scope>(&self, scope: &'scope Scope<'scope, '_>, f: impl FnOnce() + 'scope) {
        drop(expect_spawned(self.builder().spawn_scoped_local(scope, f)));
    }

    /// Calls a closure, unless all is decided. `None` if it has no result.
    fn run<T>(&self, scope: &Scope<'_, '_>, f: impl FnOnce() -> T) -> Option<T> {
        if self.decided.get() {
            return None;
        }
        let payload = match unwinding::catch(f) {
            Ok(value) => return Some(value),
            Err(payload) => payload,
        };
        if payload.is::<Cancelled>() {
            self.cut_short.set(true);
        } else {
            match self.panic.take() {
                None => self.panic.set(Some(payload)),
                first => {
                    self.panic.set(first);
                    foreign::discard(payload);
                }
            }
            self.decide(scope);
        }
        None
    }

    /// Begins nothing more, and cancels what runs.
    fn decide(&self, scope: &Scope<'_, '_>) {
        if !self.decided.replace(true) {
            scope.cancel();
        }
    }

    fn is_decided(&self) -> bool {
        self.decided.get()
    }

    /// All have ended: raises the first panic.
    fn raise_panic(&self) {
        if let Some(payload) = self.panic.take() {
            unwinding::resume(payload);
        }
    }
}

/// Leaves a combinator that has no result, because a closure was cancelled.
fn unwind() -> ! {
    unwinding::resume(Box::new(Cancelled))
}
