//! One call, such as a sync of a file, that serves all callers waiting for it.
//!
//! One caller, the *leader*, makes the call. A caller that asks while the call is made waits,
//! because the call may have begun too early for it. When the call ends, one of the waiting callers
//! is the next leader, and its call covers all of them: it begins after each of them has asked.
//!
//! ```text
//! next  ──begin──▶  covered  ──end──▶  granted, with the result
//!   └── the first waiter is granted the lead when a call ends
//! ```
//!
//! A leader that is cancelled hands the lead to one of the waiters that its call would have
//! covered. A failure that lasts is the result of every later call, too.

use super::caller::{Caller, WaitError, WaitOptions};
use super::wait_queue::{Dequeued, Queue, ShortGuard, ShortLock, Waiter, WakeList};
use cringle_core::fiber::Wait;
use cringle_core::wait_target::Target;
use std::cell::Cell;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// See the module.
pub struct SharedRun(ShortLock<State>);

/// A panic of a leader hands the lead on, as a cancel does.
impl UnwindSafe for SharedRun {}
impl RefUnwindSafe for SharedRun {}

default_by_new!(SharedRun);

struct State {
    is_led: bool,
    /// The callers that the current call covers, beside its leader.
    covered: Queue,
    covered_need_all: bool,
    /// The callers that have asked since that call began.
    next: Queue,
    next_need_all: bool,
    /// The number of times that `next` has become `covered`.
    round: u64,
    /// The errno of a failure that lasts.
    failure: Option<i32>,
}

/// How a leader's call has ended.
pub enum RunEnd {
    /// With success.
    Done,
    /// By this errno.
    Failed {
        /// The kernel's error.
        errno: i32,
        /// Whether every later call fails, too.
        lasts: bool,
    },
    /// The leader was cancelled. Its call may have done nothing.
    GivenUp(io::Error),
}

/// The outcome for a waiter. It lies in the waiter's frame.
#[derive(Clone, Copy)]
enum Verdict {
    /// It makes the next call.
    Leads,
    /// It makes a call of its own: code beside a fiber, whose worker would wait for the leader.
    Apart,
    Done,
    Failed(i32),
    /// An earlier call has failed by this errno.
    FailedBefore(i32),
}

impl SharedRun {
    /// A queue without callers.
    pub fn new() -> SharedRun {
        SharedRun(ShortLock::new(State {
            is_led: false,
            covered: Queue::new(),
            covered_need_all: false,
            next: Queue::new(),
            next_need_all: false,
            round: 0,
            failure: None,
        }))
    }

    /// Returns the result of a call that has begun after this one. If this caller leads, `make`
    /// makes the call; its argument says whether a covered caller `needs_all` of it.
    /// `failed_before` describes an earlier failure that lasts.
    pub(crate) fn run(
        &self,
        needs_all: bool,
        make: impl FnOnce(bool) -> RunEnd,
        failed_before: impl Fn(i32) -> io::Error,
    ) -> io::Result<()> {
        self.run_prepared(needs_all, || Ok(()), make, failed_before)
    }

    /// As `run`, but a leader calls `prepare` first. Its call covers the callers that ask
    /// meanwhile, too. If `prepare` fails, the leader gives up.
    pub fn run_prepared(
        &self,
        needs_all: bool,
        prepare: impl FnOnce() -> io::Result<()>,
        make: impl FnOnce(bool) -> RunEnd,
        failed_before: impl Fn(i32) -> io::Error,
    ) -> io::Result<()> {
        let verdict = match self.join(needs_all)? {
            Verdict::Leads => {
                let lead = Lead(self);
                prepare()?;
                match make(lead.begin(needs_all)) {
                    RunEnd::GivenUp(error) => return Err(error),
                    end => lead.end(end),
                }
            }
            Verdict::Apart => match make(needs_all) {
                RunEnd::GivenUp(error) => return Err(error),
                end => self.0.lock().note(&end),
            },
            told => told,
        };
        match verdict {
            Verdict::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
            Verdict::FailedBefore(errno) => Err(failed_before(errno)),
            Verdict::Done | Verdict::Leads | Verdict::Apart => Ok(()),
        }
    }

    /// Notes a failure that lasts, which another call has found.
    pub(crate) fn fail(&self, errno: i32) {
        self.0.lock().failure.get_or_insert(errno);
    }

    /// Takes the lead, or waits until it has it, or until another call has ended.
    fn join(&self, needs_all: bool) -> io::Result<Verdict> {
        let caller = Caller::current();
        caller.spend();
        let options = WaitOptions::fallible(Wait::Sync);
        if let Some(error) = options.refusal(caller) {
            return Err(error.into_io_error());
        }
        let verdict = Cell::new(Verdict::Leads);
        let waiter = Waiter::new(caller, 1, (&raw const verdict).cast_mut().cast());
        let round = {
            let mut state = self.0.lock();
            if let Some(errno) = state.failure {
                return Ok(Verdict::FailedBefore(errno));
            }
            if caller.is_beside_a_fiber() {
                return Ok(Verdict::Apart);
            }
            if !state.is_led {
                state.is_led = true;
                return Ok(Verdict::Leads);
            }
            state.next_need_all |= needs_all;
            // SAFETY: I2, I10. This frame stays until the wait below has ended, and by then the
            // waiter has left the queue.
            unsafe { state.next.push(&waiter) };
            state.round + 1
        };
        let withdraw = || {
            let mut state = self.0.lock();
            if state.round < round {
                state.next.remove(&waiter)
            } else {
                state.covered.remove(&waiter)
            }
        };
        let waited = waiter.wait(&options, Target::address_of(self), withdraw);
        waited.map_err(WaitError::into_io_error)?;
        Ok(verdict.get())
    }
}

impl State {
    /// Records how a call has ended, and returns the verdict for the callers that it covers. If two
    /// calls run at the same time, the kernel may have reported a failure to only one of them.
    fn note(&mut self, end: &RunEnd) -> Verdict {
        match (end, self.failure) {
            (&RunEnd::Failed { errno, lasts }, _) => {
                if lasts {
                    self.failure = Some(errno);
                }
                Verdict::Failed(errno)
            }
            (_, Some(errno)) => Verdict::FailedBefore(errno),
            (_, None) => Verdict::Done,
        }
    }
}

/// The lead. If it is dropped without an end, it goes to another caller, which makes the call anew.
struct Lead<'a>(&'a SharedRun);

impl Lead<'_> {
    /// Begins the call. Returns whether a covered caller needs all of it.
    fn begin(&self, needs_all: bool) -> bool {
        let mut state = self.0.0.lock();
        // Else a leader before this one has begun, and has given up.
        if state.covered.is_empty() {
            state.covered = std::mem::replace(&mut state.next, Queue::new());
            state.covered_need_all = std::mem::take(&mut state.next_need_all);
            state.round += 1;
        }
        needs_all | state.covered_need_all
    }

    /// Ends the call. Returns the verdict for the callers that it covers.
    fn end(self, end: RunEnd) -> Verdict {
        let mut woken = WakeList::default();
        let mut state = self.0.0.lock();
        let verdict = state.note(&end);
        tell_all(&mut state.covered, verdict, &mut woken);
        // The new leader runs after the callers that are done, whose next calls it may cover.
        pass_on(state, woken);
        std::mem::forget(self);
        verdict
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        pass_on(self.0.0.lock(), WakeList::default());
    }
}

/// Gives the lead to a waiter, if there is one.
fn pass_on(mut state: ShortGuard<'_, State>, mut woken: WakeList) {
    if let Some(errno) = state.failure {
        let State { covered, next, .. } = &mut *state;
        tell_all(covered, Verdict::FailedBefore(errno), &mut woken);
        tell_all(next, Verdict::FailedBefore(errno), &mut woken);
    }
    let State { covered, next, .. } = &mut *state;
    let leader = if covered.is_empty() { next.pop() } else { covered.pop() };
    match leader {
        Some(leader) => woken.add(tell(leader, Verdict::Leads)),
        None => state.is_led = false,
    }
    drop(state);
    woken.wake();
}

fn tell_all(queue: &mut Queue, verdict: Verdict, woken: &mut WakeList) {
    while let Some(waiter) = queue.pop() {
        woken.add(tell(waiter, verdict));
    }
}

fn tell(waiter: Dequeued<'_>, verdict: Verdict) -> super::caller::Waker {
    // SAFETY: I10. The slot is the waiter's `Cell<Verdict>`, in a frame that stays until the
    // outcome is stored, and which its own thread does not read before.
    unsafe { waiter.slot().cast::<Verdict>().write(verdict) };
    waiter.grant()
}
