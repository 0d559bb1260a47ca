//! Calls of foreign code: what the program, or another crate, has the library call (**I13**).
//!
//! That is destructors of results, payloads, closures and fiber-locals, `tracing` subscribers, panic hooks,
//! wakers, exit calls. Such code may do anything: return, panic, wait, be cancelled meanwhile, spawn, open
//! scopes, raise a payload again. Where the library calls it within its own work, what it raises must not
//! unwind that work, and a cancel of the fiber must not cut it short. So it is called here.

use super::cancelled::Cancelled;
use super::fiber::FiberRef;
use super::region::Region;
use super::unwinding;
use super::worker::{Here, Within, Worker};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `f` as code of the calling fiber: it may wait as the fiber may, and no cancel reaches it. Outside of any
/// fiber it is just called.
///
/// # Errors
///
/// The payload, if `f` unwinds.
pub(crate) fn call<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    let Some((worker, fiber)) = Worker::current() else {
        return catch_unwind(AssertUnwindSafe(f));
    };
    let region = Region::shielded();
    // SAFETY: it is dropped at the end of this function, which nothing unwinds before: `f`'s panic is caught.
    let _within = unsafe { Within::enter(worker, fiber, &region) };
    unwinding::catch_on(Some((worker, fiber)), f)
}

/// Drops a value whose destructor is foreign code.
///
/// # Errors
///
/// The payload, if the destructor unwinds.
pub(crate) fn drop_value<T>(value: T) -> std::thread::Result<()> {
    let mut value = Some(value);
    // In place: a large value takes stack for each function that it passes.
    call(|| value = None)
}

/// Drops a payload that is not raised, because another one is or nobody asks for it. The panic hook has reported
/// it. So it has if the destructor panics, and that payload is forgotten: dropping it could go on for ever.
#[cold]
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if !payload.is::<Cancelled>()
        && let Err(another) = drop_value(payload)
    {
        std::mem::forget(another);
    }
}

/// Calls `f` beside the calling fiber: as if outside of any, so that its waits are plain ones. For code that is
/// called where the fiber cannot be suspended, in the middle of a suspension. What identifies the fiber
/// ([`Worker::identity`]) stays. What `f` raises ends here: `None`.
#[cfg(feature = "tracing")]
#[cold]
pub(crate) fn call_beside<R>(f: impl FnOnce() -> R) -> Option<R> {
    let result = beside(|| {
        let result = catch_unwind(AssertUnwindSafe(f));
        result.map_err(|payload| {
            if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(another);
            }
        })
    });
    result.ok()
}

/// The same for a panic hook, out of which nothing is caught: std's count of panics would be wrong then.
pub(super) fn beside<R>(f: impl FnOnce() -> R) -> R {
    let _aside = Worker::here().map(Aside::step);
    f()
}

/// The worker's fiber is not the current one until this is dropped.
struct Aside {
    worker: Here,
    before: (Option<FiberRef>, Option<FiberRef>),
}

impl Aside {
    fn step(worker: Here) -> Aside {
        Aside { worker, before: worker.step_aside() }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.worker.step_back(self.before);
    }
}
