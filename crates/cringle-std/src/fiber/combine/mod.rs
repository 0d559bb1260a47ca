//! Combinators: closures that run concurrently, and one result made of theirs.
//!
//! Each combinator opens a scope of fibers, and returns when all of them have ended. So the
//! closures may borrow. The fibers run on the calling fiber's worker, and the closures need not be
//! `Send`; the closures of the combinators named `…_workers` run on all workers. Three rules hold
//! for all:
//!
//! - The first panic cancels the other closures, and is resumed when they have ended.
//! - Once the outcome is decided, closures that have not begun are dropped without a call.
//! - A cancel of the caller reaches every closure. A closure that it unwinds has no result. A
//!   combinator that needs that result and cannot return an error unwinds too.

mod join;
mod par;
mod par_workers;
mod race;
mod spread;
mod spread_places;

pub use join::{join, join_all};
pub use par::{par_for_each, par_map, try_par_for_each, try_par_map};
pub use par_workers::{
    par_for_each_workers, par_map_workers, try_par_for_each_workers, try_par_map_workers,
};
pub use race::{any, race, race_with};

use super::scope::Scope;
use super::spawn::{Builder, expect_spawned};
use cringle_core::cancelled::Cancelled;
use cringle_core::foreign;
use cringle_core::label::Origin;
use cringle_core::unwinding;
use cringle_core::worker::Current;
use cringle_sys::lock::Mutex;
use std::any::Any;
use std::io;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state that the closures of one combinator share.
struct Combination {
    /// Where the combinator was called. Dumps show it as the origin of the fibers.
    caller: Origin,
    /// No further closure begins, and the running ones are cancelled.
    decided: AtomicBool,
    /// The payload of the first panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// A cancel has unwound a closure, or kept one from its begin.
    interrupted: AtomicBool,
}

impl Combination {
    #[track_caller]
    fn new() -> Combination {
        Combination {
            caller: Location::caller(),
            decided: AtomicBool::new(false),
            panic: Mutex::new(None),
            interrupted: AtomicBool::new(false),
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
        if self.is_decided() {
            return None;
        }
        let payload = match unwinding::catch(f) {
            Ok(value) => return Some(value),
            Err(payload) => payload,
        };
        if payload.is::<Cancelled>() {
            self.interrupt();
        } else {
            if let Some(late) = keep_first(&self.panic, payload) {
                foreign::discard(late);
            }
            self.decide(scope);
        }
        None
    }

    /// Records that a cancel has ended a closure, or the iteration over the items of several.
    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    fn was_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Decides the outcome: no further closure begins, and the running ones are cancelled.
    fn decide(&self, scope: &Scope<'_, '_>) {
        if !self.decided.swap(true, Ordering::Relaxed) {
            scope.cancel();
        }
    }

    fn is_decided(&self) -> bool {
        self.decided.load(Ordering::Relaxed)
    }

    /// Resumes the first panic, after all closures have ended.
    fn resume_panic(&self) {
        let first = self.panic.lock().take();
        if let Some(payload) = first {
            unwinding::resume(payload);
        }
    }
}

/// Stores the first value, and returns a later one.
fn keep_first<T>(first: &Mutex<Option<T>>, value: T) -> Option<T> {
    let mut first = first.lock();
    if first.is_some() {
        return Some(value);
    }
    *first = Some(value);
    None
}

/// How an iteration over items ended, if not by a panic.
enum End {
    /// All items were processed, or one failed.
    Done,
    /// A cancel ended the iteration first.
    Interrupted,
}

impl End {
    fn of(combination: &Combination) -> End {
        if combination.was_interrupted() { End::Interrupted } else { End::Done }
    }

    /// Returns the result of a fallible iteration.
    fn into_result<E: From<io::Error>>(self, first_error: Option<E>) -> Result<(), E> {
        match (first_error, self) {
            (Some(error), _) => Err(error),
            (None, End::Done) => Ok(()),
            (None, End::Interrupted) => match Current::get() {
                Some(current) if current.is_interrupted() => {
                    Err(E::from(current.fiber.cancel_error()))
                }
                _ => unwind(),
            },
        }
    }
}

/// Where panics abort, a combinator that cannot return an error processes all its items.
const INTERRUPTIBLE: bool = cfg!(panic = "unwind");

/// Whether the calling fiber is cancelled, so that it begins no further item.
fn is_interrupted() -> bool {
    Current::get().is_some_and(|current| current.is_interrupted())
}

/// Unwinds out of a combinator that has no result because a closure was cancelled.
fn unwind() -> ! {
    unwinding::resume_cancelled()
}
