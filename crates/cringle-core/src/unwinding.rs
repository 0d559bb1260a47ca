//! Which fiber unwinds, and why.
//!
//! std counts panics by thread, and a thread has many fibers. While one of them is suspended in a
//! destructor that its panic runs, `std::thread::panicking()` is true for all fibers of the worker.
//! So each fiber has a state of its own (**I8**, **I13**), an [`Unwinding`]. It is set
//!
//! - where the library raises a payload ([`resume`]), and where it catches one ([`catch`]);
//! - by the panic hook, which runs first when a panic begins: ours sets the state, and calls the
//!   hook before it;
//! - when the fiber is suspended and resumed, from std's count at that time
//!   (`worker/unwinding.rs`).
//!
//! Three events escape the library: the program raises a payload by std's `resume_unwind`, it
//! catches a panic by std's `catch_unwind`, or it panics under a hook that was set within `run`.
//! While no other fiber is suspended in a destructor, they make no difference, because std's count
//! belongs to this fiber then. Otherwise the library walks the fiber's [frames] before it acts on
//! the answer: before it raises a cancel, or ends a wait by one. So it raises nothing where that
//! would abort.

use super::cancelled::Cancelled;
use super::fiber::FiberRef;
use super::worker::{Current, Worker};
use super::{foreign, frames};
use cringle_sys::fork;
use cringle_sys::lock::Mutex;
use std::any::Any;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What is known of a fiber's unwinding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwinding {
    No,
    /// A panic, or a payload that the program raised.
    Panic,
    /// A cancel, raised by the library. It poisons no locks.
    Cancel,
    /// Unknown: the fiber was suspended while another one unwound, so std's count was ambiguous.
    Unknown,
}

/// Alive while our hook exists: it is the process's hook, or the program's hook may call it.
static OURS: Mutex<Weak<()>> = Mutex::new(Weak::new());
/// How long a panicking thread waits for another one to set the hook.
const PATIENCE: Duration = Duration::from_secs(1);

/// Installs the panic hook that sets the state of the fiber and makes waits in the hook plain ones.
/// It calls the hook before it. A hook that the program sets later replaces ours until the next
/// `run`, or calls it.
pub fn install_hook() {
    if !std::thread::panicking() {
        return set_ours();
    }
    // std lets no panicking thread change the hook, and no thread while a hook runs. So for a `run`
    // in a destructor another thread changes it. For a `run` in a hook no thread does: a panic in
    // there aborts in any case.
    if frames::are_in_destructor() {
        let (done, is_done) = std::sync::mpsc::channel();
        let helper = std::thread::Builder::new().spawn(move || {
            set_ours();
            let _ = done.send(());
        });
        // If no thread can be started, or a hook runs on another thread, a later `run` installs the
        // hook.
        if helper.is_ok() {
            let _ = is_done.recv_timeout(PATIENCE);
        }
    }
}

/// In a child of `fork`: a thread of the parent may hold the lock. It guards a single assignment.
fn unlock_in_child() {
    // SAFETY: I14. The child has no other thread, and the caller no guard.
    unsafe { OURS.unlock_in_child() };
}

/// Has `fork` leave a child in which a `run` works: see [`cringle_sys::fork`].
///
/// # Errors
///
/// There is no memory for a handler.
pub fn watch_forks() -> Result<(), String> {
    fork::call_in_child(fork::Caller::Runtime, unlock_in_child)
}

fn set_ours() {
    let mut ours = OURS.lock();
    if ours.strong_count() > 0 {
        // Without reading the current hook: for that std waits until no hook runs, and a hook may
        // wait for this `run`.
        return;
    }
    let top = std::panic::take_hook();
    // Without a hook, std returns its own, and the same again.
    let is_default = std::ptr::eq(&raw const *top, &raw const *std::panic::take_hook());
    let alive = Arc::new(());
    *ours = Arc::downgrade(&alive);
    std::panic::set_hook(Box::new(move |info| {
        let _ = &alive;
        frames::note_raiser(info);
        begin_panic();
        // std holds a lock while the hook runs, and a panic on this thread would abort: the fiber
        // must not suspend.
        foreign::beside(|| {
            if is_default {
                name_fiber(info);
            }
            top(info);
        });
    }));
}

/// Writes one line before std's own message, which names only the thread. A hook of the program can
/// use `fiber::current().name()`.
fn name_fiber(info: &PanicHookInfo<'_>) {
    let Some((worker, fiber)) = Worker::here().zip(Current::identity()) else { return };
    if let Some(name) = fiber.meta().and_then(|meta| meta.name()) {
        let (worker, place) = (worker.index(), info.location());
        let place = place.map_or_else(|| "an unknown place".into(), ToString::to_string);
        cringle_sys::report(format_args!("fiber '{name}' (worker {worker}) panicked at {place}:"));
    }
}

/// Notes that a panic begins, or that a payload is raised. Within a destructor that a cancel runs,
/// the state stays `Cancel`: the panic must end in that destructor, and the cancel continues.
fn begin_panic() {
    if let Some(Current { fiber, .. }) = Current::get()
        && !(fiber.unwinding() == Unwinding::Cancel && fiber.frames_unwound_before())
    {
        fiber.set_unwinding(Unwinding::Panic);
    }
}

fn set(state: Unwinding) {
    if let Some(Current { fiber, .. }) = Current::get() {
        fiber.set_unwinding(state);
    }
}

/// The state as far as it is known.
#[inline]
fn state_of(fiber: FiberRef) -> Unwinding {
    if std::thread::panicking() { fiber.unwinding() } else { Unwinding::No }
}

/// Notes that the calling fiber's whole body was unwound, and the payload caught.
pub(crate) fn has_ended() {
    set(Unwinding::No);
}

/// Raises a payload as `std::panic::resume_unwind` does, without a hook.
pub fn resume(payload: Box<dyn Any + Send>) -> ! {
    match Current::get() {
        Some(current) if payload.is::<Cancelled>() => current.begin_cancel(),
        _ => begin_panic(),
    }
    resume_unwind(payload)
}

/// Unwinds because of a cancel.
pub fn resume_cancelled() -> ! {
    resume(Box::new(Cancelled))
}

/// Calls `f` within `std::panic::catch_unwind`, in a frame that is never merged with the one that
/// catches: see [`frames`].
#[inline]
pub(crate) fn catch_apart(f: &mut dyn FnMut()) -> std::thread::Result<()> {
    catch_unwind(AssertUnwindSafe(|| call_apart(f)))
}

#[inline(never)]
fn call_apart(f: &mut dyn FnMut()) {
    f();
}

/// Calls `f` within `std::panic::catch_unwind`, as code of the calling fiber.
pub fn catch<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_on(Current::get(), f)
}

/// [`catch`] for a caller that knows the calling fiber.
#[inline]
pub fn catch_on<R>(current: Option<Current>, f: impl FnOnce() -> R) -> std::thread::Result<R> {
    let (mut f, mut result) = (Some(f), None);
    catch_call(current, &mut || result = f.take().map(|f| f()))?;
    Ok(result.expect("the closure has returned"))
}

/// [`catch_on`] without its types.
#[inline]
pub fn catch_call(current: Option<Current>, f: &mut dyn FnMut()) -> std::thread::Result<()> {
    let before = current.map(|Current { fiber, .. }| (fiber, state_of(fiber)));
    let result = catch_apart(f);
    if result.is_err()
        && let Some((fiber, before)) = before
    {
        fiber.set_unwinding(before);
    }
    result
}
