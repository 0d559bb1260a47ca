//! Which fiber unwinds, and why.
//!
//! std counts panics for each thread, and a thread has many fibers: while one of them is suspended in a
//! destructor that its panic runs, `std::thread::panicking()` is true for all fibers of the worker. So each fiber
//! has a state of its own (**I8**, **I13**), one of four. It is set
//!
//! - where the library raises something ([`resume`]), and where it catches ([`catch`]);
//! - by the panic hook, which runs first when a panic begins: ours sets the state, and calls the hook before it;
//! - when the fiber is suspended and resumed, by what std's count says then (`worker/unwinding.rs`).
//!
//! The library does not see a payload that the program hands to std's `resume_unwind`, a panic that it catches
//! by std's `catch_unwind`, and a panic under a hook that was set within `run`. While no other fiber is suspended
//! in a destructor this makes no difference, because std's count is this fiber's then. Otherwise the fiber's own
//! frames are [asked](super::frames) before anything depends on the answer: before a cancel is raised, or ends a
//! wait. So nothing is raised where the raise would abort.

use super::cancelled::Cancelled;
use super::fiber::FiberRef;
use super::worker::{Here, Worker};
use super::{foreign, frames};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// What is known of a fiber's unwinding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwinding {
    No,
    /// A panic unwinds it, or a payload that the program raised.
    Panic,
    /// The library unwinds it because it is cancelled. Locks are not poisoned by that.
    Cancel,
    /// It was suspended while another fiber unwound, so that std's count could not tell.
    Unknown,
}

/// As long as our hook exists: whatever is set, it is that or may call it.
static OURS: Mutex<Weak<()>> = Mutex::new(Weak::new());
/// A thread that panics waits so long, at most, for another one to set the hook.
const PATIENCE: Duration = Duration::from_secs(1);

/// Has panics set the state of their fiber, and makes waits in the hook plain ones. The hook that is set so far is
/// called by ours. One that the program sets later takes the place of ours, until the next `run`, or calls it.
pub(super) fn install_hook() {
    if !std::thread::panicking() {
        return set_ours();
    }
    // std lets no panicking thread change the hook, and nobody while a hook runs. So another thread changes it for
    // a `run` in a destructor. In a hook nobody does: no panic ends well in there.
    if frames::are_in_destructor() {
        let (tell, told) = std::sync::mpsc::channel();
        let helper = std::thread::Builder::new().spawn(move || {
            set_ours();
            let _ = tell.send(());
        });
        // Where no thread can be started, or a hook runs on another one, a later `run` has it.
        if helper.is_ok() {
            let _ = told.recv_timeout(PATIENCE);
        }
    }
}

fn set_ours() {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    if ours.strong_count() > 0 {
        // Not even a look at what is set: for that std waits until no hook runs, and one may wait for this `run`.
        return;
    }
    let top = std::panic::take_hook();
    // Whether the hook before ours is std's own: with nothing set, std returns the same function again.
    let is_default = std::ptr::eq(&raw const *top, &raw const *std::panic::take_hook());
    let alive = Arc::new(());
    *ours = Arc::downgrade(&alive);
    std::panic::set_hook(Box::new(move |info| {
        let _ = &alive;
        frames::note_raiser(info);
        begin_panic();
        // std holds a lock while the hook runs, and lets no panic begin on this thread: it cannot be suspended.
        foreign::beside(|| {
            if is_default {
                name_fiber();
            }
            top(info);
        });
    }));
}

/// Writes one line before std's own message, which names only the thread. A hook of the program's has
/// `fiber::current().name()` instead.
fn name_fiber() {
    let Some((worker, fiber)) = Worker::here().zip(Worker::identity()) else { return };
    if let Some(name) = fiber.meta().and_then(|meta| meta.name()) {
        crate::sys::report(format_args!("fiber '{name}' (worker {}) panicked:", worker.index()));
    }
}

/// A panic begins, or a payload is raised. In a destructor that a cancel runs it has to end there: then that cancel
/// goes on.
fn begin_panic() {
    if let Some((_, fiber)) = Worker::current()
        && !(fiber.unwinding() == Unwinding::Cancel && fiber.frames_unwound_before())
    {
        fiber.set_unwinding(Unwinding::Panic);
    }
}

fn set(state: Unwinding) {
    if let Some((_, fiber)) = Worker::current() {
        fiber.set_unwinding(state);
    }
}

/// As far as is known.
#[inline]
fn state_of(fiber: FiberRef) -> Unwinding {
    match std::thread::panicking() {
        false => Unwinding::No,
        true => fiber.unwinding(),
    }
}

/// All that the calling fiber was doing has been unwound, and the payload caught.
pub(crate) fn has_ended() {
    set(Unwinding::No);
}

/// As `std::panic::resume_unwind`: no hook runs.
pub(crate) fn resume(payload: Box<dyn Any + Send>) -> ! {
    match Worker::current() {
        Some((worker, fiber)) if payload.is::<Cancelled>() => worker.begin_cancel(fiber),
        _ => begin_panic(),
    }
    resume_unwind(payload)
}

/// `std::panic::catch_unwind` of `f` in a frame of its own, which the one that catches never shares: see [`frames`].
/// The closure stays where it is until it is called, so that a large one is not copied from frame to frame.
pub(crate) fn catch_apart<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    let (mut f, mut result) = (Some(f), None);
    let mut call = || result = f.take().map(|f| f());
    catch_unwind(AssertUnwindSafe(|| call_apart(&mut call)))?;
    let Some(result) = result else { unreachable!("the closure has returned") };
    Ok(result)
}

#[inline(never)]
fn call_apart(f: &mut dyn FnMut()) {
    f();
}

/// As `std::panic::catch_unwind`, for code that is the fiber's own.
pub(crate) fn catch<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_on(Worker::current(), f)
}

/// The same, where it is known which fiber calls.
#[inline]
pub(crate) fn catch_on<R>(
    current: Option<(Here, FiberRef)>,
    f: impl FnOnce() -> R,
) -> std::thread::Result<R> {
    let before = current.map(|(_, fiber)| (fiber, state_of(fiber)));
    let result = catch_apart(f);
    if result.is_err()
        && let Some((fiber, before)) = before
    {
        fiber.set_unwinding(before);
    }
    result
}
