//! Threads that are fibers, for what only a thread of the system can do: such a fiber continues on
//! a thread of its own, in a program that is [served](super::serve).
//!
//! A call that needs one takes it, and the fiber keeps it until it ends. The
//! [monitor](super::monitor) takes one for a fiber that holds its worker up. That fiber comes back
//! with an interposed call, after a while that doubles each time: a thread that always computes, or
//! always waits in calls that are not interposed, is soon a thread of the system for good.

use super::call::OnFiber;
use super::notes::{self, Reason};
use super::threads;
use super::{next, serve};
use cringle_core::interposition::{Host, end_thread_first, is_on_own_thread, return_to_worker};
use cringle_core::worker::Current;
use std::cell::Cell;

/// How long a fiber stays away at first, and at most, in nanoseconds.
const SHORTEST_STAY: u64 = 10_000_000;
const LONGEST_STAY: u64 = 10_000_000_000;

thread_local! {
    /// When the fiber may come back; `None`: it does not.
    static UNTIL: Cell<Option<u64>> = const { Cell::new(None) };
    /// How long the fiber was away last, and when it came back.
    static LAST_STAY: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
    /// Why the fiber is to become a thread of the system, after the cancellation point that it is
    /// in.
    static WISH: Cell<Option<Reason>> = const { Cell::new(None) };
}

/// Asks for a thread for the calling fiber, which is in a cancellation point. That [takes](take)
/// the thread and makes the plain call; if it cannot, the caller's own result is the call's.
pub(super) fn wish(reason: Reason) {
    WISH.set(Some(reason));
}

/// Whether a thread was asked for and could be taken.
pub(super) fn take_if_wished(on: OnFiber) -> bool {
    WISH.take().is_some_and(|reason| take(Some(on), reason))
}

/// Makes the calling fiber a thread of the system until it ends, and notes the reason. Returns
/// whether it is on a thread of its own, which it may have had before.
pub(super) fn take(on: Option<OnFiber>, reason: Reason) -> bool {
    let is_new = match on {
        Some(on) => {
            let may_leave = serve::is_served() && on.current.may_have_thread();
            if !may_leave || threads::mask_of_fiber().is_none() {
                return false;
            }
            let Ok(host) = Host::start() else { return false };
            on.current.continue_on(host);
            true
        }
        None => is_guest(),
    };
    if is_new {
        UNTIL.set(None);
        notes::note_caller(reason);
        threads::set_mask(threads::begin_own());
    }
    let is_own = is_new || is_on_own_thread();
    if is_own && matches!(reason, Reason::Mutex | Reason::ThreadState) {
        end_thread_first();
    }
    is_own
}

/// Makes the calling fiber a thread of the system for a while.
pub(super) fn take_for_a_while(current: Current, host: Host) {
    current.continue_on(host);
    threads::begin_guest();
    let now = now();
    let stay = match LAST_STAY.get() {
        // It has soon held its worker up again.
        Some((stay, back)) if now.saturating_sub(back) < 8 * stay => (2 * stay).min(LONGEST_STAY),
        _ => SHORTEST_STAY,
    };
    LAST_STAY.set(Some((stay, now)));
    UNTIL.set(Some(now + stay));
}

/// Whether the caller is a fiber on a thread of its own for a while. Signals are blocked there.
pub(super) fn is_guest() -> bool {
    is_on_own_thread() && UNTIL.get().is_some()
}

/// In the handler of the monitor's signal: see [`threads::receive_interrupted`].
pub(super) fn receive_interrupted() -> Option<(u64, bool)> {
    let received = is_guest().then(threads::receive_interrupted)?;
    if received.is_some() {
        UNTIL.set(None);
    }
    received
}

/// Returns to the worker, if the caller is a fiber on a thread of its own that may return.
#[inline(always)]
pub(super) fn come_back() -> Option<OnFiber> {
    if is_on_own_thread() { come_back_if_due() } else { None }
}

#[cold]
#[inline(never)]
fn come_back_if_due() -> Option<OnFiber> {
    let until = UNTIL.get()?;
    if threads::have_signals() {
        take(None, Reason::Signal);
        return None;
    }
    if now() < until {
        return None;
    }
    end();
    Current::get().map(|current| OnFiber { current, is_programs: true })
}

/// In a child of `fork`: the thread is the process's.
pub(super) fn forget() {
    cringle_core::interposition::forget_own_thread();
}

/// Returns to the worker in any case, before the thread ends.
pub(super) fn end() {
    if is_on_own_thread() {
        let stay = LAST_STAY.get().map_or(SHORTEST_STAY, |(stay, _)| stay);
        threads::end_own();
        return_to_worker();
        let is_in_program = Current::get().is_some_and(|current| current.fiber.is_in_program());
        debug_assert!(!is_in_program, "the monitor's signal finds it in the library");
        LAST_STAY.set(Some((stay, now())));
        threads::note_worker();
        // It opens a file, and a call on the own thread would come back a second time.
        notes::note_interrupted();
    }
}

/// The time in nanoseconds, by a call that is not interposed.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is borrowed for the call.
    unsafe { next::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
