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
//! A fiber on a thread of its own is not cancelled until it is back, and a wait for signals, for
//! which it may leave its worker, is no cancellation point. Other points leave it only afterwards.

use super::super::call::OnFiber;
use super::super::{next, own_threads, serve};
use super::exit::{self, CANCELED};
use super::{is_fibers, own, registry, signals};
use cringle_sys as sys;
use libc::pthread_t;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

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
    let is_programs = on.enter_library();
    if is_programs && serve::is_served() && !on.current.fiber.spend() {
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
    on.leave_library(is_programs);
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
        end_if_cancelled(on);
        if signals::are_pending(on) && signals::receive(on).is_some() {
            return plain();
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
        end_if_cancelled(on);
        if !signals::are_pending(on) {
            // A cancel that is disabled has ended the wait.
            continue;
        }
        return match signals::receive(on) {
            None => continue,
            Some(begins_again) => match point {
                Point::Negative if begins_again => plain(),
                Point::Sleep | Point::Join => plain(),
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

/// The word of the calling thread, if it is a fiber.
fn word(on: &Option<OnFiber>) -> Option<&AtomicU32> {
    on.as_ref().and_then(|on| on.current.fiber.thread_word())
}

/// Ends the calling thread if it is cancelled. The frames have nothing to drop.
fn end_if_cancelled(on: OnFiber) {
    let bits = word(&Some(on)).map_or(0, |word| word.load(Ordering::SeqCst));
    if bits & (REQUESTED | DISABLED | EXITING) == REQUESTED {
        exit::note_value(on, CANCELED);
        // SAFETY: I14. The thread is a fiber with a place of its own.
        unsafe { next::pthread_exit(std::ptr::without_provenance_mut(CANCELED)) };
    }
}

fn end_if_cancelled_at_once(on: OnFiber) {
    if word(&Some(on)).is_some_and(|word| word.load(Ordering::SeqCst) & ASYNCHRONOUS != 0) {
        end_if_cancelled(on);
    }
}

calls! {
    Option<OnFiber>:
    fn pthread_cancel(thread: pthread_t) -> c_int, next if !is_fibers(thread);
    |on| cancel(on, thread);

    fn pthread_testcancel() -> ();
    |on: Option<OnFiber>| match on {
        Some(on) if word(&Some(on)).is_some() => end_if_cancelled(on),
        _ => next::pthread_testcancel(),
    };

    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    |on: Option<OnFiber>| match on {
        Some(on) if word(&Some(on)).is_some() => set(on, DISABLED, state, before),
        _ => next::pthread_setcancelstate(state, before),
    };

    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    |on: Option<OnFiber>| match on {
        Some(on) if word(&Some(on)).is_some() => set(on, ASYNCHRONOUS, kind, before),
        _ => next::pthread_setcanceltype(kind, before),
    };
}

fn cancel(on: Option<OnFiber>, handle: pthread_t) -> c_int {
    // A fiber that is no thread has no start routine to unwind to.
    if !request(handle) {
        return libc::ENOTSUP;
    }
    if let Some(on) = on.filter(|_| handle == own()) {
        end_if_cancelled_at_once(on);
    }
    0
}

/// Requests the end of a thread, and ends its wait in a cancellation point. False if it is none.
fn request(handle: pthread_t) -> bool {
    let Some(thread) = registry::find(handle) else { return false };
    thread.cancellation.fetch_or(REQUESTED, Ordering::SeqCst);
    // A thread that has not begun finds the request when it does.
    let address = thread.lock().address.clone();
    if let Some(address) = address {
        address.cancel_point();
    }
    true
}

/// # Safety
///
/// `before` is null, or can be written.
unsafe fn set(on: OnFiber, bit: u32, value: c_int, before: *mut c_int) -> c_int {
    let Some(word) = on.current.fiber.thread_word() else { return libc::EINVAL };
    let bits = match value {
        0 => word.fetch_and(!bit, Ordering::SeqCst),
        1 => word.fetch_or(bit, Ordering::SeqCst),
        _ => return libc::EINVAL,
    };
    if !before.is_null() {
        // SAFETY: by the contract.
        unsafe { *before = c_int::from(bits & bit != 0) };
    }
    end_if_cancelled_at_once(on);
    0
}
