//! One interposed call on a fiber, from its entry to its result.
//!
//! Everything that such a call does on a fiber runs within [`OnFiber::call`], which
//!
//! - marks the fiber. While the mark is set, a nested libc call is the plain one, and a refusal of
//!   a cancelled fiber is only counted. Nothing unwinds: there is C code below, which no panic may
//!   leave (**I12**);
//! - sets `errno` last, and only if the call has failed;
//! - is the one place where the wait of an interposed call begins and ends: no fiber of the same
//!   family runs until then.
//!
//! In between, a result is a count, or `-errno`. A cancel is `-ECANCELED`, and a deadline is
//! `-ETIMEDOUT`; neither is `-EINTR`, which C code retries.
//!
//! # Timed waits
//!
//! A wait with a time of its own has a result for its end: a cancel ends it at once, as timed out.
//! The fiber's clock agrees where the caller goes by it (`fiber/cancels/late_clock.rs` of
//! `cringle-core`). A caller that waits again for ever spins; after [`MOST_ENDED`] refused calls
//! its timed waits last for their whole time.

use super::own_threads;
use super::serve;
use super::sockets::is_nonblocking;
use cringle_core::cancelled::{self, Reason};
use cringle_core::interposition::Review;
use cringle_core::lent_frame::LentFrame;
use cringle_core::worker::Current;
use cringle_driver::pool::Job;
use cringle_driver::{Op, OpSlot};
use cringle_std::fiber::protect;
use cringle_std::internal::{
    Backoff, call_detached, outcome, perform, perform_within, sleep_till_cancellable,
    unblock_or_here, was_dropped,
};
use cringle_sys::{self as sys, raw};
use libc::pollfd;
use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::os::fd::RawFd;
use std::time::Instant;

/// The refused calls after which timed waits of a cancelled fiber last for their whole time.
const MOST_ENDED: u32 = 1000;

pub(super) const WOULD_WAIT: isize = -(libc::EAGAIN as isize);
pub(super) const BROKEN_PIPE: isize = -(libc::EPIPE as isize);
pub(super) const TIMED_OUT: isize = -(libc::ETIMEDOUT as isize);

/// The proof that a fiber makes an interposed call.
#[derive(Clone, Copy)]
pub struct OnFiber {
    pub(super) current: Current,
    /// Whether the program's code makes the call, and not the library's.
    pub(super) is_programs: bool,
}

/// Returns the fiber that makes an interposed call. `None` where the next definition is right:
/// outside of a fiber, in the scheduler, beside a fiber, and within an interposed call.
#[inline(always)]
pub fn on_fiber() -> Option<OnFiber> {
    let Some(current) = Current::get() else { return own_threads::come_back() };
    let is_programs = current.fiber.is_in_program();
    (!current.fiber.is_in_libc_call()).then_some(OnFiber { current, is_programs })
}

impl OnFiber {
    /// The fiber is in the library's code: it stays on its worker, unless it leaves by itself.
    #[inline(always)]
    pub fn enter_library(self) {
        self.current.fiber.set_in_program(false);
    }

    /// The fiber goes back to the program's code, if that has made the call.
    #[inline(always)]
    pub fn leave_library(self) {
        self.current.fiber.set_in_program(self.is_programs);
    }

    /// Performs the call, and returns its result as libc does: −1 with `errno` for an error. The
    /// body may return an error either way, as `Err` or as a negative result.
    #[inline(always)]
    pub(super) fn call(self, body: impl FnOnce(Call) -> Result<isize, isize>) -> isize {
        let errno = sys::errno();
        let result = either(self.run(body));
        if result < 0 {
            sys::set_errno(-result as i32);
            return -1;
        }
        sys::set_errno(errno);
        result
    }

    /// [`call`](Self::call) for an `int`.
    #[inline(always)]
    pub(super) fn call_int(self, body: impl FnOnce(Call) -> Result<isize, isize>) -> c_int {
        self.call(body) as c_int
    }

    /// Performs the call, and returns its error as libc's `pthread_…` functions do: as a positive
    /// number, with `errno` left alone.
    pub(super) fn call_for_code(self, body: impl FnOnce(Call) -> Result<isize, isize>) -> c_int {
        let errno = sys::errno();
        let result = either(self.run(body));
        sys::set_errno(errno);
        -result.min(0) as c_int
    }

    /// Calls a function of libc on a thread of the growing pool, where it may block, with the
    /// caller's `errno`. A cancel does not interrupt it.
    pub(super) fn on_thread<T: Send>(self, f: impl FnOnce() -> T + Send) -> T {
        let errno = sys::errno();
        let call = || {
            sys::set_errno(errno);
            (f(), sys::errno())
        };
        let (result, errno) = self.run(|call_here| call_here.on_thread(call));
        sys::set_errno(errno);
        result
    }

    /// Like [`on_thread`](Self::on_thread), for a call that uses nothing of its caller. A cancel
    /// ends the wait, and not the call: the value is dropped when the call has ended, and the error
    /// is `-errno`.
    pub(super) fn on_thread_detached<T: Send + 'static>(
        self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, isize> {
        let errno = sys::errno();
        let call = move || {
            sys::set_errno(errno);
            (f(), sys::errno())
        };
        let result = self.run(|call_here| call_here.on_thread_detached(call));
        let errno = result.as_ref().map_or_else(|code| -*code as i32, |(_, errno)| *errno);
        sys::set_errno(errno);
        result.map(|(value, _)| value)
    }

    /// The wait of an interposed call is in here, and nowhere else.
    #[inline(always)]
    fn run<R>(self, body: impl FnOnce(Call) -> R) -> R {
        let lent = LentFrame::begin();
        let _held = self.current.hold_family();
        self.current.fiber.set_in_libc_call(true);
        let result = body(Call { current: self.current });
        self.current.fiber.set_in_libc_call(false);
        lent.end();
        result
    }
}

/// Returns a result, or its error, as the result of a call.
pub(super) fn either(result: Result<isize, isize>) -> isize {
    result.unwrap_or_else(|code| code)
}

/// The result of a call that has transferred this number of bytes or messages before it got a code.
pub(super) fn or_done(done: usize, code: isize) -> isize {
    if done > 0 { done as isize } else { code }
}

/// An interposed call in progress.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) current: Current,
}

impl Call {
    /// Refuses the call if the fiber is cancelled.
    #[inline]
    pub(super) fn admit(self) -> Result<(), isize> {
        if self.current.refuses() { Err(self.cancel_code()) } else { Ok(()) }
    }

    #[cold]
    fn cancel_code(self) -> isize {
        match self.current.fiber.cause() {
            Some(Reason::Elapsed(_)) => TIMED_OUT,
            _ => -(libc::ECANCELED as isize),
        }
    }

    /// The `-errno` of an error.
    #[cold]
    pub(super) fn code(self, error: &io::Error) -> isize {
        match (cancelled::reason_of(error), error.raw_os_error()) {
            (Some(_), _) => self.cancel_code(),
            (None, Some(errno)) => -(errno as isize),
            (None, None) => -(libc::EIO as isize),
        }
    }

    /// Takes one attempt that does not wait from the fiber's budget; when it is spent, the other
    /// fibers run first. False in a simulation, which performs each call itself.
    ///
    /// A signal handler may have interrupted the library on this fiber. Then its driver is in use,
    /// and the fiber must not be suspended.
    #[inline]
    pub(super) fn may_attempt(self) -> bool {
        self.may_attempt_and(Current::spend_with_peer, || true)
    }

    /// [`may_attempt`](Self::may_attempt) for a message. The fiber is not suspended if the
    /// descriptor does not block: a signal handler that writes may have interrupted it anywhere, as
    /// in an allocator that holds its lock.
    #[inline]
    pub(super) fn may_attempt_send(self, fd: RawFd) -> bool {
        self.may_attempt_and(Current::spend_with_peer, || !is_nonblocking(fd))
    }

    /// The same for a `read` or a `write`, of a file as a rule.
    #[inline]
    pub(super) fn may_attempt_transfer(self, fd: RawFd, write: bool) -> bool {
        self.may_attempt_and(|it| it.fiber.spend_inline(), || !(write && is_nonblocking(fd)))
    }

    /// `may_suspend` is asked once the budget is spent.
    #[inline]
    fn may_attempt_and(self, spend: fn(Current) -> bool, may_suspend: impl Fn() -> bool) -> bool {
        match self.current.worker.driver().try_borrow_mut() {
            Ok(driver) if driver.may_bypass() => {}
            Ok(_) => return false,
            Err(_) => return true,
        }
        if !spend(self.current) && may_suspend() {
            self.current.refresh_budget();
        }
        true
    }

    /// Counts a call that never waits. In a served program such calls let other fibers run, as
    /// threads do anywhere; elsewhere only a loop of failures does: the caller may be a signal
    /// handler, or hold a lock. Returns the result.
    pub(super) fn at_once(self, result: isize) -> isize {
        let is_done = result != WOULD_WAIT;
        if !(is_done && serve::is_served()) {
            self.current.tried(is_done);
        } else if !self.current.spend_with_peer() {
            self.current.refresh_budget();
        }
        result
    }

    /// Whether an address is in the stack of the fiber, where it can be read and written.
    pub(super) fn owns(self, address: *const c_void) -> bool {
        let (stack, bytes) = self.current.fiber.stack_area();
        (stack..stack + bytes).contains(&address.addr())
    }

    /// Whether a file that waits only for storage is used by the plain call: the fiber unwinds
    /// (**I8**), or no other fiber could run meanwhile.
    #[inline]
    pub(super) fn is_plain(self) -> bool {
        let current = self.current;
        current.worker.may_bypass() && (current.is_unwinding() || current.is_solitary())
    }

    /// Performs an op. The fiber waits.
    #[inline]
    pub(super) fn perform(self, op: Op) -> isize {
        loop {
            match perform(self.current, op) {
                Ok(count) => return count as isize,
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) => return self.code(&e),
            }
        }
    }

    /// Performs an op that waits for a peer, until a deadline if there is one. `None` if it has
    /// passed.
    #[inline]
    pub(super) fn perform_until(self, op: Op, deadline: Option<Instant>) -> Option<isize> {
        let Some(deadline) = deadline else { return Some(self.perform(op)) };
        loop {
            let limit = deadline.saturating_duration_since(self.now());
            match perform_within(self.current, op, limit) {
                Ok(count) => return Some(count? as isize),
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) => return Some(self.code(&e)),
            }
        }
    }

    /// [`perform_until`](Self::perform_until), with a deadline that is looked up only if the op has
    /// not ended at a time before. `look_up` only makes system calls.
    #[inline]
    pub(super) fn perform_reviewed(
        self,
        op: Op,
        at: Instant,
        look_up: &dyn Fn() -> Option<Instant>,
    ) -> Option<isize> {
        let perform = || {
            let current = self.current;
            current.admit()?;
            let review = Review::new(look_up);
            loop {
                let result = current.perform_one_reviewed(op, at, &review);
                if !was_dropped(current, result) {
                    return outcome(current, result).map(Some);
                }
                if review.deadline().is_some_and(|at| self.now() >= at) {
                    return Ok(None);
                }
                current.yield_now();
            }
        };
        loop {
            match perform() {
                Ok(count) => return Some(count? as isize),
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) => return Some(self.code(&e)),
            }
        }
    }

    /// Waits until a descriptor has one of these events of `poll(2)`, or a hang-up or an error; or
    /// until the deadline, and then returns false. If true, an attempt finds out.
    pub(super) fn ready(
        self,
        fd: RawFd,
        events: i16,
        deadline: Option<Instant>,
    ) -> Result<bool, isize> {
        if deadline.is_some_and(|at| at <= self.now()) {
            return Ok(false);
        }
        match self.perform_until(Op::Poll { fd, events: events as u16 as u32 }, deadline) {
            Some(code @ ..=-1) => Err(code),
            result => Ok(result.is_some()),
        }
    }

    /// [`ready`](Self::ready) for any of several descriptors with their events. It also returns
    /// false if the driver has no room, after other fibers have run.
    pub(super) fn any_ready(self, of: &[pollfd], deadline: Option<Instant>) -> Result<bool, isize> {
        if deadline.is_some_and(|at| at <= self.now()) {
            return Ok(false);
        }
        self.admit()?;
        let poll = |&pollfd { fd, events, .. }: &pollfd| {
            OpSlot::new(Op::Poll { fd, events: u32::from(events.cast_unsigned()) })
        };
        let slots: Vec<OpSlot> = of.iter().map(poll).collect();
        self.current.perform_until_first(&slots, deadline);
        let mut results = slots.iter().map(|slot| slot.completion.result() as isize);
        match results.find(|&result| result != -(libc::ECANCELED as isize)) {
            Some(code @ ..=-1) => Err(code),
            Some(_) => Ok(true),
            None => {
                self.admit()?;
                self.current.yield_now();
                Ok(false)
            }
        }
    }

    /// Sleeps until the deadline, for ever if there is none. False if the fiber is cancelled.
    pub(super) fn sleep_until(self, deadline: Option<Instant>) -> bool {
        sleep_till_cancellable(deadline).is_ok()
    }

    /// Whether a cancel ends the timed waits of the fiber.
    pub(super) fn ends_timed_waits(self) -> bool {
        self.current.fiber.refusals() <= MOST_ENDED
    }

    /// Whether the fiber's timed waits end now.
    pub(super) fn is_late(self) -> bool {
        self.current.is_interrupted() && self.ends_timed_waits()
    }

    /// Whether a wait until this time is over: the time has passed, or a cancel ends the wait.
    pub(super) fn is_over(self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|at| self.is_late() || at <= self.now())
    }

    /// Returns the result of a timed wait that is over. If a cancel has ended it, it counts as a
    /// refused call.
    pub(super) fn timed_out(self, deadline: Option<Instant>) -> isize {
        if self.is_late() && self.current.refuses() {
            self.pass_until(deadline);
        }
        TIMED_OUT
    }

    /// Notes that a cancel has ended a wait until this time.
    pub(super) fn pass_until(self, deadline: Option<Instant>) {
        let now = self.now();
        if let Some(end) = deadline.filter(|&at| at > now) {
            self.current.fiber.end_timed_wait(now, end);
        }
    }

    /// Whether a result means a cancel.
    pub(super) fn is_refusal(self, result: isize) -> bool {
        const CANCELED: isize = -(libc::ECANCELED as isize);
        matches!(result, CANCELED | TIMED_OUT) && self.current.is_interrupted()
    }

    /// Calls `f` so that no cancel reaches it.
    pub(super) fn shielded<T>(self, f: impl FnOnce() -> T) -> T {
        protect(f)
    }

    /// Repeats an attempt with growing pauses while it returns `None`.
    pub(super) fn poll(self, mut attempt: impl FnMut() -> Option<isize>) -> Result<isize, isize> {
        let mut backoff = Backoff::default();
        loop {
            if let Some(result) = attempt() {
                return Ok(result);
            }
            self.pause(&mut backoff)?;
        }
    }

    /// [`poll`](Self::poll) for waits that only the attempt ends: see [`is_over`](Self::is_over).
    pub(super) fn poll_to_the_end(self, mut attempt: impl FnMut() -> Option<isize>) -> isize {
        let mut backoff = Backoff::default();
        loop {
            if let Some(result) = attempt() {
                return result;
            }
            // No pause is long.
            let paused = self.shielded(|| self.pause(&mut backoff));
            debug_assert_eq!(paused, Ok(()), "no cancel reaches it");
        }
    }

    /// Pauses after an attempt without a result. The pauses grow.
    pub(super) fn pause(self, backoff: &mut Backoff) -> Result<(), isize> {
        backoff.pause(self.current).map_err(|e| self.code(&e))
    }

    /// Calls `f` on a thread of the growing pool, where it may block. A cancel does not interrupt
    /// it.
    pub(super) fn on_thread<T: Send>(self, f: impl FnOnce() -> T + Send) -> T {
        unblock_or_here(f)
    }

    /// The same for a call that uses nothing of its caller. The error means a cancel.
    fn on_thread_detached<T: Send + 'static>(
        self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, isize> {
        self.admit()?;
        let here = |_, job: Job| {
            job();
            Ok(())
        };
        call_detached(self.current, f, here).map_err(|e| self.code(&e))
    }

    /// Makes a system call on a thread of the growing pool.
    ///
    /// # Safety
    ///
    /// The arguments come from the interposed call.
    pub(super) unsafe fn system_call_on_thread<const N: usize>(
        self,
        number: c_long,
        arguments: [usize; N],
    ) -> isize {
        // SAFETY: by the contract; the caller's memory is lent until this returns.
        self.on_thread(move || unsafe { raw::call(number, arguments) })
    }

    pub(super) fn now(self) -> Instant {
        self.current.worker.now()
    }
}
