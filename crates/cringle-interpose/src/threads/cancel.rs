//! Cancelling a thread that is a fiber, as libc cancels threads.
//!
//! A request is a bit of the thread's word. The thread acts on it at a *cancellation point*: before
//! the call does anything, or when the call's wait was ended by the cancel and it has done nothing.
//! It acts as by `pthread_exit(PTHREAD_CANCELED)`. A request to cancel asynchronously acts at the
//! next cancellation point, too: a fiber cannot be interrupted.
//!
//! A wait within a cancellation point ends by a cancel of the point's own
//! [region](cringle_core::region). The canceller sets the bit and sends the worker a message; the
//! fiber enters the region and then reads the bit. The worker reads the message while the fiber is
//! suspended: within the region, where the message ends the wait, or elsewhere, and then the fiber
//! finds the bit at its next point.
//!
//! # Signals
//!
//! A signal of another thread (`pthread_kill`) ends a wait in the same way. The fiber then becomes
//! a thread of the system, which sends itself the signal: its handler runs there, with the mask
//! that the thread has. The call fails with `EINTR`, or begins again, as on any thread.
//!
//! A point leaves the worker, for a thread of the fiber's own, only after its call.
//!
//! # Threads of their own
//!
//! A fiber on a thread of its own marks each cancellation point in its word, as libc's call waits
//! in the kernel there. The [monitor](super::super::monitor) interrupts it by its signal, again at
//! each look, until it has ended. The handler ends it if it is about to make the point's system
//! call, or if the signal has interrupted that; so there is no moment between the look at the word
//! and the wait in which a cancel is lost. An asynchronous cancel ends it wherever the program is.

use super::super::call::OnFiber;
use super::super::{next, own_threads, serve};
use super::exit::{self, CANCELED};
use super::registry::{self, On};
use super::{is_fibers, own, signals};
use cringle_core::interposition::is_on_own_thread;
use cringle_sys as sys;
use libc::pthread_t;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A cancel was requested.
const REQUESTED: u32 = 1;
/// `PTHREAD_CANCEL_DISABLE`.
const DISABLED: u32 = 2;
/// `PTHREAD_CANCEL_ASYNCHRONOUS`.
const ASYNCHRONOUS: u32 = 4;
/// Another thread has sent it a signal.
pub(super) const SIGNALLED: u32 = 16;
/// The thread ends: no cancel acts any more.
pub(super) const EXITING: u32 = 8;
/// It is in a cancellation point, on a thread of its own.
const IN_POINT: u32 = 32;
/// The point waits by a futex, and makes other system calls, too.
const BY_FUTEX: u32 = 64;

/// A thread of the system may be cancelled, or have signals.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// What a cancellation point returns if it has done nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A negative number.
    Negative,
    /// The number of an error, of a wait for a condition.
    Code,
    /// The number of an error, of a wait for a thread.
    Join,
    /// Nothing positive: it has waited.
    Wait,
    /// It does nothing but wait.
    Sleep,
}

const NEGATIVE: &[&str] = &[
    "__open64_2",
    "__open_2",
    "__openat64_2",
    "__openat_2",
    "__pread64_chk",
    "__pread_chk",
    "__read_chk",
    "__recv_chk",
    "__recvfrom_chk",
    "accept",
    "accept4",
    "close",
    "connect",
    "copy_file_range",
    "creat",
    "creat64",
    "fdatasync",
    "fsync",
    "open",
    "open64",
    "openat",
    "openat64",
    "pread",
    "pread64",
    "preadv",
    "preadv2",
    "preadv64",
    "preadv64v2",
    "pwrite",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "pwritev64",
    "pwritev64v2",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sem_clockwait",
    "sem_timedwait",
    "sem_wait",
    "send",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "splice",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "waitpid",
    "write",
    "writev",
];
const CODES: &[&str] = &[
    "cnd_timedwait",
    "cnd_wait",
    "pthread_cond_clockwait",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
];
const JOINS: &[&str] =
    &["pthread_clockjoin_np", "pthread_join", "pthread_timedjoin_np", "thrd_join"];
const WAITS: &[&str] = &[
    "__poll_chk",
    "__ppoll_chk",
    "epoll_pwait",
    "epoll_wait",
    "poll",
    "ppoll",
    "pselect",
    "select",
];
const SLEEPS: &[&str] = &["clock_nanosleep", "nanosleep", "sleep", "thrd_sleep", "usleep"];

/// Which cancellation point a function of libc is.
pub const fn point_of(name: &str) -> Option<Point> {
    match () {
        () if contains(NEGATIVE, name) => Some(Point::Negative),
        () if contains(CODES, name) => Some(Point::Code),
        () if contains(JOINS, name) => Some(Point::Join),
        () if contains(WAITS, name) => Some(Point::Wait),
        () if contains(SLEEPS, name) => Some(Point::Sleep),
        () => None,
    }
}

const fn contains(names: &[&str], name: &str) -> bool {
    let mut place = 0;
    while place < names.len() {
        if is_same(names[place].as_bytes(), name.as_bytes()) {
            return true;
        }
        place += 1;
    }
    false
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut place = 0;
    while place < a.len() && place < b.len() && a[place] == b[place] {
        place += 1;
    }
    place == a.len() && place == b.len()
}

/// The result of a function of libc.
pub trait Outcome: Copy {
    /// Its sign.
    fn sign(self) -> i32;

    /// The result of a call that a signal handler has interrupted.
    fn interrupted(point: Point) -> Self;
}

macro_rules! outcomes {
    ($($number:ty)*) => {$(
        impl Outcome for $number {
            #[inline(always)]
            fn sign(self) -> i32 {
                #[allow(unused_comparisons, reason = "of a number without a sign")]
                (i32::from(self > 0) - i32::from(self < 0))
            }

            fn interrupted(point: Point) -> Self {
                // A wait for a condition may end for no reason.
                if point == Point::Code {
                    return 0;
                }
                cringle_sys::set_errno(libc::EINTR);
                (0 as Self).wrapping_sub(1)
            }
        }
    )*};
}

outcomes!(i32 u32 i64 isize);

impl<T> Outcome for *mut T {
    fn sign(self) -> i32 {
        i32::from(!self.is_null())
    }

    fn interrupted(_: Point) -> Self {
        std::ptr::null_mut()
    }
}

impl Outcome for () {
    fn sign(self) -> i32 {
        0
    }

    fn interrupted(_: Point) -> Self {}
}

/// Makes a call of libc's on a fiber: by `call`, and by `plain` once the fiber has become a thread
/// of the system. At a cancellation point a thread that is cancelled ends instead, and one that has
/// got a signal becomes a thread of the system.
#[inline(always)]
pub fn at_point<R: Outcome>(
    point: Option<Point>,
    on: OnFiber,
    call: impl Fn(OnFiber) -> R,
    plain: impl FnOnce() -> R,
) -> R {
    on.enter_library();
    if on.is_programs && serve::is_served() && !on.current.fiber.spend_of_libc() {
        let_others_run(on);
    }
    let result = match (point, on.current.fiber.thread_word()) {
        (Some(point), Some(word)) if word.load(Ordering::SeqCst) & EXITING == 0 => {
            within(point, on, call, plain)
        }
        _ => {
            let result = call(on);
            if is_wished(on, point) { plain() } else { result }
        }
    };
    if result.sign() < 0 && [libc::EPIPE, libc::EFBIG].contains(&sys::errno()) {
        signals::raise_sent(on);
    }
    on.leave_library();
    result
}

/// A thread may wait for another one in a loop of any calls.
#[cold]
#[inline(never)]
fn let_others_run(on: OnFiber) {
    let errno = sys::errno();
    on.current.let_others_run();
    sys::set_errno(errno);
}

fn within<R: Outcome>(
    point: Point,
    on: OnFiber,
    call: impl Fn(OnFiber) -> R,
    plain: impl FnOnce() -> R,
) -> R {
    loop {
        end_if_cancelled(Some(on));
        if signals::are_pending(on) && signals::receive(on).is_some() {
            return own_point(point, plain);
        }
        let (result, was_ended) = on.current.in_point(|| call(on));
        if is_wished(on, Some(point)) {
            return plain();
        }
        let has_done_nothing = match point {
            Point::Negative => result.sign() < 0,
            Point::Code | Point::Join => result.sign() != 0,
            Point::Wait => result.sign() <= 0,
            Point::Sleep => true,
        };
        if !(was_ended && has_done_nothing) {
            return result;
        }
        end_if_cancelled(Some(on));
        if !signals::are_pending(on) {
            // A cancel that is disabled has ended the wait.
            continue;
        }
        return match signals::receive(on) {
            None => continue,
            Some(begins_again) => match point {
                Point::Negative if begins_again => own_point(point, plain),
                Point::Sleep | Point::Join => own_point(point, plain),
                _ => R::interrupted(point),
            },
        };
    }
}

/// Makes the fiber a thread of the system if the call has asked for that: a point cannot do so
/// itself, because its worker may be about to end its wait.
#[inline(always)]
fn is_wished(on: OnFiber, point: Option<Point>) -> bool {
    matches!(point, Some(Point::Wait | Point::Code)) && own_threads::take_if_wished(on)
}

/// Makes a call of libc's on a thread of the system. If that is a fiber's own, the call may be a
/// cancellation point.
#[inline(always)]
pub fn plain_point<R>(point: Option<Point>, call: impl FnOnce() -> R) -> R {
    match point {
        Some(point) if is_on_own_thread() => own_point(point, call),
        _ => call(),
    }
}

#[cold]
#[inline(never)]
fn own_point<R>(point: Point, call: impl FnOnce() -> R) -> R {
    end_if_cancelled(None);
    let bits = match point {
        Point::Code | Point::Join => IN_POINT | BY_FUTEX,
        _ => IN_POINT,
    };
    // A handler may have interrupted another point.
    let before = with_word(None, |word| word.fetch_or(bits, Ordering::SeqCst)).unwrap_or(bits);
    let result = call();
    with_word(None, |word| word.fetch_and(!bits | before, Ordering::SeqCst));
    result
}

/// Sends the monitor's signal, by `interrupt`, to the fibers on threads of their own that are
/// cancelled and wait in a cancellation point, and to the guests that were sent signals.
pub(crate) fn interrupt_waiting(interrupt: impl Fn(c_int)) {
    if !IS_WANTED.swap(false, Ordering::SeqCst) {
        return;
    }
    registry::for_each(|thread| {
        let state = thread.lock();
        let bits = thread.cancellation.load(Ordering::SeqCst);
        let has_signals = state.on == On::Guest && bits & SIGNALLED != 0;
        let is_cancelled = state.on != On::Worker && is_cancelled(bits);
        if has_signals || is_cancelled {
            want();
        }
        if has_signals || (is_cancelled && bits & (IN_POINT | ASYNCHRONOUS) != 0) {
            interrupt(state.worker);
        }
    });
}

/// Has the monitor call [`interrupt_waiting`].
pub(super) fn want() {
    IS_WANTED.store(true, Ordering::SeqCst);
}

/// Ends the calling fiber, which the monitor's signal has interrupted on a thread of its own, if it
/// is cancelled there. `system_call` has the second argument of the call that it is in.
pub(crate) fn end_interrupted(system_call: Option<usize>) {
    let waits = |second: usize| second as c_int & libc::FUTEX_CMD_MASK == libc::FUTEX_WAIT_BITSET;
    let bits = with_word(None, |word| word.load(Ordering::SeqCst)).unwrap_or(0);
    let is_in_point = system_call
        .is_some_and(|second| bits & IN_POINT != 0 && (bits & BY_FUTEX == 0 || waits(second)));
    if is_in_point || bits & ASYNCHRONOUS != 0 {
        end_if_cancelled(None);
    }
}

/// Calls `f` with the word of the calling thread, if it is a fiber.
fn with_word<R>(on: Option<OnFiber>, f: impl FnOnce(&AtomicU32) -> R) -> Option<R> {
    match on {
        Some(on) => on.current.fiber.thread_word().map(f),
        None if is_on_own_thread() => registry::with_own(|thread| f(&thread.cancellation)),
        None => None,
    }
}

fn is_cancelled(bits: u32) -> bool {
    bits & (REQUESTED | DISABLED | EXITING) == REQUESTED
}

/// Ends the calling thread if it is cancelled. The frames have nothing to drop.
fn end_if_cancelled(on: Option<OnFiber>) {
    if with_word(on, |word| is_cancelled(word.load(Ordering::SeqCst))) == Some(true) {
        exit::note_value(on, CANCELED);
        // SAFETY: I14. The thread is a fiber with a place of its own.
        unsafe { next::pthread_exit(std::ptr::without_provenance_mut(CANCELED)) };
    }
}

fn end_if_cancelled_at_once(on: Option<OnFiber>) {
    if with_word(on, |word| word.load(Ordering::SeqCst) & ASYNCHRONOUS) > Some(0) {
        end_if_cancelled(on);
    }
}

calls! {
    Option<OnFiber>:
    fn pthread_cancel(thread: pthread_t) -> c_int, next if !is_fibers(thread);
    |on| cancel(on, thread);

    fn pthread_testcancel() -> ();
    |on| match with_word(on, |_| ()) {
        Some(()) => end_if_cancelled(on),
        None => next::pthread_testcancel(),
    };

    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    |on| match set(on, DISABLED, state, before) {
        Some(code) => code,
        None => next::pthread_setcancelstate(state, before),
    };

    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    |on| match set(on, ASYNCHRONOUS, kind, before) {
        Some(code) => code,
        None => next::pthread_setcanceltype(kind, before),
    };
}

fn cancel(on: Option<OnFiber>, handle: pthread_t) -> c_int {
    // A fiber that is no thread has no start routine to unwind to.
    if !request(handle) {
        return libc::ENOTSUP;
    }
    if handle == own() {
        end_if_cancelled_at_once(on);
    }
    0
}

/// Requests the end of a thread, and ends its wait in a cancellation point. False if it is none.
fn request(handle: pthread_t) -> bool {
    let Some(thread) = registry::find(handle) else { return false };
    let state = thread.lock();
    thread.cancellation.fetch_or(REQUESTED, Ordering::SeqCst);
    if state.on != On::Worker {
        want();
        return true;
    }
    // A thread that has not begun finds the request when it does.
    let address = state.address.clone();
    drop(state);
    if let Some(address) = address {
        address.cancel_point();
    }
    true
}

/// # Safety
///
/// `before` is null, or can be written. `None` if the caller is no fiber.
unsafe fn set(on: Option<OnFiber>, bit: u32, value: c_int, before: *mut c_int) -> Option<c_int> {
    let bits = with_word(on, |word| match value {
        0 => Some(word.fetch_and(!bit, Ordering::SeqCst)),
        1 => Some(word.fetch_or(bit, Ordering::SeqCst)),
        _ => None,
    })?;
    let Some(bits) = bits else { return Some(libc::EINVAL) };
    if !before.is_null() {
        // SAFETY: by the contract.
        unsafe { *before = c_int::from(bits & bit != 0) };
    }
    end_if_cancelled_at_once(on);
    Some(0)
}
