//! Calls of foreign code: code of the program, or of another crate, that the library calls
//! (**I13**).
//!
//! These are destructors of results, payloads, closures and fiber-locals, `tracing` subscribers,
//! panic hooks, wakers and exit calls. Such code may do anything: return, panic, wait, be cancelled
//! meanwhile, spawn, open scopes, raise a payload again. The library calls it in the middle of its
//! own work, which its panic must not unwind, and in which a cancel must not cut it short. So all
//! of it is called through this module.

use super::cancelled::Cancelled;
use super::region::Region;
use super::unwinding;
use super::worker::{Before, Current, Here, Within, Worker};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `f` as code of the calling fiber: it may wait as the fiber may, and no cancel reaches it.
/// Outside of any fiber it is a plain call.
///
/// # Errors
///
/// The payload, if `f` unwinds.
pub fn call<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    let (mut f, mut result) = (Some(f), None);
    call_mut(&mut || result = f.take().map(|f| f()))?;
    Ok(result.expect("the closure has returned"))
}

/// [`call`] without its types.
fn call_mut(f: &mut dyn FnMut()) -> std::thread::Result<()> {
    let Some(current) = Current::get() else {
        return catch_unwind(AssertUnwindSafe(f));
    };
    let region = Region::shielded();
    // SAFETY: I3. The guard is dropped at the end of this function, and `f`'s panic is caught
    // before that.
    let _within = unsafe { Within::enter(current, &region) };
    unwinding::catch_call(Some(current), f)
}

/// Drops a value whose destructor is foreign code.
///
/// # Errors
///
/// The payload, if the destructor unwinds.
pub fn drop_value<T>(value: T) -> std::thread::Result<()> {
    let mut value = Some(value);
    // Dropped in place: a large value takes stack in each function that it is passed to.
    call_mut(&mut || value = None)
}

/// Drops a payload that is not raised, because another one is, or because no caller takes it. The
/// panic hook has reported it. If the destructor panics, the hook reports that too, and the second
/// payload is forgotten: its destructor might panic again, and so on for ever.
#[cold]
pub fn discard(payload: Box<dyn Any + Send>) {
    if !payload.is::<Cancelled>()
        && let Err(another) = drop_value(payload)
    {
        std::mem::forget(another);
    }
}

/// Calls `f` beside the calling fiber: as if outside of any fiber, so that its waits are plain
/// ones. For code that is called in the middle of a suspension, where the fiber cannot be
/// suspended. The fiber's [identity](Current::identity) stays. Returns `None` if `f` unwinds.
#[cold]
pub fn call_beside<R>(f: impl FnOnce() -> R) -> Option<R> {
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

/// Calls a panic hook beside the calling fiber. Nothing may be caught here: that would leave std's
/// count of panics wrong.
pub fn beside<R>(f: impl FnOnce() -> R) -> R {
    let _beside = Worker::here().map(Beside::begin);
    f()
}

/// The worker has no current fiber until this is dropped.
struct Beside {
    worker: Here,
    before: Before,
}

impl Beside {
    fn begin(worker: Here) -> Beside {
        Beside { worker, before: worker.foreground.step_aside() }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.worker.foreground.step_back(self.before);
    }
}
