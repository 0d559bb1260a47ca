//! Which fiber unwinds.
//!
//! std counts panics for each thread, and its count is no fiber's: while one fiber is suspended in a
//! destructor that its panic runs, `std::thread::panicking()` is true for every fiber of the worker.
//! So each fiber has a mark of its own (**I8**), and one for whether it is a cancel that unwinds it,
//! which poisons no lock. They are set
//!
//! - where the library itself unwinds a fiber, or hands a payload on ([`resume`]);
//! - by the panic hook, which runs first of all when a panic begins: ours marks the fiber, and calls
//!   the one before it;
//! - when the fiber suspends, to what is certain then (see `Worker::is_unwinding`);
//!
//! and put back where the library catches ([`catch`]). What is not seen: a payload that the program
//! itself hands to `resume_unwind`, or a panic that it catches by std's `catch_unwind`, *while another
//! fiber of the worker is suspended in a destructor*; the mark is what it was until the fiber next
//! suspends with nobody unwinding.

use super::cancelled::Cancelled;
use super::fiber::FiberRef;
use super::worker::{Here, Worker};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

/// Has panics mark their fiber from now on. A hook that the program sets later replaces ours, and
/// then a panic that begins while another fiber is suspended in a destructor is not seen.
pub(super) fn install_hook() {
    static ONCE: Once = Once::new();
    if std::thread::panicking() && !ONCE.is_completed() {
        // A `run` in a destructor: std lets no panicking thread change the hook. Where no other thread
        // can be had, a later `run` does it.
        let helper = std::thread::Builder::new().spawn(install_hook);
        helper.into_iter().for_each(|helper| drop(helper.join()));
        return;
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            mark(false);
            before(info);
        }));
    });
}

fn mark(by_cancel: bool) {
    if let Some((_, fiber)) = Worker::current() {
        fiber.set_unwinding(true);
        fiber.set_unwound_by_cancel(by_cancel);
    }
}

/// All that the calling fiber was doing has been unwound, and the panic caught.
pub(crate) fn has_ended() {
    if let Some((_, fiber)) = Worker::current() {
        fiber.set_unwinding(false);
    }
}

/// As `std::panic::resume_unwind`: no hook runs.
pub(crate) fn resume(payload: Box<dyn Any + Send>) -> ! {
    mark(payload.is::<Cancelled>());
    resume_unwind(payload)
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
    let before = current.map(|(worker, fiber)| (fiber, worker.is_unwinding(fiber)));
    let result = catch_unwind(AssertUnwindSafe(f));
    if result.is_err()
        && let Some((fiber, before)) = before
    {
        fiber.set_unwinding(before);
    }
    result
}
