//! Combinators: closures that run concurrently, and one result made of theirs.
//!
//! Each combinator opens a scope of fibers on the calling fiber's worker, and returns when all of
//! them have ended. So the closures may borrow, and need not be `Send`. Three rules hold for all:
//!
//! - The first panic cancels the other closures, and is resumed when they have ended.
//! - Once the outcome is decided, closures that have not begun are dropped without a call.
//! - A cancel of the caller reaches every closure. A closure that it unwinds has no result. A
//!   combinator that needs that result and cannot return an error unwinds too.

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

/// The state that the closures of one combinator share. They are fibers of one worker.
struct Combination {
    /// Where the combinator was called. Dumps show it as the origin of the fibers.
    caller: Origin,
    /// No further closure begins, and those that run are cancelled.
    decided: Cell<bool>,
    /// The payload of the first panic.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    /// A cancel has unwound a closure.
    interrupted: Cell<bool>,
}

impl Combination {
    #[track_caller]
    fn new() -> Combination {
        Combination {
            caller: Location::caller(),
            decided: Cell::default(),
            panic: Cell::default(),
            interrupted: Cell::default(),
        }
    }

    fn builder(&self) -> Builder {
        Builder::new().origin(self.caller)
    }

    fn spawn<'scope>(&self, scope: &'scope Scope<'scope, '_>, f: impl FnOnce() + 'scope) {
        drop(expect_spawned(self.builder().spawn_scoped_local(scope, f)));
    }

    /// Calls a closure, unless the outcome is decided. Returns `None` if there is no result.
    fn run<T>(&self, scope: &Scope<'_, '_>, f: impl FnOnce() -> T) -> Option<T> {
        if self.decided.get() {
            return None;
        }
        let payload = match unwinding::catch(f) {
            Ok(value) => return Some(value),
            Err(payload) => payload,
        };
        if payload.is::<Cancelled>() {
            self.interrupted.set(true);
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

    /// Decides the outcome: no further closure begins, and those that run are cancelled.
    fn decide(&self, scope: &Scope<'_, '_>) {
        if !self.decided.replace(true) {
            scope.cancel();
        }
    }

    fn is_decided(&self) -> bool {
        self.decided.get()
    }

    /// Resumes the first panic, after all closures have ended.
    fn resume_panic(&self) {
        if let Some(payload) = self.panic.take() {
            unwinding::resume(payload);
        }
    }
}

/// Unwinds out of a combinator that has no result because a closure was cancelled.
fn unwind() -> ! {
    unwinding::resume(Box::new(Cancelled))
}
